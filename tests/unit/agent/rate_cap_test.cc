#include "agent/rate_cap.h"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "common/random.h"

namespace spate::agent {
namespace {

using namespace std::chrono_literals;

constexpr Instant kBegin{1h};

RateCap cap_of(double per_second, std::uint64_t connections = 1, std::uint64_t of_agent = 1) {
  RateCap cap;
  cap.set(per_second, connections, of_agent, kBegin);
  return cap;
}

// Sends whenever it may, looking at the clock every `step`.
std::vector<Instant> flood(RateCap& cap, Instant from, Instant to, Duration step) {
  std::vector<Instant> sent;
  for (Instant now = from; now < to; now += step) {
    for (; cap.opens() <= now; cap.let_through(now)) sent.push_back(now);
  }
  return sent;
}

std::size_t most_within(const std::vector<Instant>& sent, Duration window) {
  std::size_t most = 0;
  std::deque<Instant> recent;
  for (const Instant at : sent) {
    recent.push_back(at);
    while (recent.front() <= at - window) recent.pop_front();
    most = std::max(most, recent.size());
  }
  return most;
}

TEST(RateCap, IsNotSetWithoutARate) {
  EXPECT_FALSE(RateCap().is_set());
  EXPECT_FALSE(cap_of(0).is_set());
  EXPECT_TRUE(cap_of(0.5).is_set());
}

TEST(RateCap, IsUsedToTheFullAndNoFurther) {
  RateCap cap = cap_of(500);
  const auto sent = flood(cap, kBegin, kBegin + 10s, 100us);
  EXPECT_LE(sent.size(), 5006U);
  EXPECT_GE(sent.size(), 5000U);
  EXPECT_LE(most_within(sent, 1s), 506U);
}

TEST(RateCap, HoldsInEverySecondHoweverLateTheThreadIs) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    const double rate = static_cast<double>(random.between(1, 3000));
    RateCap cap = cap_of(rate);
    std::vector<Instant> sent;
    for (Instant now = kBegin; now < kBegin + 5s;) {
      for (; cap.opens() <= now; cap.let_through(now)) sent.push_back(now);
      // Mostly prompt, at times asleep for up to two seconds.
      now += random.between(0, 99) == 0 ? Duration(random.between(0, 2'000'000'000))
                                        : Duration(random.between(1'000, 2'000'000));
    }
    EXPECT_LE(static_cast<double>(most_within(sent, 1s)), rate * 1.01 + 1) << "seed " << seed;
  }
}

TEST(RateCap, PartsOfTheWorkersAddUpToTheWhole) {
  std::vector<Instant> sent;
  for (const std::uint64_t connections : {3, 3, 2, 0}) {
    RateCap cap = cap_of(100, connections, 8);
    const auto part = flood(cap, kBegin, kBegin + 10s, 100us);
    EXPECT_EQ(part.empty(), connections == 0);
    sent.insert(sent.end(), part.begin(), part.end());
  }
  std::sort(sent.begin(), sent.end());
  EXPECT_LE(most_within(sent, 1s), 100U + 1 + 3);
  EXPECT_GE(sent.size(), 1000U - 3);
}

TEST(RateCap, FollowsAChangeOfItsPart) {
  // From an hour a request to a hundred a second: the rest of the hour does not stay to be waited
  // for.
  RateCap cap = cap_of(100, 1, 360'000);
  EXPECT_EQ(flood(cap, kBegin, kBegin + 1s, 1ms).size(), 1U);
  cap.set(100, 1, 1, kBegin + 1s);
  EXPECT_GE(flood(cap, kBegin + 1s, kBegin + 2s, 1ms).size(), 99U);
  cap.set(100, 0, 1, kBegin + 2s);
  EXPECT_EQ(cap.opens(), kNever);
  cap.set(100, 1, 2, kBegin + 3s);
  EXPECT_LE(flood(cap, kBegin + 3s, kBegin + 4s, 1ms).size(), 52U);
}

}  // namespace
}  // namespace spate::agent
