#pragma once

// What a plan will do, in words and numbers. Pure.

#include <cstdint>
#include <string>

#include "common/plan.h"
#include "common/result.h"

namespace spate::cli {

// Phases, epochs, every agent's share of each, who holds which set of a rotation when, and what it
// adds up to. Wall times are those of a run that starts at `start_wall_ms`. Errors: the plan makes
// no timeline (only after its lengths were changed by hand).
Result<std::string> explain_text(const Plan& plan, std::int64_t start_wall_ms);
// The same as one object, with the whole plan in it.
Result<std::string> explain_json(const Plan& plan, std::int64_t start_wall_ms);

}  // namespace spate::cli
