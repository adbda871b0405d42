#pragma once

// Changes of parameters as text: `path=value` as people order them, one line for a log, and JSON
// for the store. The rules are those of a plan (parameter_reader.h). Pure.

#include <string>
#include <string_view>
#include <vector>

#include "common/json_tree.h"
#include "common/parameters.h"
#include "common/plan_json.h"
#include "common/result.h"

namespace spate {

struct PatchOrProblems {
  ParameterPatch patch;               // meaningful only if problems is empty
  std::vector<PlanProblem> problems;  // in the order given; path is "load.connections"

  bool ok() const { return problems.empty(); }
};

// Assignments are path=value, as of --set: "load.connections=400", "call.compress=true",
// "call.message={…}". The value is JSON if it parses as JSON, else a string. Refused: a path that
// is unknown, or given twice, or may not change during a run; no assignment at all.
PatchOrProblems parse_patch(const std::vector<std::string>& assignments);

// "load.connections=4000 call.compress=true", for logs and lists. Not to be read back: values of
// metadata may be secrets and are left out, a long message is cut.
std::string describe(const ParameterPatch& patch);

// One compact object, keys as in a plan: {"call":{"compress":true}}.
std::string to_json(const ParameterPatch& patch);
std::string to_json(const Parameters& parameters);
// Reads what to_json() wrote. Errors: anything else, missing keys of Parameters.
Result<ParameterPatch> patch_from_json(std::string_view text);
Result<Parameters> parameters_from_json(std::string_view text);

// Parts of it, for the JSON of a plan.
JsonNode call_node(const Call& call);
JsonNode load_node(const Load& load);
JsonNode patch_node(const ParameterPatch& patch);

}  // namespace spate
