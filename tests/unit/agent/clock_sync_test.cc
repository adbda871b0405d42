#include "agent/clock_sync.h"

#include <gtest/gtest.h>

#include "common/random.h"

namespace spate::agent {
namespace {

using namespace std::chrono_literals;

constexpr Duration kOffset = -3h;  // controller booted three hours later

HeartbeatReply exchange(Instant sent, Duration out, Duration inside, Duration back,
                        Duration offset = kOffset) {
  const auto at_controller = [offset](Instant t) {
    return ControllerInstant(t.time_since_epoch() + offset);
  };
  return {sent, at_controller(sent + out), at_controller(sent + out + inside),
          sent + out + inside + back};
}

Duration error(const ClockSync::Estimate& e) { return std::chrono::abs(e.offset - kOffset); }

TEST(ClockSync, KnowsNothingBeforeTheFirstExchange) {
  ClockSync clock;
  EXPECT_FALSE(clock.estimate(from_ns(0)));
  EXPECT_FALSE(clock.to_agent(ControllerInstant{}, from_ns(0)));
  EXPECT_FALSE(clock.to_controller(from_ns(0), from_ns(0)));
}

TEST(ClockSync, IsExactWhenBothWaysAreEquallyLong) {
  ClockSync clock;
  const Instant t = from_ns(10'000'000'000'000'000);
  ASSERT_TRUE(clock.add(exchange(t, 200us, 50us, 200us)));
  const auto e = clock.estimate(t + 450us);
  ASSERT_TRUE(e);
  EXPECT_EQ(e->offset, kOffset);
  EXPECT_EQ(e->bound, 200us);
  EXPECT_EQ(clock.to_agent(*clock.to_controller(t, t), t), t);
}

TEST(ClockSync, StaysWithinItsBoundHoweverAsymmetricTheWayIs) {
  Random random(7);
  for (int round = 0; round < 500; ++round) {
    ClockSync clock;
    Instant t = from_ns(50'000'000'000'000);
    for (int i = 0; i < 10; ++i) {
      ASSERT_TRUE(clock.add(exchange(t, Duration(random.between(0, 5'000'000)), 10us,
                                     Duration(random.between(0, 5'000'000)))));
      t += 1s;
      const auto e = clock.estimate(t);
      ASSERT_TRUE(e);
      EXPECT_LE(error(*e), e->bound);
    }
  }
}

TEST(ClockSync, PrefersTheShortestRoundTrip) {
  ClockSync clock;
  const Instant t = from_ns(1'000'000'000);
  clock.add(exchange(t, 1ms, 0us, 9ms));
  clock.add(exchange(t + 10ms, 100us, 0us, 100us));
  clock.add(exchange(t + 20ms, 9ms, 0us, 1ms));
  EXPECT_EQ(clock.estimate(t + 30ms)->offset, kOffset);
  EXPECT_LT(clock.estimate(t + 30ms)->bound, 110us);
}

TEST(ClockSync, LetsAnOldExchangeGiveWayToAFreshOne) {
  ClockSync clock;
  const Instant t = from_ns(1'000'000'000);
  clock.add(exchange(t, 10us, 0us, 10us));
  // 100 ppm over 10 s is 1 ms: by then a round trip of 600 us says more.
  clock.add(exchange(t + 10s, 300us, 0us, 300us, kOffset + 500us));
  EXPECT_EQ(clock.estimate(t + 10s + 600us)->offset, kOffset + 500us);
}

TEST(ClockSync, WidensTheBoundWithAge) {
  ClockSync clock;
  const Instant t = from_ns(1'000'000'000);
  clock.add(exchange(t, 10us, 0us, 10us));
  EXPECT_GE(clock.estimate(t + 100s)->bound, 10ms);
}

TEST(ClockSync, IgnoresStampsThatContradictEachOther) {
  ClockSync clock;
  const Instant t = from_ns(1'000'000'000);
  HeartbeatReply r = exchange(t, 10us, 0us, 10us);
  r.answered = t - 1us;
  EXPECT_FALSE(clock.add(r));
  r = exchange(t, 10us, 0us, 10us);
  r.replied = r.received - 1us;
  EXPECT_FALSE(clock.add(r));
  r = exchange(t, 10us, 0us, 10us);
  r.replied = r.received + 1s;
  EXPECT_FALSE(clock.add(r));
  EXPECT_FALSE(clock.estimate(t));
}

TEST(ClockSync, KnowsNothingOfANewControllerUntilTheFirstExchange) {
  ClockSync clock;
  const Instant t = from_ns(1'000'000'000);
  clock.add(exchange(t, 10us, 0us, 10us));
  clock.restart();
  EXPECT_FALSE(clock.estimate(t));
  clock.add(exchange(t + 1s, 5ms, 0us, 5ms, 42s));
  EXPECT_EQ(clock.estimate(t + 2s)->offset, 42s);
}

}  // namespace
}  // namespace spate::agent
