#pragma once

// A change on trial on some agents, compared with the others. Reads the store; not on the control
// loop.

#include "controller/operator_api.h"

namespace spate::controller {

// The latest change that is due, pauses and the controller's own left out, if it is on trial; else
// null.
const Change* canary_on_trial(const std::vector<ChangeRow>& changes);

// Two groups, by what is stored since the trial began: its agents, and the others.
Result<std::vector<CanaryGroup>> compare_canary(const std::string& store_path,
                                                const std::string& run, const Change& canary);

}  // namespace spate::controller
