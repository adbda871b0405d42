#pragma once

// What each agent of a run is asked to do: the plan's totals, divided. Pure.

#include <vector>

#include "common/plan.h"
#include "common/timeline.h"
#include "controller/agent_events.h"

namespace spate::controller {

// The right to generate load that a heartbeat's reply renews.
Duration lease_length(const Plan& plan);

// One Prepare per agent, in the order of the agents. first_connection counts every agent's largest
// epoch, so that no number is there twice.
std::vector<SendPrepare> divide_run(const std::string& run, const Plan& plan,
                                    const Timeline& timeline, const std::string& descriptor_set);

}  // namespace spate::controller
