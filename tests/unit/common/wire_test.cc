#include "proto/wire.h"

#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include "common/random.h"

namespace spate {
namespace {

Record balanced_record() {
  Record r;
  r.key = {"demo-20051224-013043-ab12", "agent-1", 77, 3};
  r.epoch = 2;
  r.phase = 1;
  r.start = std::chrono::seconds(2);
  r.length = std::chrono::seconds(1);
  r.counters.in_flight_begin = 4;
  r.counters.scheduled = 12;
  r.counters.sent = 10;
  r.counters.missed_paused = 2;
  r.counters.in_flight_end = 5;
  r.counters.bytes_sent = 1'000;
  r.counters.connection_protocol_errors = 1;
  for (int i = 0; i < 8; ++i) {
    r.series[index(Outcome::ok)].latency.record(1'000'000 + i);
    r.series[index(Outcome::ok)].service_time.record(900'000 + i);
  }
  r.series[index(Outcome::timed_out)].latency.record(10'000'000'000);
  r.series[index(Outcome::timed_out)].service_time.record(9'000'000'000);
  r.send_lag.record(50, 10);
  r.errors.add(Outcome::timed_out, 0, "no answer in 10s");
  r.errors.add(Outcome::reset, 111, "connection refused", 3);
  r.counters.held = 9;
  r.counters.held_ns = 9'000'000;
  r.gauges = {300, 299, 12'345'678, 900'000'000, 500.5};
  return r;
}

TEST(RecordLaws, HoldForABalancedRecord) {
  EXPECT_TRUE(broken_laws(balanced_record()).empty());
  EXPECT_TRUE(broken_laws(Record()).empty());
}

TEST(RecordLaws, NameTheNumbersThatDoNotAddUp) {
  Record r = balanced_record();
  r.counters.scheduled = 13;
  ASSERT_EQ(broken_laws(r).size(), 1u);
  EXPECT_EQ(broken_laws(r)[0], "scheduled 13 is not sent 10 + missed 2");

  r = balanced_record();
  r.counters.in_flight_end = 6;
  ASSERT_EQ(broken_laws(r).size(), 1u);
  EXPECT_EQ(broken_laws(r)[0],
            "in flight at the begin 4 + sent 10 is not finished 9 + in flight at the end 6");

  r = balanced_record();
  r.series[index(Outcome::ok)].service_time.record(1);
  EXPECT_EQ(broken_laws(r), std::vector<std::string>{"ok has 8 latencies but 9 service times"});

  r = balanced_record();
  r.send_lag.record(1);
  EXPECT_EQ(broken_laws(r),
            std::vector<std::string>{"send lag has 11 entries for 10 sent requests"});

  r = balanced_record();
  r.length = Duration(-1);
  EXPECT_EQ(broken_laws(r), std::vector<std::string>{"length -1 ns is negative"});
}

TEST(RecordLaws, DoNotBalanceByWrappingRound) {
  Record r;
  r.counters.sent = ~std::uint64_t{0};
  r.counters.missed_paused = 2;
  r.counters.scheduled = 1;
  EXPECT_FALSE(broken_laws(r).empty());
}

TEST(RecordChain, FollowsWithoutGap) {
  const Record first = balanced_record();
  Record next;
  next.key = first.key;
  next.key.seq = 4;
  next.start = std::chrono::seconds(3);
  next.counters.in_flight_begin = 5;
  EXPECT_TRUE(broken_chain(first, next).empty());
  next.key.seq = 5;
  next.start += Duration(1);
  next.counters.in_flight_begin = 4;
  EXPECT_EQ(broken_chain(first, next),
            (std::vector<std::string>{
                "seq 5 follows seq 3",
                "in flight at the begin of seq 5 is 4, at the end of seq 3 it was 5",
                "seq 5 starts at 3000000001 ns, seq 3 ended at 3000000000 ns"}));
  next.key.incarnation = 78;
  EXPECT_EQ(broken_chain(first, next).size(), 1u);
}

TEST(ErrorTally, IsBoundedAndLosesNoCount) {
  ErrorTally tally;
  for (std::uint32_t code = 0; code < 1'000; ++code) {
    tally.add(code % 2 == 0 ? Outcome::reset : Outcome::application_error, code,
              "text " + std::to_string(code), 2);
  }
  EXPECT_LE(tally.classes().size(), kMaxErrorClasses + kOutcomeCount);
  std::uint64_t total = 0;
  for (const ErrorClass& c : tally.classes()) total += c.count;
  EXPECT_EQ(total, 2'000u);
  EXPECT_EQ(tally.classes().back().text, "other");

  ErrorTally merged;
  merged.merge(tally);
  EXPECT_EQ(merged, tally);
  merged.merge(tally);
  total = 0;
  for (const ErrorClass& c : merged.classes()) total += c.count;
  EXPECT_EQ(total, 4'000u);
  EXPECT_EQ(merged.classes().size(), tally.classes().size());
}

TEST(ErrorTally, GathersEqualClassesAndCutsTexts) {
  ErrorTally tally;
  tally.add(Outcome::reset, 104, "reset");
  tally.add(Outcome::reset, 104, "reset");
  tally.add(Outcome::reset, 104, std::string(500, 'x'));
  ASSERT_EQ(tally.classes().size(), 2u);
  EXPECT_EQ(tally.classes()[0].count, 2u);
  EXPECT_EQ(tally.classes()[1].text.size(), kMaxErrorText);
}

TEST(Wire, BringsARecordBackTheSame) {
  const Record r = balanced_record();
  const auto copy = wire::from_bytes(wire::to_bytes(r));
  ASSERT_TRUE(copy) << copy.error().message;
  EXPECT_EQ(*copy, r);

  Record full = balanced_record();
  for (std::uint32_t i = 0; i < 100; ++i) full.errors.add(kOutcomes[i % 8], i, std::to_string(i));
  const auto full_copy = wire::from_bytes(wire::to_bytes(full));
  ASSERT_TRUE(full_copy) << full_copy.error().message;
  EXPECT_EQ(*full_copy, full);
}

TEST(Wire, RefusesWhatNoAgentWrites) {
  EXPECT_FALSE(wire::from_bytes("").has_value());
  EXPECT_FALSE(wire::from_bytes("nonsense").has_value());
  Record r = balanced_record();
  r.key.seq = 0;
  EXPECT_FALSE(wire::from_bytes(wire::to_bytes(r)).has_value());
  r = balanced_record();
  r.key.run.clear();
  EXPECT_FALSE(wire::from_bytes(wire::to_bytes(r)).has_value());
  r = balanced_record();
  r.start = Duration::max();
  EXPECT_FALSE(wire::from_bytes(wire::to_bytes(r)).has_value());
}

TEST(Wire, SurvivesMutatedBytes) {
  const google::protobuf::LogSilencer quiet;  // it logs every name that is not UTF-8
  Random random(99);
  const std::string good = wire::to_bytes(balanced_record());
  for (int round = 0; round < 5'000; ++round) {
    std::string bytes = good;
    for (std::int64_t i = random.between(1, 3); i > 0; --i) {
      bytes[static_cast<std::size_t>(random.between(
          0, static_cast<std::int64_t>(bytes.size()) - 1))] = static_cast<char>(random());
    }
    const auto r = wire::from_bytes(bytes);
    if (r) broken_laws(*r);
  }
}

}  // namespace
}  // namespace spate
