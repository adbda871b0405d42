#include "agent/spool.h"

#include <gtest/gtest.h>

#include "tests/unit/agent/record_fixture.h"

namespace spate::agent {
namespace {

using namespace std::chrono_literals;

Record interval(int n, std::uint32_t phase = 0) {
  Record r = lawful(n * 1s, 1s, 5, 5, static_cast<std::uint64_t>(10 + n));
  r.phase = phase;
  return r;
}

std::vector<Record> take_all(Spool& spool) {
  std::vector<Record> out;
  while (auto r = spool.next()) out.push_back(*std::move(r));
  return out;
}

TEST(Spool, GivesBackWhatWasPutInWithContiguousNumbers) {
  Spool spool;
  for (int i = 0; i < 3; ++i) spool.add(interval(i));
  const auto out = take_all(spool);
  ASSERT_EQ(out.size(), 3U);
  for (int i = 0; i < 3; ++i) {
    Record expected = interval(i);
    expected.key.seq = static_cast<std::uint64_t>(i) + 1;
    EXPECT_EQ(out[static_cast<std::size_t>(i)], expected);
  }
  EXPECT_EQ(spool.last_seq(), 3U);
  EXPECT_EQ(spool.waiting(), 0U);
  EXPECT_EQ(spool.size(), 3U);
}

TEST(Spool, KeepsWhatIsNotAcknowledged) {
  Spool spool;
  for (int i = 0; i < 4; ++i) spool.add(interval(i));
  take_all(spool);
  EXPECT_TRUE(spool.acknowledge(3));
  EXPECT_EQ(spool.size(), 1U);
  EXPECT_TRUE(spool.acknowledge(2)) << "an older mark says nothing new";
  EXPECT_EQ(spool.size(), 1U);
  EXPECT_TRUE(spool.acknowledge(4));
  EXPECT_TRUE(spool.empty());
  EXPECT_EQ(spool.bytes(), 0U);
}

TEST(Spool, RefusesAMarkThatWasNeverGiven) {
  Spool spool;
  spool.add(interval(0));
  EXPECT_FALSE(spool.acknowledge(1)) << "not sent yet";
  take_all(spool);
  EXPECT_FALSE(spool.acknowledge(2));
  EXPECT_EQ(spool.size(), 1U);
}

TEST(Spool, LetsOnlyAWindowOut) {
  Spool spool({.bytes = 1 << 20, .window = 4});
  for (int i = 0; i < 10; ++i) spool.add(interval(i));
  EXPECT_EQ(take_all(spool).size(), 4U);
  EXPECT_EQ(spool.waiting(), 6U);
  spool.acknowledge(3);
  const auto more = take_all(spool);
  ASSERT_EQ(more.size(), 3U);
  EXPECT_EQ(more.front().key.seq, 5U);
}

TEST(Spool, SendsEverythingUnacknowledgedAgainAfterABreak) {
  Spool spool({.bytes = 1 << 20, .window = 4});
  for (int i = 0; i < 6; ++i) spool.add(interval(i));
  const auto first = take_all(spool);
  spool.acknowledge(1);
  spool.rewind();
  auto again = take_all(spool);
  ASSERT_EQ(again.size(), 4U);
  EXPECT_EQ(again[0], first[1]);
  EXPECT_EQ(again[1], first[2]);
  EXPECT_EQ(again[2], first[3]);
  EXPECT_EQ(again[3].key.seq, 5U);
}

TEST(Spool, TakesAMarkBeyondWhatWentOutAgain) {
  Spool spool;
  for (int i = 0; i < 5; ++i) spool.add(interval(i));
  take_all(spool);
  spool.rewind();
  EXPECT_TRUE(spool.acknowledge(3)) << "the controller had them all along";
  const auto rest = take_all(spool);
  ASSERT_EQ(rest.size(), 2U);
  EXPECT_EQ(rest[0].key.seq, 4U);
}

TEST(Spool, MergesInTimeWhenFullAndLosesNoCount) {
  constexpr int kIntervals = 200;
  Spool spool({.bytes = 20'000, .window = 64});
  Counters total;
  Histogram latency;
  for (int i = 0; i < kIntervals; ++i) {
    const Record r = interval(i);
    total.sent += r.counters.sent;
    total.bytes_sent += r.counters.bytes_sent;
    latency.merge(r.series[index(Outcome::ok)].latency);
    spool.add(r);
  }
  EXPECT_LE(spool.bytes(), 20'000U);
  EXPECT_LT(spool.size(), 64U);

  const auto out = take_all(spool);
  Histogram merged;
  std::uint64_t errors = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    EXPECT_TRUE(broken_laws(out[i]).empty()) << broken_laws(out[i])[0];
    if (i > 0) {
      EXPECT_TRUE(broken_chain(out[i - 1], out[i]).empty()) << broken_chain(out[i - 1], out[i])[0];
    }
    total.sent -= out[i].counters.sent;
    total.bytes_sent -= out[i].counters.bytes_sent;
    merged.merge(out[i].series[index(Outcome::ok)].latency);
    for (const ErrorClass& c : out[i].errors.classes()) errors += c.count;
  }
  EXPECT_EQ(total, Counters{});
  EXPECT_EQ(merged, latency);
  EXPECT_EQ(errors, static_cast<std::uint64_t>(kIntervals));
  EXPECT_EQ(out.front().start, 0s);
  EXPECT_EQ(out.back().start + out.back().length, kIntervals * 1s);
}

TEST(Spool, NeverMergesWhatWasSentOrAcrossAPhase) {
  Spool spool({.bytes = 1, .window = 2});
  spool.add(interval(0));
  spool.add(interval(1));  // merged with the one before: neither was sent
  const auto sent = take_all(spool);
  ASSERT_EQ(sent.size(), 1U);
  spool.add(interval(2));
  spool.add(interval(3, 1));
  spool.add(interval(4, 1));
  EXPECT_EQ(spool.size(), 3U) << "one frozen, one of phase 0, one merged of phase 1";
  spool.rewind();
  const auto again = take_all(spool);
  ASSERT_EQ(again.size(), 2U);
  EXPECT_EQ(again[0], sent[0]);
  spool.acknowledge(2);
  const auto last = take_all(spool);
  ASSERT_EQ(last.size(), 1U);
  EXPECT_EQ(last[0].phase, 1U);
  EXPECT_EQ(last[0].length, 2s);
}

}  // namespace
}  // namespace spate::agent
