#include "target-server/counters.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace spate::target_server {
namespace {

TEST(Counters, KeepsAgentsAndIncarnationsApart) {
  Counters counters;
  counters.of({"run", "a", 1}).received();
  counters.of({"run", "a", 2}).received();
  counters.of({"run", "a", 2}).received();
  counters.of({"run", "a", 2}).completed();
  counters.of({"run", "b", 1}).received();
  counters.of({"run", "b", 1}).refused();
  counters.of({"other run", "a", 1}).received();
  const auto entries = counters.entries("run");
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].counts.received, 1u);
  EXPECT_EQ(entries[1].incarnation, 2u);
  EXPECT_EQ(entries[1].counts.received, 2u);
  EXPECT_EQ(entries[1].counts.completed, 1u);
  EXPECT_EQ(entries[2].agent, "b");
  EXPECT_EQ(entries[2].counts.refused, 1u);
}

TEST(Counters, GivesTheSameCountsForTheSameKey) {
  Counters counters;
  const std::string run = "run";
  EXPECT_EQ(&counters.of({run, "a", 1}), &counters.of({std::string("run"), "a", 1}));
}

TEST(Counters, CountsWhatIsBeyondTheLimitTogether) {
  Counters counters;
  for (std::size_t i = 0; i < kMaxKeys + 7; ++i)
    counters.of({"run", std::to_string(i), 1}).received();
  counters.of({"run", "0", 1}).received();
  const auto entries = counters.entries("run");
  ASSERT_EQ(entries.size(), kMaxKeys + 1);
  EXPECT_EQ(entries.front().counts.received, 2u);
  EXPECT_EQ(entries.back().agent, "other");
  EXPECT_EQ(entries.back().run, "");
  EXPECT_EQ(entries.back().counts.received, 7u);
}

TEST(Counters, CountsTooLongNamesUnderOther) {
  Counters counters;
  counters.of({"run", std::string(kMaxKeyBytes, 'x'), 1}).received();
  const auto entries = counters.entries("run");
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].agent, "other");
}

TEST(Counters, NeverShowMoreEndsThanBeginnings) {
  Counters counters;
  constexpr std::uint64_t kRequests = 50'000;
  constexpr int kThreads = 4;
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < kRequests; ++i) {
        Counts& agent = counters.of({"run", std::to_string(i % 50), static_cast<std::uint64_t>(t)});
        counters.total().received();
        agent.received();
        i % 3 == 0 ? agent.refused() : agent.completed();
        i % 3 == 0 ? counters.total().refused() : counters.total().completed();
      }
      --running;
    });
  }
  while (running > 0) {
    const auto total = counters.total().read();
    ASSERT_GE(total.received, total.completed + total.refused);
    for (const auto& entry : counters.entries("run")) {
      ASSERT_GE(entry.counts.received, entry.counts.completed + entry.counts.refused);
    }
  }
  for (auto& thread : threads) thread.join();
  Counts::Values sum;
  for (const auto& entry : counters.entries("run")) {
    sum.received += entry.counts.received;
    sum.completed += entry.counts.completed;
    sum.refused += entry.counts.refused;
  }
  const auto total = counters.total().read();
  EXPECT_EQ(total.received, kRequests * kThreads);
  EXPECT_EQ(sum.received, total.received);
  EXPECT_EQ(sum.completed, total.completed);
  EXPECT_EQ(sum.refused, total.refused);
  EXPECT_EQ(total.received, total.completed + total.refused);
}

}  // namespace
}  // namespace spate::target_server
