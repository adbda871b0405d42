#pragma once

// From the tree of a plan's JSON to a Plan, collecting every mistake on the way. Pure; used by
// plan_json.cc.

#include <string>
#include <string_view>
#include <vector>

#include "common/parameter_reader.h"

namespace spate {

class PlanReader : private ParameterReader {
 public:
  // Both outlive the reader.
  PlanReader(Plan& plan, std::vector<PlanProblem>& problems)
      : ParameterReader(problems), plan_(plan) {}

  void read(const JsonNode& root);

 private:
  void read_target(const JsonNode& root);
  void read_call(const JsonNode& root);
  Load read_load(const JsonNode& node, const std::string& path, std::string_view known_as,
                 Load base);
  void read_agents(const JsonNode& root);
  void read_phases(const JsonNode& root, const Load& base);
  void read_phase(const JsonNode& node, const std::string& path, const Load& base);
  void read_thresholds(const JsonNode& root);

  Plan& plan_;
};

}  // namespace spate
