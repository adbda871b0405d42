#include "target-server/process_info.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

namespace spate::target_server {
namespace {

TEST(ProcessInfo, ReadsItsOwnMemoryAndTime) {
  const ProcessMemory memory = process_memory();
  EXPECT_GT(memory.rss_bytes, 1'000'000u);
  EXPECT_GT(memory.address_space_bytes, memory.rss_bytes);
  EXPECT_GT(process_cpu_ns(), 0u);
}

TEST(ProcessInfo, NamesTheAllocatorFromTheMaps) {
  EXPECT_EQ(allocator_in_maps("7f00-7f01 r-xp 0 08:01 1 /usr/lib/x86_64-linux-gnu/libc.so.6\n"),
            "glibc");
  EXPECT_EQ(allocator_in_maps("7f r-xp 0 0 1 /usr/lib/x86_64-linux-gnu/libjemalloc.so.2\n"),
            "jemalloc");
  EXPECT_EQ(allocator_in_maps("7f r-xp 0 0 1 /opt/libmimalloc-secure.so.2.0\n"), "mimalloc");
  EXPECT_EQ(allocator_in_maps("7f r-xp 0 0 1 /usr/lib/libtcmalloc_minimal.so.4\n"),
            "tcmalloc_minimal");
  EXPECT_EQ(allocator_in_maps("7f r-xp 0 0 1 /usr/lib/libtcmalloc.so.4\n"), "tcmalloc");
  EXPECT_EQ(allocator_in_maps("7f r-xp 0 0 1 /usr/lib/libclang_rt.scudo_standalone-x86_64.so\n"),
            "scudo");
  EXPECT_EQ(allocator_in_maps("7f r-xp 0 0 1 /home/jemalloc/spate-target\n"), "glibc");
}

TEST(ProcessInfo, GivesDifferentIds) {
  EXPECT_EQ(random_id().size(), 32u);
  EXPECT_NE(random_id(), random_id());
}

TEST(ProcessInfo, CountsTheConnectionsOfOnePort) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(bind(listener, raw, sizeof(address)), 0);
  ASSERT_EQ(listen(listener, 8), 0);
  socklen_t size = sizeof(address);
  getsockname(listener, raw, &size);
  const std::uint16_t port = ntohs(address.sin_port);
  EXPECT_EQ(open_connections({port}), 0u);
  std::vector<int> ends;
  for (int i = 0; i < 3; ++i) {
    ends.push_back(socket(AF_INET, SOCK_STREAM, 0));
    ASSERT_EQ(connect(ends.back(), raw, sizeof(address)), 0);
    ends.push_back(accept(listener, nullptr, nullptr));
  }
  // Only the accepted ends have this port as their own.
  EXPECT_EQ(open_connections({port}), 3u);
  for (const int fd : ends) close(fd);
  EXPECT_EQ(open_connections({port}), 0u);
  close(listener);
}

}  // namespace
}  // namespace spate::target_server
