#include "controller/leases.h"

#include <gtest/gtest.h>
#include <numeric>
#include <random>

using namespace spate;
using namespace spate::controller;
using namespace std::chrono_literals;

TEST(LeasesTest, AnAgentWithoutALeaseHoldsNothing) {
  Leases leases(2);
  leases.hold(0, 100);
  EXPECT_TRUE(leases.ended(0, Instant{}));
  EXPECT_EQ(leases.sum(Instant{}), 0);
}

TEST(LeasesTest, ALeaseEndsAMarginAfterTheAgentsOwnDoes) {
  Leases leases(1);
  leases.hold(0, 100);
  leases.renew(0, 10s, Instant{});
  EXPECT_EQ(leases.held(0, Instant{} + 10s), 100);
  EXPECT_FALSE(leases.ended(0, Instant{} + 10s + kLeaseMargin - 1ns));
  EXPECT_TRUE(leases.ended(0, Instant{} + 10s + kLeaseMargin));
  EXPECT_EQ(leases.sum(Instant{} + 10s + kLeaseMargin), 0);
}

TEST(LeasesTest, AShorterLeaseDoesNotEndALongerOne) {
  Leases leases(1);
  leases.renew(0, 1min, Instant{});
  leases.renew(0, 10s, Instant{} + 1s);
  EXPECT_EQ(leases.until(0), Instant{} + 1min + kLeaseMargin);
}

TEST(LeasesTest, AnAgentMayDoMoreOnlyWhenTheOthersLeaveRoom) {
  Leases leases(2);
  leases.hold(0, 500);
  leases.hold(1, 500);
  leases.renew(0, 10s, Instant{});
  leases.renew(1, 10s, Instant{} + 5s);
  EXPECT_TRUE(leases.may_hold(1, 500, 1000, Instant{} + 5s));
  EXPECT_FALSE(leases.may_hold(1, 501, 1000, Instant{} + 5s));
  EXPECT_TRUE(leases.may_hold(1, 1000, 1000, Instant{} + 12s));  // the other one's has ended
  EXPECT_FALSE(leases.may_hold(1, 1001, 1000, Instant{} + 12s));
  leases.hold(0, 0);
  EXPECT_TRUE(leases.may_hold(1, 1000, 1000, Instant{} + 5s));
}

TEST(LeasesTest, WhoHasFinishedHoldsNothing) {
  Leases leases(1);
  leases.hold(0, 5);
  leases.renew(0, 10s, Instant{});
  leases.release(0);
  EXPECT_TRUE(leases.ended(0, Instant{}));
  EXPECT_EQ(leases.sum(Instant{}), 0);
}

// Agents that hear late or never, with clocks of their own speed, against the controller's account:
// what they really do never exceeds the limit.
TEST(LeasesTest, WhatAgentsReallyDoStaysWithinTheLimitAtEveryStep) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](std::size_t n) { return random() % n; };
  constexpr std::size_t kAgents = 5;
  constexpr std::uint64_t kLimit = 1000;
  constexpr Duration kLength = 10s;

  struct Agent {
    std::uint64_t doing = 0, told = 0;
    double speed = 1;       // of its clock
    Instant lease_until{};  // real time at which its own clock says so
  };
  for (int history = 0; history < 200; ++history) {
    Leases leases(kAgents);
    std::vector<Agent> agents(kAgents);
    Instant now{};
    for (std::size_t i = 0; i < kAgents; ++i) {
      agents[i] = {200, 200, 1.0 + (static_cast<double>(below(200)) - 100) / 1e6, now + kLength};
      leases.hold(i, 200);
      leases.renew(i, kLength, now);
    }
    for (int step = 0; step < 300; ++step) {
      now += std::chrono::milliseconds(below(500));
      const std::size_t i = below(kAgents);
      Agent& agent = agents[i];
      switch (below(3)) {
        case 0: {  // a heartbeat, answered after up to 300 ms; the answer may be lost
          const Instant sent = now;
          now += std::chrono::milliseconds(below(300));
          const std::uint64_t most = std::max(agent.doing, agent.told);
          leases.hold(i, most);
          if (leases.ended(i, now) && !leases.may_hold(i, most, kLimit, now)) break;
          leases.renew(i, kLength, now);
          if (below(4) != 0) {
            agent.lease_until = sent + std::chrono::duration_cast<Duration>(kLength / agent.speed);
          }
          break;
        }
        case 1: {  // told to do more or less
          const std::uint64_t wanted = below(600);
          const bool is_more = wanted > std::max(agent.doing, agent.told);
          if (is_more && !leases.may_hold(i, wanted, kLimit, now)) break;
          agent.told = wanted;
          leases.hold(i, std::max(agent.doing, agent.told));
          break;
        }
        default:  // it does as told, and its word of that arrives
          agent.doing = agent.told;
          leases.hold(i, agent.doing);
      }
      std::uint64_t real = 0;
      for (const Agent& a : agents) real += now < a.lease_until ? a.doing : 0;
      ASSERT_TRUE(real <= kLimit);
      ASSERT_TRUE(leases.sum(now) <= kLimit);
    }
  }
}
