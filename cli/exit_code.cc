#include "cli/exit_code.h"

#include <cstdio>

namespace spate::cli {

int exit_code_of(const Error& error) {
  switch (error.code) {
    case ErrorCode::invalid:
      return kUsage;
    case ErrorCode::not_found:
    case ErrorCode::conflict:
      return kNotFound;
    case ErrorCode::unavailable:
    case ErrorCode::refused:
    case ErrorCode::io:
    case ErrorCode::internal:
      return kFailed;
  }
  return kFailed;
}

int fail(const Error& error) {
  std::fprintf(stderr, "spate: %s\n", error.message.c_str());
  return exit_code_of(error);
}

}  // namespace spate::cli
