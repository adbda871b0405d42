#pragma once

// Files of plans/ inside the program. Written into embedded.cc by CMake.

namespace spate::cli {

extern const char* const kDemoPlan;    // plans/demo.jsonc
extern const char* const kPlanSchema;  // plans/plan.schema.json

}  // namespace spate::cli
