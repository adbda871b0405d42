#pragma once

// From the tree of a plan's JSON to a Plan, collecting every mistake on the way. Pure; used by
// plan_json.cc.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/parameter_reader.h"

namespace spate {

class PlanReader : private ParameterReader {
 public:
  // Both outlive the reader. `measured_for`: how long the measured phases last instead; 0: as
  // planned.
  PlanReader(Plan& plan, std::vector<PlanProblem>& problems, Duration measured_for)
      : ParameterReader(problems), plan_(plan), measured_for_(measured_for) {}

  void read(const JsonNode& root);

 private:
  void read_target(const JsonNode& root);
  void read_call(const JsonNode& root);
  Load read_load(const JsonNode& node, const std::string& path, std::string_view known_as,
                 Load base);
  void read_agents(const JsonNode& root);
  void read_phases(const JsonNode& root, const Load& base);
  void read_phase(const JsonNode& node, const std::string& path, const Load& base);
  void read_rotation(const JsonNode& root);
  void read_sets(const JsonNode& node, Rotation& rotation);
  void read_set(const JsonNode& node, const std::string& path, Rotation& rotation);
  void read_wall_clock(const JsonNode& node, Rotation& rotation);
  void read_controller_loss(const JsonNode& root);
  void read_thresholds(const JsonNode& root);
  // The value of `key` as one of `words`; else what is wrong is reported, and nothing returned.
  std::optional<std::size_t> choice_of(const JsonNode& parent, const std::string& parent_path,
                                       const std::string& key,
                                       const std::vector<std::string>& words);

  Plan& plan_;
  const Duration measured_for_;
};

}  // namespace spate
