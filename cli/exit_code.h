#pragma once

// What every verb's exit status means; the table in docs/command-line.md.

#include "common/result.h"

namespace spate::cli {

inline constexpr int kPassed = 0;
inline constexpr int kFailed = 1;      // internal error, or nobody answers
inline constexpr int kUsage = 2;       // flags, the plan, or what the plan would need
inline constexpr int kInvalidRun = 3;  // the run's numbers are not to be believed
inline constexpr int kNotFound = 4;
inline constexpr int kThreshold = 99;
inline constexpr int kStopped = 105;  // by the user, before its end

// The status that `error` ends a verb with.
int exit_code_of(const Error& error);

// Prints "spate: MESSAGE" on stderr and returns the status.
int fail(const Error& error);

}  // namespace spate::cli
