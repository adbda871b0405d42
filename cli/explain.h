#pragma once

// What a plan will do, in words and numbers. Pure.

#include <string>

#include "common/plan.h"

namespace spate::cli {

// Phases, epochs, every agent's share of each, and what they add up to.
std::string explain_text(const Plan& plan);
// The same as one object, with the whole plan in it.
std::string explain_json(const Plan& plan);

}  // namespace spate::cli
