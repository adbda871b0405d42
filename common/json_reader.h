#pragma once

// Takes values out of a tree of JSON and collects every mistake on the way, each with its path and
// line. Pure; the base of the readers of plans and of parameters.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/json_tree.h"
#include "common/plan_json.h"

namespace spate {

// `text` in quotes, cut and made safe to show.
std::string quoted(std::string_view text);

class JsonReader {
 public:
  struct Range {
    Duration least;
    Duration most;
  };

  // `problems` outlives the reader.
  explicit JsonReader(std::vector<PlanProblem>& problems) : problems_(problems) {}

  bool has_problems() const { return !problems_.empty(); }
  void report(const JsonNode& node, const std::string& path, std::string text);
  void report_missing(const std::string& path, std::string text);
  void find_repeated_keys(const JsonNode& node, const std::string& path);
  // Whether it is an object; unknown keys of it are reported, with the nearest known one.
  // `known_as`: its name in known_plan_objects().
  bool check_object(const JsonNode& node, const std::string& path, std::string_view known_as);

  // Each reports what is wrong and returns nothing, or the value.
  std::optional<std::string> text_of(const JsonNode& node, const std::string& path);
  std::optional<bool> bool_of(const JsonNode& node, const std::string& path);
  std::optional<std::uint64_t> count_of(const JsonNode& node, const std::string& path,
                                        std::uint64_t least, std::uint64_t most);
  std::optional<Duration> duration_of(const JsonNode& node, const std::string& path, Range range);
  std::optional<std::string> name_of(const JsonNode& node, const std::string& path);
  // The value of `key`, if the object has it and it is good; else `out` stays.
  void read_duration(const JsonNode& parent, const std::string& parent_path, std::string_view key,
                     Range range, Duration& out);

 private:
  std::vector<PlanProblem>& problems_;
};

}  // namespace spate
