#pragma once

// CHECK: a programmer error ends the process with the place and the message, in every build.
// Operating errors are never checked this way; they are Result values or data.

#include <cstdio>
#include <cstdlib>
#include <string>

namespace spate {

[[noreturn]] inline void check_failed(const char* file, int line, const char* condition,
                                      const std::string& message) {
  std::fprintf(stderr, "%s:%d: CHECK(%s) failed: %s\n", file, line, condition, message.c_str());
  std::abort();
}

}  // namespace spate

#define CHECK(condition, message)                                       \
  do {                                                                  \
    if (!(condition)) [[unlikely]]                                      \
      ::spate::check_failed(__FILE__, __LINE__, #condition, (message)); \
  } while (false)
