#pragma once

// Takes parameters out of JSON: one set of rules and texts for a plan, for the sets of a rotation
// and for changes made during a run. Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/json_reader.h"
#include "common/parameters.h"

namespace spate {

class ParameterReader : public JsonReader {
 public:
  using JsonReader::JsonReader;

  // 0 when reading one agent's share, which may be empty.
  std::uint64_t least_connections = 1;
  // Whether the target is the one that --local starts, which has no address yet.
  bool has_local_target = false;

  // "load.connections" …: every parameter that may change during a run.
  static const std::vector<std::string>& paths();
  // Why there is no such parameter, and what there is. `when` it may not change: "during a run".
  static std::string objection_to_path(const std::string& path, std::string_view when);

  // Puts the value of one of paths() into `patch`; reports a mistake as being at `where`. False if
  // it is none of paths().
  bool read_parameter(std::string_view name, const JsonNode& node, const std::string& where,
                      ParameterPatch& patch);
  // A whole patch as an object of groups, {"call": {…}, "load": {…}, "paused": true}; what may not
  // change is refused as not changing `when`. Keys in `others` are not looked at.
  ParameterPatch read_patch(const JsonNode& node, const std::string& where, std::string_view when,
                            const std::vector<std::string>& others);
  // Those keys of the object that are parameters; `group` is its name, "call" or "load".
  void read_group(const JsonNode& node, const std::string& where, std::string_view group,
                  ParameterPatch& patch);

  // Calls without loops have nothing to pause between. `calls` and `pause` are where the patch has
  // them from, or nullptr; `calls_before` is what it changes, if that is known.
  void settle_pause(const JsonNode* calls, const JsonNode* pause, const std::string& where,
                    std::optional<std::uint64_t> calls_before, ParameterPatch& patch);

 private:
  struct Parameter;
  static const std::vector<Parameter>& parameters();

  std::optional<std::string> url_of(const JsonNode& node, const std::string& where);
  std::optional<std::string> method_of(const JsonNode& node, const std::string& where);
  std::optional<std::string> message_of(const JsonNode& node, const std::string& where);
  std::optional<Metadata> metadata_of(const JsonNode& node, const std::string& where);
};

}  // namespace spate
