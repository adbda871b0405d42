#pragma once

// What the operating system says about this process. Thread-safe; reads /proc, so it is for reports
// and log rows, not for the request path.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spate::target_server {

struct ProcessMemory {
  std::uint64_t address_space_bytes = 0;  // VmSize: the same question whatever the allocator
  std::uint64_t rss_bytes = 0;
};

// Zeros if /proc cannot be read.
ProcessMemory process_memory();

// User and system time of all threads since the start.
std::uint64_t process_cpu_ns();

// The allocator that is loaded, by the name of its shared object: "jemalloc", "mimalloc",
// "tcmalloc", "tcmalloc_minimal", "tbbmalloc_proxy", "scudo", "hoard", "snmalloc", "rpmalloc";
// otherwise "glibc". One that is linked statically into the program is not seen.
std::string loaded_allocator();
// The same from the text of /proc/self/maps.
std::string allocator_in_maps(std::string_view maps);

// Connections now open to any of the local TCP `ports`, from the process's own descriptors: two
// system calls for each, about a microsecond, so 10,000 connections cost a sample some 10 ms. Other
// sockets do not count.
std::uint64_t open_connections(const std::vector<std::uint16_t>& ports);

// Raises the soft limit of descriptors to the hard one and returns it. A gRPC server that runs out
// of them stops listening for good.
std::uint64_t raise_descriptor_limit();

// 128 random bits as 32 hexadecimal digits; from the kernel.
std::string random_id();

}  // namespace spate::target_server
