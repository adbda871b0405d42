#pragma once

// What each agent of a run is asked to do: the plan's totals, divided. Pure.

#include <vector>

#include "common/plan.h"
#include "controller/agent_events.h"

namespace spate::controller {

// One Prepare per agent, in the order of the agents; over all of them the connections of every
// epoch add up to exactly the plan's. Equal parts by largest remainder, so parts differ by at most
// one, and the part of a larger total is never smaller: hence first_connection, from the largest
// epoch, leaves no number twice.
std::vector<SendPrepare> divide_run(const std::string& run, const Plan& plan,
                                    const std::string& descriptor_set);

}  // namespace spate::controller
