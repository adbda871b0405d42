#include "target-server/process_info.h"

#include <dirent.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>

#include "common/check.h"

namespace spate::target_server {
namespace {

std::uint64_t to_ns(const timeval& t) {
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(t.tv_usec) * 1'000;
}

// The local port of a connected TCP socket; nothing for a listener or for what is no socket.
std::optional<std::uint16_t> connected_port(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return std::nullopt;
  std::uint16_t port = 0;
  if (address.ss_family == AF_INET) {
    port = reinterpret_cast<const sockaddr_in&>(address).sin_port;
  } else if (address.ss_family == AF_INET6) {
    port = reinterpret_cast<const sockaddr_in6&>(address).sin6_port;
  } else {
    return std::nullopt;
  }
  size = sizeof(address);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return std::nullopt;
  return ntohs(port);
}

}  // namespace

ProcessMemory process_memory() {
  unsigned long long pages = 0;
  unsigned long long resident = 0;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> statm(std::fopen("/proc/self/statm", "re"),
                                                              &std::fclose);
  if (!statm || std::fscanf(statm.get(), "%llu %llu", &pages, &resident) != 2) return {};
  const auto page_bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return {pages * page_bytes, resident * page_bytes};
}

std::uint64_t process_cpu_ns() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return to_ns(usage.ru_utime) + to_ns(usage.ru_stime);
}

std::string loaded_allocator() {
  std::ifstream maps("/proc/self/maps");
  const std::string text(std::istreambuf_iterator<char>(maps), {});
  return allocator_in_maps(text);
}

std::string allocator_in_maps(std::string_view maps) {
  // Longer names before their beginnings.
  constexpr std::array<std::string_view, 9> kNames{
      "jemalloc", "mimalloc", "tcmalloc_minimal", "tcmalloc", "tbbmalloc_proxy",
      "scudo",    "hoard",    "snmalloc",         "rpmalloc"};
  for (const std::string_view name : kNames) {
    // Only a file called lib<name>...so..., and clang's own spelling of scudo.
    for (const std::string& file :
         {"/lib" + std::string(name), "/libclang_rt." + std::string(name)}) {
      if (maps.find(file) != std::string_view::npos) return std::string(name);
    }
  }
  return "glibc";
}

std::uint64_t open_connections(const std::vector<std::uint16_t>& ports) {
  const std::unique_ptr<DIR, int (*)(DIR*)> descriptors(opendir("/proc/self/fd"), &closedir);
  if (!descriptors) return 0;
  std::uint64_t count = 0;
  while (const dirent* entry = readdir(descriptors.get())) {
    int fd = -1;
    const char* name = entry->d_name;
    if (std::from_chars(name, name + std::strlen(name), fd).ec != std::errc{}) continue;
    const auto port = connected_port(fd);
    if (port && std::find(ports.begin(), ports.end(), *port) != ports.end()) ++count;
  }
  return count;
}

std::uint64_t raise_descriptor_limit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t soft = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : soft;
}

std::string random_id() {
  std::array<unsigned char, 16> bytes{};
  CHECK(getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
        "no random bytes");
  std::string id;
  for (const unsigned char byte : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    id += kDigits[byte >> 4];
    id += kDigits[byte & 15];
  }
  return id;
}

}  // namespace spate::target_server
