#pragma once

// From the tree of a plan's JSON to a Plan, collecting every mistake on the way. Pure; used by
// plan_json.cc.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/json_tree.h"
#include "common/plan_json.h"

namespace spate {

class PlanReader {
 public:
  // Both outlive the reader.
  PlanReader(Plan& plan, std::vector<PlanProblem>& problems) : plan_(plan), problems_(problems) {}

  void read(const JsonNode& root);

  // Every object of a plan ("", "load", "phases[].load" …) and the keys it may have.
  struct KnownObject {
    std::string_view name;
    std::vector<std::string> keys;
  };
  static const std::vector<KnownObject>& known_objects();

 private:
  struct Range {
    Duration least;
    Duration most;
  };

  void report(const JsonNode& node, const std::string& path, std::string text);
  void report_missing(const std::string& path, std::string text);
  void find_repeated_keys(const JsonNode& node, const std::string& path);
  bool check_object(const JsonNode& node, const std::string& path, std::string_view known_as);

  std::optional<std::string> text_of(const JsonNode& node, const std::string& path);
  std::optional<std::uint64_t> count_of(const JsonNode& node, const std::string& path,
                                        std::uint64_t least, std::uint64_t most);
  std::optional<Duration> duration_of(const JsonNode& node, const std::string& path, Range range);
  void read_name(const JsonNode& node, const std::string& path, std::string& out);
  void read_duration(const JsonNode& parent, const std::string& parent_path, std::string_view key,
                     Range range, Duration& out);

  void read_target(const JsonNode& root);
  void read_call(const JsonNode& root);
  void read_metadata(const JsonNode& node, const std::string& path);
  Load read_load(const JsonNode& node, const std::string& path, std::string_view known_as,
                 Load base);
  void read_agents(const JsonNode& root);
  void read_phases(const JsonNode& root, const Load& base);
  void read_phase(const JsonNode& node, const std::string& path, const Load& base);
  void read_thresholds(const JsonNode& root);

  Plan& plan_;
  std::vector<PlanProblem>& problems_;
};

}  // namespace spate
