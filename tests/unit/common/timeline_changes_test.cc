#include <gtest/gtest.h>
#include <algorithm>
#include <random>

#include "common/timeline.h"

using namespace spate;
using namespace std::chrono_literals;

namespace {

// Three phases of 10 s on four agents: 400, 800, 800 connections.
Timeline three_phases() {
  Plan plan;
  plan.agents = 4;
  plan.target.url = "grpc://127.0.0.1:7000";
  for (const std::uint64_t connections : {400, 800, 800}) {
    Phase phase;
    phase.name = "p" + std::to_string(plan.phases.size());
    phase.length = 10s;
    phase.load.connections = connections;
    plan.phases.push_back(phase);
  }
  return *planned_timeline(plan, 0);
}

Change set_connections(std::uint32_t epoch, Duration at, std::uint64_t connections,
                       std::vector<std::uint32_t> agents = {}) {
  Change change;
  change.epoch = epoch;
  change.at = at;
  ParameterPatch patch;
  patch.connections = connections;
  change.parts.push_back({std::move(agents), patch});
  return change;
}

std::vector<std::uint64_t> connections_at(const Timeline& timeline, Duration at) {
  std::vector<std::uint64_t> all;
  for (const AgentShare& share : timeline.epoch(timeline.epoch_at(at)).shares)
    all.push_back(share.parameters.load.connections);
  return all;
}

void is_whole(const Timeline& timeline, Duration end) {
  Duration offset{};
  std::uint32_t epoch = 0;
  for (const Segment& segment : timeline.segments) {
    EXPECT_EQ(segment.offset, offset);
    ASSERT_TRUE(segment.length > Duration{});
    ASSERT_TRUE(segment.epoch >= epoch);
    EXPECT_EQ(timeline.epoch(segment.epoch).number, segment.epoch);
    offset += segment.length;
    epoch = segment.epoch;
  }
  EXPECT_EQ(offset, end);
  EXPECT_EQ(timeline.last_epoch(), epoch);
}

}  // namespace

TEST(ChangedTimelineTest, WithoutChangesATimelineIsThePlannedOne) {
  EXPECT_EQ(changed_timeline(three_phases(), {}), three_phases());
}

TEST(ChangedTimelineTest, AChangeSplitsItsSegmentHoldsOverLaterPhasesAndTakesNewNumbers) {
  const std::vector<Change> changes{set_connections(3, 5s, 100)};
  const Timeline timeline = changed_timeline(three_phases(), changes);
  is_whole(timeline, 30s);
  EXPECT_EQ(connections_at(timeline, 4s), (std::vector<std::uint64_t>{100, 100, 100, 100}));
  EXPECT_EQ(timeline.epoch_at(4s), 1);
  EXPECT_EQ(timeline.epoch_at(5s), 3);
  EXPECT_EQ(connections_at(timeline, 5s), (std::vector<std::uint64_t>{25, 25, 25, 25}));
  EXPECT_EQ(connections_at(timeline, 29s), (std::vector<std::uint64_t>{25, 25, 25, 25}));
  EXPECT_EQ(timeline.segment_at(12s).phase, 1);
}

TEST(ChangedTimelineTest, AChangeForSomeAgentsDividesItsTotalAmongThem) {
  const std::vector<Change> changes{set_connections(3, 15s, 7, {1, 2})};
  const Timeline timeline = changed_timeline(three_phases(), changes);
  EXPECT_EQ(connections_at(timeline, 16s), (std::vector<std::uint64_t>{200, 4, 3, 200}));
}

TEST(ChangedTimelineTest, AnOrderForLaterStaysGoodAfterOneForNow) {
  const std::vector<Change> changes{set_connections(3, 20s, 4000), set_connections(5, 12s, 40)};
  const Timeline timeline = changed_timeline(three_phases(), changes);
  is_whole(timeline, 30s);
  EXPECT_EQ(timeline.epoch_at(11s), 2);
  EXPECT_EQ(timeline.epoch_at(12s), 5);
  EXPECT_EQ(connections_at(timeline, 13s), (std::vector<std::uint64_t>{10, 10, 10, 10}));
  EXPECT_EQ(timeline.epoch_at(20s), 6);
  EXPECT_EQ(connections_at(timeline, 20s), (std::vector<std::uint64_t>{1000, 1000, 1000, 1000}));
}

TEST(ChangedTimelineTest, AbsentAgentsConnectionsAreTheOthersAtEveryLoadAndComeBack) {
  Change away;
  away.epoch = 3;
  away.at = 5s;
  away.absent = {1};
  Change back = away;
  back.epoch = 6;
  back.at = 25s;
  back.absent.emplace();
  const std::vector<Change> changes{away, set_connections(5, 15s, 8, {0, 1}), back};
  const Timeline timeline = changed_timeline(three_phases(), changes);
  is_whole(timeline, 30s);
  EXPECT_EQ(connections_at(timeline, 5s), (std::vector<std::uint64_t>{134, 0, 133, 133}));
  EXPECT_EQ(connections_at(timeline, 10s), (std::vector<std::uint64_t>{267, 0, 267, 266}));
  EXPECT_EQ(connections_at(timeline, 15s), (std::vector<std::uint64_t>{6, 0, 201, 201}));
  EXPECT_EQ(connections_at(timeline, 25s), (std::vector<std::uint64_t>{4, 4, 200, 200}));
}

TEST(ChangedTimelineTest, AGuardBandFollowsAChangeOverPhasesAndOtherChanges) {
  std::vector<Change> changes{set_connections(3, 5s, 100), set_connections(5, 7s, 40)};
  changes[0].guard = 6s;
  const Timeline timeline = changed_timeline(three_phases(), changes);
  is_whole(timeline, 30s);
  for (Duration at{}; at < 30s; at += 500ms)
    EXPECT_EQ(timeline.segment_at(at).guard, at >= 5s && at < 11s) << at.count();
  EXPECT_EQ(timeline.epoch_at(6s), 3);
  EXPECT_EQ(timeline.epoch_at(8s), 5);
  EXPECT_EQ(timeline.segment_at(10'500ms).phase, 1);
  EXPECT_EQ(timeline.epoch_at(10'500ms), timeline.epoch_at(12s)) << "its end is no new epoch";
}

TEST(ChangedTimelineTest, AGuardBandEndsWithTheRun) {
  std::vector<Change> changes{set_connections(3, 25s, 100)};
  changes[0].guard = 10s;
  const Timeline timeline = changed_timeline(three_phases(), changes);
  is_whole(timeline, 30s);
  EXPECT_TRUE(timeline.segments.back().guard);
}

TEST(ChangedTimelineTest, OnlyWhatOpensOrClosesConnectionsNeedsAGuardBand) {
  const auto guard_for = [](const auto& set) {
    Change change;
    change.parts.emplace_back();
    set(change.parts[0].patch);
    return default_guard(change, 0s);
  };
  EXPECT_EQ(guard_for([](ParameterPatch& p) { p.connections = 4; }), kChangeGuard);
  EXPECT_EQ(guard_for([](ParameterPatch& p) { p.target_url = "grpcs://a:1"; }), kChangeGuard);
  EXPECT_EQ(guard_for([](ParameterPatch& p) { p.threads = 2; }), kChangeGuard);
  EXPECT_EQ(guard_for([](ParameterPatch& p) { p.compress = true; }), 0s);
  EXPECT_EQ(guard_for([](ParameterPatch& p) { p.paused = true; }), 0s);
  Change moved;
  moved.absent = {1};
  EXPECT_EQ(default_guard(moved, 0s), kChangeGuard);
  EXPECT_EQ(default_guard(moved, 3s), 3s) << "as long as the rotation's";
}

TEST(ChangedTimelineTest, WhateverTheChangesNumbersGrowAndThePastStaysAsItWas) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int history = 0; history < 100; ++history) {
    const Timeline planned = three_phases();
    Timeline timeline = planned;
    std::vector<Change> changes;
    for (int i = 0; i < 10; ++i) {
      Change change = set_connections(timeline.last_epoch() + 1, std::chrono::seconds(below(30)),
                                      static_cast<std::uint64_t>(below(1000)));
      if (below(2) == 0) change.guard = std::chrono::seconds(below(12));
      if (below(3) == 0) change.absent.emplace(1, below(4));
      changes.push_back(change);
      const Timeline before = timeline;
      timeline = with_last_change(planned, timeline, changes);
      is_whole(timeline, 30s);
      EXPECT_EQ(timeline.epoch_at(change.at), change.epoch);
      for (Duration at{}; at < change.at; at += 500ms) {
        EXPECT_EQ(timeline.epoch_at(at), before.epoch_at(at));
        EXPECT_EQ(timeline.segment_at(at).guard, before.segment_at(at).guard);
      }
      for (Duration at{}; at < 30s; at += 500ms) {
        const bool is_guarded = std::any_of(changes.begin(), changes.end(), [&](const Change& c) {
          return c.at <= at && at < c.at + c.guard;
        });
        EXPECT_EQ(timeline.segment_at(at).guard, is_guarded) << at.count();
      }
    }
    EXPECT_EQ(timeline, changed_timeline(planned, changes));
  }
}
