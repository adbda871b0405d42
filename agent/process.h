#pragma once

// What the agent reads from the operating system about itself and this machine. Small functions, so
// that everything else can be told numbers. Any thread.

#include <cstdint>
#include <string>
#include <vector>

#include "agent/preflight.h"

namespace spate::agent {

// Soft limit of open descriptors after raising it to the hard one.
std::uint64_t raise_descriptor_limit();
PortRange local_port_range();  // 32768-60999 if it cannot be read
std::string host_name();
std::uint32_t cpu_count();
std::uint64_t rss_bytes();  // 0 if it cannot be read
std::uint64_t cpu_ns();     // user + system of this process since its start
std::uint64_t new_nonce();  // not 0
std::string boot_id();      // of the running kernel; empty if it cannot be read
struct MemoryGroup {
  std::uint64_t oom_kills = 0;    // processes that the OOM killer has ended so far
  std::uint64_t limit_bytes = 0;  // 0: none
};
// This process' cgroup; zeros for what cannot be read.
MemoryGroup memory_group();
// getaddrinfo(), in its order. "localhost" is never looked up. Blocks.
Result<std::vector<IpAddress>> resolve(const std::string& host);

}  // namespace spate::agent
