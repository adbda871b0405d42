#pragma once

// Makes the agent's records out of what the workers of a process that died have left in their open
// intervals: one for each label (phase, epoch, guard, drain), of all workers together, chained to
// what the spool has. Pure.
//
// If some of it was in the process' own memory, the last record does not say `recovered`: what that
// process did at the end is not known whole, and the balance must not take it to be.
//
// Requests that were in flight stay in in_flight_end: nobody knows what became of them.

#include <functional>
#include <optional>
#include <vector>

#include "agent/open_interval.h"
#include "agent/spool.h"

namespace spate::agent {

// `known`: what the spool has of an account. Intervals that are in there already are left out, so
// asking again, after a death in the middle of it, is safe.
std::vector<LeftBehind> left_behind(
    std::vector<WorkerRemains> remains,
    const std::function<std::optional<SpoolAccount>(const AccountKey&)>& known);

}  // namespace spate::agent
