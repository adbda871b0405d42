#include "common/record_sum.h"

#include <gtest/gtest.h>

namespace spate {
namespace {

using namespace std::chrono_literals;

Record interval(std::uint64_t seq, Duration start, std::uint64_t in_flight_begin,
                std::uint64_t in_flight_end) {
  Record r;
  r.key = {"run", "agent", 1, seq};
  r.start = start;
  r.length = 1s;
  OutcomeSeries& ok = r.series[index(Outcome::ok)];
  for (std::uint64_t i = 0; i < 10 + seq; ++i) {
    ok.latency.record(static_cast<std::int64_t>(1000 * seq + i));
    ok.service_time.record(static_cast<std::int64_t>(900 * seq + i));
  }
  r.counters.in_flight_begin = in_flight_begin;
  r.counters.in_flight_end = in_flight_end;
  r.counters.sent = 10 + seq + in_flight_end - in_flight_begin;
  r.counters.scheduled = r.counters.sent;
  r.counters.held = seq;
  r.counters.held_ns = 100 * seq;
  r.send_lag.record(10, r.counters.sent);
  r.gauges = {10, 9, 5000 - seq, 100};
  return r;
}

TEST(RecordSum, TwoInTimeAreOneThatKeepsEveryLaw) {
  const Record a = interval(4, 3s, 5, 7);
  const Record b = interval(5, 4s, 7, 2);
  const Record both = merge_in_time(a, b);
  EXPECT_EQ(both.first(), 4U);
  EXPECT_EQ(both.key.seq, 5U);
  EXPECT_EQ(both.start, 3s);
  EXPECT_EQ(both.length, 2s);
  EXPECT_TRUE(broken_laws(both).empty());
  EXPECT_EQ(both.counters.held, 9U);
  EXPECT_EQ(both.counters.held_ns, 900U);
  EXPECT_EQ(both.counters.in_flight_begin, 5U);
  EXPECT_EQ(both.counters.in_flight_end, 2U);
  EXPECT_EQ(both.counters.sent, a.counters.sent + b.counters.sent);
  EXPECT_EQ(both.gauges, (Gauges{10, 9, 4996, 200}));

  const Record c = interval(6, 5s, 2, 2);
  EXPECT_TRUE(broken_chain(both, c).empty());
  EXPECT_EQ(merge_in_time(both, c), merge_in_time(a, merge_in_time(b, c)));
}

TEST(RecordSum, KeepsApartWhatMustNotMix) {
  const Record a = interval(1, 0s, 0, 0);
  const auto with = [](auto change) {
    Record r = interval(2, 1s, 0, 0);
    change(r);
    return r;
  };
  EXPECT_TRUE(mergeable_in_time(a, with([](Record&) {})));
  EXPECT_FALSE(mergeable_in_time(a, with([](Record& r) { r.phase = 1; })));
  EXPECT_FALSE(mergeable_in_time(a, with([](Record& r) { r.epoch = 2; })));
  EXPECT_FALSE(mergeable_in_time(a, with([](Record& r) { r.drain = true; })));
  EXPECT_FALSE(mergeable_in_time(a, with([](Record& r) { r.guard = true; })));
}

}  // namespace
}  // namespace spate
