#pragma once

// A file that is made aside and then takes its name: whole or not at all, also when the power
// fails. What is in it must be durable before.

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>

#include "common/result.h"

namespace spate {

// Into the same folder.
inline Result<void> durable_rename(const std::string& from, const std::string& to) {
  const std::string folder = std::filesystem::absolute(to).parent_path().string();
  bool is_done = std::rename(from.c_str(), to.c_str()) == 0;
  if (is_done) {
    const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    is_done = fd >= 0 && ::fsync(fd) == 0;
    const int why = errno;
    if (fd >= 0) ::close(fd);
    errno = why;
  }
  if (is_done) return {};
  return Error{ErrorCode::io, "cannot write " + to + ": " + std::strerror(errno) +
                                  ": make the folder writable, or free space there"};
}

}  // namespace spate
