#include "controller/progress.h"

#include <gtest/gtest.h>

namespace spate::controller {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Record record(const std::string& agent, Duration start, Duration length, int ok,
              bool drain = false) {
  Record r;
  r.key = {"run", agent, 1, 1};
  r.start = start;
  r.length = length;
  r.drain = drain;
  for (int i = 0; i < ok; ++i) r.series[index(Outcome::ok)].latency.record(1'000'000);
  r.gauges.connections_established = 5;
  return r;
}

TEST(Progress, GivesALineWhenEveryAgentHasReported) {
  Progress progress(seconds(1), seconds(10));
  progress.add(record("a", seconds(0), seconds(1), 30));
  EXPECT_TRUE(progress.take_due(seconds(1), 2, false).empty());
  progress.add(record("b", seconds(0), seconds(1), 10));
  const auto due = progress.take_due(seconds(1), 2, false);
  ASSERT_EQ(due.size(), 1U);
  EXPECT_EQ(due[0].line.ok, 40U);
  EXPECT_DOUBLE_EQ(due[0].line.rate_per_s, 40);
  EXPECT_EQ(due[0].line.agents_reporting, 2U);
  EXPECT_EQ(due[0].line.connections_established, 10U);
  EXPECT_EQ(due[0].line.elapsed, seconds(1));
}

TEST(Progress, DoesNotWaitLongerThanOneAndAHalfIntervals) {
  Progress progress(seconds(1), seconds(10));
  progress.add(record("a", seconds(0), seconds(1), 30));
  EXPECT_TRUE(progress.take_due(milliseconds(2400), 2, false).empty());
  EXPECT_EQ(progress.take_due(milliseconds(2500), 2, false).size(), 1U);
  // What comes later counts in the total, not in another line of the same interval.
  progress.add(record("b", seconds(0), seconds(1), 10));
  progress.add(record("a", seconds(1), seconds(1), 1));
  const auto due = progress.take_due(seconds(9), 2, false);
  ASSERT_EQ(due.size(), 1U);
  EXPECT_EQ(due[0].line.requests_total, 41U);
}

TEST(Progress, WaitsForAllPartsOfAnIntervalThatWasCutAtABorder) {
  Progress progress(seconds(1), seconds(10));
  progress.add(record("a", seconds(0), milliseconds(500), 3));
  EXPECT_TRUE(progress.take_due(seconds(1), 1, false).empty());
  progress.add(record("a", milliseconds(500), milliseconds(500), 4));
  const auto due = progress.take_due(seconds(1), 1, false);
  ASSERT_EQ(due.size(), 1U);
  EXPECT_EQ(due[0].line.ok, 7U);
  EXPECT_EQ(due[0].line.connections_established, 5U);
}

TEST(Progress, HasNoLineForTheLastMillisecondsOfADrain) {
  Progress progress(seconds(1), seconds(1));
  progress.add(record("a", seconds(1), milliseconds(3), 50, true));
  EXPECT_TRUE(progress.take_due(seconds(2), 1, true).empty());
}

TEST(Progress, KeepsABoundedNumberOfIntervals) {
  Progress progress(seconds(1), seconds(1000));
  std::size_t lines = 0;
  for (int i = 0; i < 500; ++i) {
    progress.add(record("a", seconds(i), seconds(1), 1));
    lines += progress.take_due(Duration{}, 2, false).size();
  }
  EXPECT_EQ(lines, 500U - Progress::kMaxOpen);
}

}  // namespace
}  // namespace spate::controller
