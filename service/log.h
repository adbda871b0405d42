#pragma once

// Where a program's log goes: stderr, or a file that is rotated by size, so that weeks of it do not
// fill a disk. Called by main() before the first line is logged.

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"

namespace CLI {
class App;
}

namespace spate::service {

inline constexpr std::uint64_t kSmallestLog = 64 * 1024;
inline constexpr std::uint32_t kMostLogFiles = 1'000;

struct LogFlags {
  std::string level = "info";
  std::string file;  // empty: stderr
  std::string max_size = "16MiB";
  std::uint32_t kept = 4;  // beside the one that is written: FILE.1 … in FILE's folder
};

// Adds --log-level (one of `levels`), --log-file, --log-max-size, --log-files.
void declare_log(CLI::App& app, LogFlags& flags, const std::vector<std::string>& levels);

// Makes the logger of this name, for spdlog::get() and as the default. A file that cannot be
// written is refused; one that cannot be written later is told on stderr, and the program goes on.
Result<void> start_log(const std::string& name, const LogFlags& flags);

}  // namespace spate::service
