#pragma once

// Which of the bugs of this folder is awake: the one that SPATE_BUG names. Only check_bugs builds
// with them; it includes this file everywhere (-include).

#include <cstdlib>
#include <cstring>

namespace spate {

inline bool planted(const char* bug) {
  static const char* const awake = std::getenv("SPATE_BUG");
  return awake != nullptr && std::strcmp(awake, bug) == 0;
}

}  // namespace spate
