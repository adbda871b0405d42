#include "agent/interval_merger.h"

#include <gtest/gtest.h>

#include "tests/unit/agent/record_fixture.h"

namespace spate::agent {
namespace {

using namespace std::chrono_literals;

void expect_lawful(std::vector<Record> rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].key.seq = i + 1;
    EXPECT_TRUE(broken_laws(rows[i]).empty()) << broken_laws(rows[i])[0];
    if (i > 0) {
      EXPECT_TRUE(broken_chain(rows[i - 1], rows[i]).empty())
          << broken_chain(rows[i - 1], rows[i])[0];
    }
  }
}

Record drained(Record r) {
  r.drain = true;
  return r;
}

std::vector<Record> take(IntervalMerger& merger) {
  std::vector<Record> records;
  for (auto& row : merger.take()) records.push_back(std::move(row.record));
  return records;
}

TEST(IntervalMerger, WaitsForEveryWorker) {
  IntervalMerger merger(3);
  merger.add(0, lawful(0s, 1s, 0, 2, 10));
  merger.add(2, lawful(0s, 1s, 0, 3, 20));
  EXPECT_TRUE(take(merger).empty());
  merger.add(1, lawful(0s, 1s, 0, 0, 5));
  const auto rows = take(merger);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].count(Outcome::ok), 35U);
  EXPECT_EQ(rows[0].count(Outcome::timed_out), 3U);
  EXPECT_EQ(rows[0].counters.in_flight_end, 5U);
  EXPECT_EQ(rows[0].gauges.connections_requested, 30U);
  EXPECT_EQ(rows[0].gauges.connections_established, 27U);
  EXPECT_EQ(rows[0].length, 1s);
  expect_lawful(rows);
}

TEST(IntervalMerger, KeepsTheOrderWhenOneWorkerIsAhead) {
  IntervalMerger merger(2);
  std::vector<Record> rows;
  const auto collect = [&] {
    for (Record& r : take(merger)) rows.push_back(std::move(r));
  };
  for (int i = 0; i < 3; ++i) merger.add(0, lawful(i * 1s, 1s, i == 0 ? 0 : 4, 4, 10));
  collect();
  EXPECT_TRUE(rows.empty());
  for (int i = 0; i < 3; ++i) {
    merger.add(1, lawful(i * 1s, 1s, i == 0 ? 0 : 2, 2, 7));
    collect();
  }
  merger.add(1, drained(lawful(3s, 30ms, 2, 0, 1)));
  merger.add(0, drained(lawful(3s, 80ms, 4, 0, 3)));
  merger.drained(0);
  merger.drained(1);
  EXPECT_FALSE(merger.all_drained());
  collect();
  EXPECT_TRUE(merger.all_drained());
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_TRUE(rows[3].drain);
  EXPECT_EQ(rows[3].length, 80ms) << "the longest drain";
  EXPECT_EQ(rows[3].counters.in_flight_begin, 6U);
  EXPECT_EQ(rows[3].counters.in_flight_end, 0U);
  expect_lawful(rows);
}

TEST(IntervalMerger, HoldsTheLawsWhenAStopFindsOneWorkerPastTheBorder) {
  IntervalMerger merger(2);
  // Worker 0 had closed [0, 1 s) and begun the next; the stop cut worker 1 at 0.9 s.
  merger.add(0, lawful(0s, 1s, 0, 4, 10));
  merger.add(0, lawful(1s, 0s, 4, 4, 0));
  merger.add(0, drained(lawful(1s, 50ms, 4, 0, 3)));
  merger.drained(0);
  merger.add(1, lawful(0s, 900ms, 0, 2, 9));
  merger.add(1, drained(lawful(900ms, 20ms, 2, 0, 1)));
  merger.drained(1);
  const auto rows = take(merger);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1].counters.in_flight_begin, 6U) << "worker 1 counts with what it has in flight";
  EXPECT_TRUE(merger.all_drained());
  expect_lawful(rows);
}

TEST(IntervalMerger, SaysHowManyOfEachWorkersRecordsAreTaken) {
  IntervalMerger merger(2);
  for (int i = 0; i < 3; ++i) merger.add(0, lawful(i * 1s, 1s, i == 0 ? 0 : 4, 4, 10));
  for (int i = 0; i < 2; ++i) merger.add(1, lawful(i * 1s, 1s, i == 0 ? 0 : 4, 4, 10));
  const auto rows = merger.take();
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].taken, (std::vector<std::uint64_t>{1, 1}));
  EXPECT_EQ(rows[1].taken, (std::vector<std::uint64_t>{2, 2}));
  merger.drained(1);
  EXPECT_EQ(merger.take().at(0).taken, (std::vector<std::uint64_t>{3, 2}));
}

TEST(IntervalMerger, NeverMixesPhases) {
  IntervalMerger merger(2);
  Record late = lawful(500ms, 500ms, 4, 4, 5);
  late.phase = 1;
  late.epoch = 2;
  merger.add(0, lawful(0s, 500ms, 0, 4, 10));
  merger.add(0, late);
  merger.add(1, lawful(0s, 250ms, 0, 1, 4));
  merger.add(1, drained(lawful(250ms, 10ms, 1, 0, 0)));
  merger.drained(1);
  merger.add(0, drained(lawful(1s, 10ms, 4, 0, 3)));
  merger.drained(0);
  const auto rows = take(merger);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].phase, 0U);
  EXPECT_EQ(rows[1].phase, 1U);
  EXPECT_EQ(rows[1].epoch, 2U);
  expect_lawful(rows);
}

Record of_epoch(Record r, std::uint32_t epoch) {
  r.epoch = epoch;
  return r;
}

TEST(IntervalMerger, WaitsForAWorkerFromWhenItJoins) {
  IntervalMerger merger(1);
  merger.join(1, 1500ms);
  merger.add(0, lawful(0s, 1s, 0, 2, 10));
  merger.add(0, lawful(1s, 500ms, 2, 2, 5));
  std::vector<Record> rows = take(merger);
  ASSERT_EQ(rows.size(), 2U) << "it has no part in these";
  merger.add(0, of_epoch(lawful(1500ms, 500ms, 2, 2, 5), 2));
  EXPECT_TRUE(take(merger).empty());
  merger.add(1, of_epoch(lawful(1500ms, 500ms, 0, 3, 7), 2));
  for (Record& r : take(merger)) rows.push_back(std::move(r));
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[2].epoch, 2U);
  EXPECT_EQ(rows[2].counters.in_flight_end, 5U);
  EXPECT_EQ(rows[2].gauges.connections_requested, 20U);
  expect_lawful(rows);
}

TEST(IntervalMerger, TakesAnEarlierJoinAndAWorkerThatEndsBeforeIt) {
  IntervalMerger merger(1);
  merger.join(1, 5s);
  merger.join(1, 1s);
  merger.join(2, 5s);
  merger.add(0, lawful(0s, 1s, 0, 2, 10));
  merger.add(0, lawful(1s, 1s, 2, 2, 10));
  EXPECT_EQ(take(merger).size(), 1U);
  merger.drained(1);
  EXPECT_EQ(take(merger).size(), 1U);
  merger.add(0, drained(lawful(2s, 10ms, 2, 0, 1)));
  merger.drained(0);
  EXPECT_EQ(take(merger).size(), 1U);
  EXPECT_FALSE(merger.all_drained());
  merger.drained(2);
  EXPECT_TRUE(merger.all_drained());
}

TEST(IntervalMerger, HoldsTheLawsWhenAChangeFindsOneWorkerPastTheBorder) {
  IntervalMerger merger(2);
  // The change was to be at 0.9 s; worker 0 had closed [0, 1 s) before it heard of it.
  merger.add(0, lawful(0s, 1s, 0, 4, 10));
  merger.add(0, lawful(1s, 0s, 4, 4, 0));
  merger.add(0, of_epoch(lawful(1s, 1s, 4, 4, 9), 2));
  merger.add(1, lawful(0s, 900ms, 0, 2, 9));
  merger.add(1, of_epoch(lawful(900ms, 100ms, 2, 2, 3), 2));
  merger.add(1, of_epoch(lawful(1s, 1s, 2, 2, 3), 2));
  const auto rows = take(merger);
  std::uint64_t ok = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    ok += rows[i].count(Outcome::ok);
    if (i > 0) {
      EXPECT_GE(rows[i].epoch, rows[i - 1].epoch);
    }
  }
  EXPECT_EQ(ok, 34U);
  expect_lawful(rows);
}

// It was short of memory, and let two borders pass.
TEST(IntervalMerger, TakesAllThatEndsWithinALongerIntervalOfAnother) {
  IntervalMerger merger(2);
  std::vector<Record> rows;
  const auto collect = [&] {
    for (Record& r : take(merger)) rows.push_back(std::move(r));
  };
  merger.add(1, lawful(0s, 3s, 0, 2, 30));
  merger.add(0, lawful(0s, 1s, 0, 4, 10));
  merger.add(0, lawful(1s, 1s, 4, 4, 11));
  collect();
  EXPECT_TRUE(rows.empty()) << "worker 0 has more to say about it";
  merger.add(0, lawful(2s, 1s, 4, 3, 12));
  merger.add(0, lawful(3s, 1s, 3, 3, 13));
  collect();
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].count(Outcome::ok), 63U);
  EXPECT_EQ(rows[0].length, 3s);
  EXPECT_EQ(rows[0].counters.in_flight_end, 5U);
  merger.add(1, lawful(3s, 1s, 2, 2, 9));
  collect();
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1].count(Outcome::ok), 22U);
  EXPECT_EQ(rows[1].length, 1s) << "side by side again";
  expect_lawful(rows);
}

// Nothing more of it can come.
TEST(IntervalMerger, DoesNotWaitForAWorkerThatIsPastALongerInterval) {
  IntervalMerger merger(2);
  merger.add(0, lawful(0s, 1s, 0, 4, 10));
  merger.add(0, of_epoch(lawful(1s, 1s, 4, 4, 11), 2));
  merger.add(1, lawful(0s, 2s, 0, 2, 30));
  EXPECT_EQ(take(merger).size(), 1U);
  merger.drained(0);
  merger.add(1, of_epoch(lawful(2s, 5s, 2, 2, 30), 2));
  EXPECT_EQ(take(merger).size(), 1U);
}

TEST(IntervalMerger, KeepsGuardBandsApartInTheirOrder) {
  IntervalMerger merger(2);
  const auto guard = [](Record r, bool is_guard) {
    r.guard = is_guard;
    return r;
  };
  for (std::size_t w = 0; w < 2; ++w) {
    merger.add(w, guard(lawful(0s, 1s, 0, 2, 5), false));
    merger.add(w, guard(lawful(1s, 1s, 2, 2, 6), true));
    merger.add(w, guard(lawful(2s, 1s, 2, 2, 7), false));
  }
  const auto rows = take(merger);
  ASSERT_EQ(rows.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(rows[i].guard, i == 1);
    EXPECT_EQ(rows[i].count(Outcome::ok), 10U + 2 * i);
  }
  expect_lawful(rows);
}

}  // namespace
}  // namespace spate::agent
