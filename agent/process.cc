#include "agent/process.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <memory>
#include <random>
#include <thread>

namespace spate::agent {

std::uint64_t raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  if (limit.rlim_cur < limit.rlim_max) {
    rlimit raised = limit;
    raised.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  return limit.rlim_cur;
}

PortRange local_port_range() {
  PortRange range{32768, 60999};
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  PortRange read;
  if (file >> read.low >> read.high) range = read;
  return range;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "agent";
  return name.data();
}

std::uint32_t cpu_count() { return std::max(1U, std::thread::hardware_concurrency()); }

std::uint64_t rss_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t size = 0;
  std::uint64_t resident = 0;
  if (!(file >> size >> resident)) return 0;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

std::uint64_t cpu_ns() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  const auto ns = [](const timeval& t) {
    return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(t.tv_usec) * 1'000;
  };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

std::uint64_t new_nonce() {
  std::random_device random;
  return (static_cast<std::uint64_t>(random()) << 32 | random()) | 1;
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

MemoryGroup memory_group() {
  MemoryGroup group;
  std::ifstream groups("/proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {
    // "0::/a/b" of the one hierarchy of version 2, "4:memory:/a/b" of version 1.
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && controllers != "memory") continue;
    const std::string path = line.substr(second + 1);
    const bool is_v2 = controllers.empty();
    const std::string folder = (is_v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory") + path;
    std::ifstream events(folder + (is_v2 ? "/memory.events" : "/memory.oom_control"));
    std::string key;
    for (std::uint64_t value = 0; events >> key >> value;)
      if (key == "oom_kill") group.oom_kills = value;
    std::ifstream limit(folder + (is_v2 ? "/memory.max" : "/memory.limit_in_bytes"));
    // Without one: "max", or the largest number of whole pages.
    std::uint64_t bytes = 0;
    if (limit >> bytes && bytes < (std::uint64_t{1} << 62)) group.limit_bytes = bytes;
  }
  return group;
}

Result<std::vector<IpAddress>> resolve(const std::string& host) {
  if (host == "localhost")
    return std::vector<IpAddress>{*IpAddress::parse("127.0.0.1"), *IpAddress::parse("::1")};
  if (const auto literal = IpAddress::parse(host)) return std::vector<IpAddress>{*literal};

  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) return Error{ErrorCode::not_found, gai_strerror(error)};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);

  std::vector<IpAddress> addresses;
  for (const addrinfo* a = found; a; a = a->ai_next) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    const void* raw =
        a->ai_family == AF_INET6
            ? static_cast<const void*>(
                  &reinterpret_cast<const sockaddr_in6*>(a->ai_addr)->sin6_addr)
            : static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(a->ai_addr)->sin_addr);
    if (!inet_ntop(a->ai_family, raw, text.data(), text.size())) continue;
    const auto address = IpAddress::parse(text.data());
    if (address && std::find(addresses.begin(), addresses.end(), *address) == addresses.end())
      addresses.push_back(*address);
  }
  return addresses;
}

}  // namespace spate::agent
