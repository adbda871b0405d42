// Changes of a live run, and the lease it needs, as the session sees them.

#include <gmock/gmock.h>

#include "agent/epoch_book.h"
#include "tests/unit/agent/session_harness.h"

namespace spate::agent {
namespace {

using State = Session::State;
using testing::ElementsAre;
using testing::HasSubstr;

// A long run, begun a second ago.
SessionHarness& begin(SessionHarness& h, OnControllerLoss on_loss = OnControllerLoss::go_on,
                      Duration first_lease = 30s) {
  Prepare p = h.plan();
  p.timeline.segments = {{0s, 1h, 0, 1, false}};
  p.on_controller_loss = on_loss;
  p.lease = first_lease;
  h.connect();
  h.feed(p);
  h.feed(PreflightDone{"run-1", {}});
  h.feed(h.opened());
  h.feed(Start{"run-1", h.at_controller(h.now + 1s)});
  h.t0 = h.now + 1s;
  return h;
}

void prepare(SessionHarness& h, std::uint32_t epoch, Duration from) {
  h.feed(h.change(epoch, from));
  h.feed(ChangeChecked{"run-1", epoch, {}});
}

std::string hello_epoch(SessionHarness& h) {
  h.feed(StreamDown{});
  h.connect();
  return std::to_string(h.sent_of<Hello>().back().epoch);
}

// --- changes

TEST(SessionChange, IsPreparedThenCommittedThenApplied) {
  SessionHarness h;
  h.go_to(State::running);
  h.pass(2s);
  h.feed(h.change(2, 5s));
  ASSERT_TRUE(h.did<CheckChange>());
  EXPECT_EQ(h.did<CheckChange>()->change.epoch, 2U);
  EXPECT_TRUE(h.sent_of<EpochReply>().empty());
  h.feed(ChangeChecked{"run-1", 2, {}});
  EXPECT_THAT(h.sent_of<EpochReply>(), ElementsAre(EpochReply{"run-1", 2, {}}));
  EXPECT_FALSE(h.did<ChangeWorkers>()) << "nothing changes before the commit";
  h.feed(EpochCommit{"run-1", 2});
  ASSERT_TRUE(h.did<ChangeWorkers>());
  EXPECT_EQ(h.did<ChangeWorkers>()->epoch, 2U);
  EXPECT_EQ(h.did<ChangeWorkers>()->at, h.t0 + 5s);
  EXPECT_EQ(hello_epoch(h), "1");
  h.pass(h.t0 + 5s - h.now);
  h.feed(ChangedOver{2, h.t0 + 5s});
  EXPECT_THAT(h.sent_of<EpochApplied>(), ElementsAre(EpochApplied{"run-1", 2, 5s}));
  EXPECT_EQ(hello_epoch(h), "2");
  EXPECT_EQ(h.sent_of<Hello>().back().run_start, h.t0);
}

TEST(SessionChange, IsRefusedByNameAndChangesNothing) {
  SessionHarness h;
  h.go_to(State::running);
  h.feed(h.change(2, 5s));
  h.feed(ChangeChecked{"run-1", 2, {{"connections", "more than allowed", 20, 15}}});
  EXPECT_EQ(h.sent_of<EpochReply>().at(0).problems.at(0).what, "connections");
  h.feed(EpochCommit{"run-1", 2});
  EXPECT_FALSE(h.did<ChangeWorkers>());
  EXPECT_THAT(h.sent_of<EpochReply>().back().problems.at(0).text, HasSubstr("not prepared"));
}

TEST(SessionChange, IsNotCommittedBeforeItIsChecked) {
  SessionHarness h;
  h.go_to(State::running);
  h.feed(h.change(2, 5s));
  h.feed(EpochCommit{"run-1", 2});
  EXPECT_FALSE(h.did<ChangeWorkers>());
  EXPECT_EQ(h.sent_of<EpochReply>().back().problems.size(), 1U);
}

TEST(SessionChange, TakesEffectAtOnceWhenItsInstantIsPast) {
  SessionHarness h;
  h.go_to(State::running);
  h.pass(4s);
  prepare(h, 2, 1s);
  h.feed(EpochCommit{"run-1", 2});
  ASSERT_TRUE(h.did<ChangeWorkers>());
  EXPECT_EQ(h.did<ChangeWorkers>()->at, h.now + Session::kChangeLead);
}

TEST(SessionChange, BeforeTheStartWaitsForIt) {
  SessionHarness h;
  h.go_to(State::armed);
  prepare(h, 2, 0s);
  prepare(h, 3, 4s);
  h.feed(EpochCommit{"run-1", 2});
  h.feed(EpochCommit{"run-1", 2});
  h.feed(EpochCommit{"run-1", 3});
  EXPECT_FALSE(h.did<ChangeWorkers>());
  h.feed(Start{"run-1", h.at_controller(h.now + 1s)});
  const Instant t0 = h.now + 1s;
  std::vector<std::pair<std::uint32_t, Instant>> changes;
  for (const Action& a : h.actions)
    if (const auto* c = std::get_if<ChangeWorkers>(&a)) changes.emplace_back(c->epoch, c->at);
  EXPECT_THAT(changes, ElementsAre(std::pair(2U, t0), std::pair(3U, t0 + 4s)));
  EXPECT_EQ(hello_epoch(h), "2");
}

TEST(SessionChange, SaysAgainWhatTheControllerMayNotHaveHeard) {
  SessionHarness h;
  h.go_to(State::running);
  h.pass(3s);
  prepare(h, 2, 1s);
  h.feed(EpochCommit{"run-1", 2});
  h.feed(EpochCommit{"run-1", 2});
  EXPECT_FALSE(h.did<ChangeWorkers>()) << "once";
  h.feed(StreamDown{});
  h.feed(ChangedOver{2, h.now});
  EXPECT_TRUE(h.sent_of<EpochApplied>().empty());
  h.connect();
  EXPECT_EQ(h.sent_of<EpochApplied>().size(), 1U);
  h.feed(h.change(2, 1s));
  EXPECT_TRUE(h.sent_of<EpochReply>().back().problems.empty());
  EXPECT_FALSE(h.did<CheckChange>());
  h.feed(EpochCommit{"run-1", 2});
  EXPECT_EQ(h.sent_of<EpochApplied>().size(), 2U);
}

TEST(SessionChange, OneForLaterThatTheRunBeganWithIsInTheHello) {
  SessionHarness h;
  Prepare p = h.plan();
  p.timeline.epochs[0].epoch = 5;
  p.timeline.epochs.push_back(p.timeline.epochs[0]);
  p.timeline.epochs[1].epoch = 8;
  p.timeline.segments = {{3s, 4s, 0, 5, false}, {7s, 3s, 0, 8, false}};
  h.connect();
  h.feed(p);
  h.feed(PreflightDone{"run-1", {}});
  h.feed(h.opened());
  h.feed(Start{"run-1", h.at_controller(h.now - 4s)});
  EXPECT_EQ(hello_epoch(h), "5");
  EXPECT_EQ(h.sent_of<Hello>().back().committed, 8U);
}

TEST(SessionChange, WhatWasCommittedBeforeTheStartIsToldAgainOnANewStream) {
  SessionHarness h;
  h.go_to(State::armed);
  prepare(h, 2, 5s);
  h.feed(EpochCommit{"run-1", 2});
  h.feed(StreamDown{});
  h.connect();
  EXPECT_EQ(h.sent_of<Hello>().back().committed, 1U);
  h.feed(Start{"run-1", h.at_controller(h.now + 1s)});
  EXPECT_FALSE(h.did<ChangeWorkers>()) << "it has said that it does not have it";
}

TEST(SessionChange, IsAppliedAlreadyIfTheRunBeganWithIt) {
  SessionHarness h;
  Prepare p = h.plan();
  p.timeline.epochs[0].epoch = 5;
  p.timeline.segments = {{3s, 7s, 0, 5, false}};
  h.connect();
  h.feed(p);
  h.feed(PreflightDone{"run-1", {}});
  h.feed(h.opened());
  h.feed(Start{"run-1", h.at_controller(h.now - 4s)});
  h.feed(h.change(4, 2s));
  EXPECT_TRUE(h.sent_of<EpochReply>().back().problems.empty());
  h.feed(EpochCommit{"run-1", 4});
  ASSERT_EQ(h.sent_of<EpochApplied>().size(), 1U);
  EXPECT_EQ(h.sent_of<EpochApplied>()[0], (EpochApplied{"run-1", 4, 4s + Session::kJoinLead}));
  EXPECT_FALSE(h.did<ChangeWorkers>());
}

TEST(SessionChange, NeedsARunThatIsLive) {
  for (const State state : {State::idle, State::checking, State::draining, State::delivering}) {
    SessionHarness h;
    h.go_to(state);
    h.feed(h.change(2, 5s));
    EXPECT_FALSE(h.did<CheckChange>());
    EXPECT_EQ(h.sent_of<EpochReply>().back().problems.at(0).what, "busy");
  }
  SessionHarness h;
  h.go_to(State::running);
  h.feed(h.change(2, 5s, "run-0"));
  EXPECT_EQ(h.sent_of<EpochReply>().back().run, "run-0");
  EXPECT_EQ(h.sent_of<EpochReply>().back().problems.at(0).what, "busy");
  h.feed(EpochCommit{"run-0", 2});
  EXPECT_FALSE(h.did<ChangeWorkers>());
}

TEST(SessionChange, CheckedForARunThatHasEndedIsForgotten) {
  SessionHarness h;
  h.go_to(State::armed);
  h.feed(h.change(2, 5s));
  h.feed(Stop{"run-1", 0s, "user"});
  h.feed(ChangeChecked{"run-1", 2, {}});
  EXPECT_TRUE(h.sent_of<EpochReply>().empty());
}

TEST(EpochBook, KnowsTheEpochAtEveryInstant) {
  EpochBook book({{0s, 5s, 0, 1, false}, {5s, 5s, 1, 3, true}, {10s, 5s, 1, 3, false}});
  EXPECT_EQ(book.epoch_at(Duration::min()), 1U);
  EXPECT_EQ(book.epoch_at(4s), 1U);
  EXPECT_EQ(book.epoch_at(5s), 3U);
  EXPECT_EQ(book.end(), 15s);
  book.prepare(4, 2s, {{2s, 3s, 0, 4, false}, {5s, 10s, 1, 5, false}});
  book.commit(4, 2500ms);
  EXPECT_EQ(book.epoch_at(2400ms), 1U);
  EXPECT_EQ(book.epoch_at(2500ms), 4U);
  EXPECT_EQ(book.epoch_at(1h), 5U);
  EXPECT_EQ(book.end(), 15s);
  EXPECT_EQ(book.committed(), 4U);
  EXPECT_EQ(book.given(), 3U);
  EXPECT_EQ(EpochBook().epoch_at(1s), 0U);
}

TEST(EpochBook, IsNotCertainOfAChangeThatCameLateBeforeItIsInEffect) {
  EpochBook book({{0s, 5s, 0, 1, false}, {5s, 10s, 1, 2, false}});
  EXPECT_EQ(book.certain(1s), 2U) << "it began with that";
  book.prepare(3, 7s, {{7s, 8s, 1, 3, false}});
  book.commit(3, 7s);
  EXPECT_EQ(book.certain(1s), 3U) << "it will be, from the instant that it is for";
  book.prepare(4, 8s, {{8s, 7s, 1, 4, false}});
  book.commit(4, 9s);
  EXPECT_EQ(book.certain(8500ms), 3U) << "a second too late";
  EXPECT_EQ(book.certain(9s), 4U);
}

TEST(EpochBook, KeepsAFewPreparedChanges) {
  EpochBook book({{0s, 5s, 0, 1, false}});
  for (std::uint32_t e = 2; e <= 11; ++e) book.prepare(e, 1s, {{1s, 4s, 0, e, false}});
  EXPECT_EQ(book.find(3), nullptr);
  ASSERT_NE(book.find(4), nullptr);
  EXPECT_FALSE(book.find(4)->is_checked);
  book.checked(4);
  EXPECT_TRUE(book.find(4)->is_checked);
  book.prepare(4, 2s, {{2s, 3s, 0, 4, false}});
  EXPECT_FALSE(book.find(4)->is_checked) << "another one";
  book.commit(6, 1s);
  EXPECT_EQ(book.find(6), nullptr);
  EXPECT_NE(book.find(7), nullptr);
  book.drop(7);
  EXPECT_EQ(book.find(7), nullptr);
}

// --- leases

TEST(SessionLease, BeginsWithTheStartAndIsCountedFromTheHeartbeat) {
  SessionHarness h;
  begin(h);
  ASSERT_TRUE(h.did<LeaseWorkers>());
  EXPECT_LE(h.did<LeaseWorkers>()->until, h.t0 + 30s);
  EXPECT_GT(h.did<LeaseWorkers>()->until, h.t0 + 30s - 1ms) << "but for the clock's bound";
  h.mute = true;
  h.pass(4s);
  const Instant sent = h.sent_of<Heartbeat>().back().sent;
  h.feed(HeartbeatReply{sent, {}, {}, h.now, "run-1", 40s});
  ASSERT_TRUE(h.did<LeaseWorkers>());
  EXPECT_EQ(h.did<LeaseWorkers>()->until, sent + 40s);
  h.feed(HeartbeatReply{sent, {}, {}, h.now, "run-1", 10s});
  EXPECT_FALSE(h.did<LeaseWorkers>()) << "never shorter";
  h.feed(HeartbeatReply{sent, {}, {}, h.now, "run-0", 90s});
  EXPECT_FALSE(h.did<LeaseWorkers>()) << "another run's";
}

TEST(SessionLease, OfARunJoinedInTheMiddleBeginsWithTheLastAnsweredHeartbeat) {
  SessionHarness h;
  h.go_to(State::armed);
  h.pass(900ms);
  const Instant sent = h.sent_of<Heartbeat>().back().sent;
  h.feed(Start{"run-1", h.at_controller(h.now - 3s)});
  ASSERT_TRUE(h.did<LeaseWorkers>());
  EXPECT_EQ(h.did<LeaseWorkers>()->until, sent + 10min);
}

TEST(SessionLease, HoldsTheRunWhenItEndsAndGoesOnWithANewOne) {
  SessionHarness h;
  begin(h);
  h.lease = 10s;
  h.pass(60s);
  EXPECT_EQ(h.session.state(), State::running);
  h.feed(StreamDown{});
  h.story.clear();
  h.pass(120s);
  EXPECT_EQ(h.session.state(), State::running) << "it waits";
  EXPECT_THAT(h.story, ElementsAre(HasSubstr("lease ended run=run-1")));
  EXPECT_FALSE(h.did<StopWorkers>());
  h.story.clear();
  h.connect();
  h.pass(2s);
  EXPECT_THAT(h.story, testing::Contains(HasSubstr("lease renewed run=run-1")));
  EXPECT_EQ(h.session.state(), State::running);
}

TEST(SessionLease, EndsWhereACommitSaysSoAndGoesOnWithTheNextOne) {
  SessionHarness h;
  begin(h);
  h.lease = {};
  prepare(h, 2, 5s);
  h.feed(EpochCommit{"run-1", 2});
  EXPECT_FALSE(h.did<LeaseWorkers>());
  prepare(h, 3, 6s);
  h.feed(EpochCommit{"run-1", 3, 8s});
  ASSERT_TRUE(h.did<LeaseWorkers>());
  EXPECT_EQ(h.did<LeaseWorkers>()->until, h.t0 + 8s);
  h.pass(1100ms);
  ASSERT_LT(h.now, h.t0 + 6s);
  EXPECT_EQ(h.sent_of<Heartbeat>().back().certain, 3U) << "before it is in effect";
  h.pass(h.t0 + 9s - h.now);
  EXPECT_THAT(h.story, testing::Contains(HasSubstr("lease ended run=run-1")));
  h.lease = 10s;
  h.pass(2s);
  EXPECT_THAT(h.story, testing::Contains(HasSubstr("lease renewed run=run-1")));
}

TEST(SessionLease, DrainsOrStopsTheRunIfThePlanSaysSo) {
  for (const OnControllerLoss on_loss : {OnControllerLoss::drain, OnControllerLoss::stop}) {
    SessionHarness h;
    begin(h, on_loss, 10s);
    h.feed(StreamDown{});
    h.pass(10s);
    EXPECT_EQ(h.session.state(), State::running);
    h.pass(1100ms);
    EXPECT_EQ(h.session.state(), State::draining);
    h.close_interval();
    h.feed(WorkersDrained{});
    h.connect();
    h.feed(RecordAck{"run-1", 77, 0});
    EXPECT_EQ(h.sent_of<Finished>().at(0),
              (Finished{"run-1", 1, "the lease ended without a controller"}));
  }
}

TEST(SessionLease, DrainsWithItsDrainAndStopsWithout) {
  SessionHarness h;
  begin(h, OnControllerLoss::drain, 10s);
  h.mute = true;
  h.now = h.t0 + 10s;
  h.feed(Tick{});
  ASSERT_TRUE(h.did<StopWorkers>());
  EXPECT_EQ(h.did<StopWorkers>()->drain, 5s);
  SessionHarness other;
  begin(other, OnControllerLoss::stop, 10s);
  other.mute = true;
  other.now = other.t0 + 10s;
  other.feed(Tick{});
  ASSERT_TRUE(other.did<StopWorkers>());
  EXPECT_EQ(other.did<StopWorkers>()->drain, 0s);
  EXPECT_EQ(other.did<StopWorkers>()->at, other.now);
}

TEST(SessionLease, IsNotNeededIfThereIsNone) {
  SessionHarness h;
  begin(h, OnControllerLoss::stop, 0s);
  EXPECT_FALSE(h.did<LeaseWorkers>());
  h.feed(StreamDown{});
  h.pass(30min);
  EXPECT_EQ(h.session.state(), State::running);
}

TEST(SessionLease, SilenceGivesUpWhatHasNotStarted) {
  for (const State state : {State::checking, State::opening, State::armed}) {
    SessionHarness h;
    h.go_to(state);
    h.feed(StreamDown{});
    h.pass(59s);
    EXPECT_NE(h.session.state(), State::idle);
    h.pass(2s);
    EXPECT_EQ(h.session.state(), State::idle);
  }
}

}  // namespace
}  // namespace spate::agent
