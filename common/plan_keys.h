#pragma once

// The keys a plan may have. Pure; the readers and their messages share this one list.

#include <string>
#include <string_view>
#include <vector>

namespace spate {

// An object of a plan ("", "load", "phases[].load" …) and its keys, in the order of the
// documentation.
struct KnownObject {
  std::string_view name;
  std::vector<std::string> keys;
};
const std::vector<KnownObject>& known_plan_objects();

// Whether `path` ("load.connections", "phases.1.for") is a plan's key, or an object of keys.
bool is_plan_path(std::string_view path);

}  // namespace spate
