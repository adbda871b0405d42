#include "common/plan_keys.h"

#include <algorithm>

#include "common/plan_json.h"

namespace spate {
namespace {

bool is_number(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// "phases.1.for" -> "phases[].for"
std::string without_indices(std::string_view path) {
  std::string out;
  while (true) {
    const std::size_t dot = path.find('.');
    const std::string_view step = path.substr(0, dot);
    if (is_number(step) && !out.empty()) {
      out += "[]";
    } else {
      out += (out.empty() ? "" : ".") + std::string(step);
    }
    if (dot == path.npos) return out;
    path.remove_prefix(dot + 1);
  }
}

}  // namespace

const std::vector<KnownObject>& known_plan_objects() {
  static const std::vector<KnownObject> kObjects = {
      {"",
       {"$schema", "name", "description", "target", "call", "load", "agents", "interval", "drain",
        "seed", "phases", "rotate", "thresholds", "on_controller_loss", "controller_loss_limit"}},
      {"target", {"url", "probe"}},
      {"call", {"method", "message", "proto", "descriptor_set", "timeout", "compress", "metadata"}},
      {"load", {"model", "connections", "calls_per_loop", "pause"}},
      {"agents", {"count", "threads", "redistribute"}},
      {"phases[]", {"name", "for", "measured", "load"}},
      {"phases[].load", {"connections", "calls_per_loop", "pause"}},
      {"rotate", {"every", "sets", "across", "guard", "at", "zone", "zone_rules"}},
      {"rotate.sets[]", {"name", "target", "call", "load", "agents", "paused"}},
      {"rotate.sets[].target", {"url"}},
      {"rotate.sets[].call", {"method", "message", "timeout", "compress", "metadata"}},
      {"rotate.sets[].load", {"connections", "calls_per_loop", "pause"}},
      {"rotate.sets[].agents", {"threads"}},
      {"thresholds", {"latency", "service_time", "send_lag", "errors", "requests"}}};
  return kObjects;
}

bool is_plan_path(std::string_view path) {
  const std::string name = without_indices(path);
  const std::vector<std::string> keys = known_plan_keys();
  const auto& objects = known_plan_objects();
  return std::find(keys.begin(), keys.end(), name) != keys.end() ||
         std::any_of(objects.begin(), objects.end(),
                     [&](const KnownObject& o) { return !o.name.empty() && o.name == name; });
}

}  // namespace spate
