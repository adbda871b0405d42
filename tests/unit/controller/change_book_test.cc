#include "controller/change_book.h"

#include <gmock/gmock.h>

#include <map>

namespace spate::controller {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Two phases of an hour each with 400 connections on four agents.
Plan soak() {
  Plan plan;
  plan.agents = 4;
  plan.target.url = "grpc://127.0.0.1:7000";
  for (const char* name : {"first", "second"}) {
    Phase phase;
    phase.name = name;
    phase.length = std::chrono::hours(1);
    phase.load.connections = 400;
    plan.phases.push_back(phase);
  }
  return plan;
}

ChangeOrder set_connections(std::uint64_t ticket, std::uint64_t connections,
                            std::vector<std::uint32_t> agents = {}) {
  ChangeOrder order;
  order.ticket = ticket;
  order.change.parts.push_back({std::move(agents), {}});
  order.change.parts[0].patch.connections = connections;
  order.change.who = "alice";
  order.change.reason = "why not";
  order.change.what = "load.connections=" + std::to_string(connections);
  return order;
}

// A book, and agents that do what the test says.
class ChangeBookTest : public testing::Test {
 protected:
  ChangeBook::Setup setup() {
    ChangeBook::Setup s;
    s.run = "run";
    s.agents = {"a", "b", "c", "d"};
    s.phases = {"first", "second"};
    s.planned = *planned_timeline(plan_, 0);
    s.start = start_;
    s.start_wall_ms = 1'800'000'000'000;
    s.lease = seconds(60);
    s.goes_on_after_lease = goes_on_;
    s.redistribute = redistribute_;
    return s;
  }
  void begin() {
    book_ = std::make_unique<ChangeBook>(setup(), start_);
    now_ = start_ + seconds(10);
    for (std::size_t i = 0; i < 4; ++i) book_->lease(i, now_);
  }

  void step(const ChangeInput& input) {
    for (ChangeAction& action : book_->step(input, now_)) {
      if (auto* send = std::get_if<change_action::Send>(&action)) {
        if (auto* p = std::get_if<SendEpochPrepare>(&send->message)) prepares_[send->agent] = *p;
        if (auto* c = std::get_if<SendEpochCommit>(&send->message)) {
          commits_[send->agent] = c->epoch;
          hold_from_[send->agent] = c->hold_from;
        }
      }
      if (auto* store = std::get_if<change_action::Store>(&action))
        stores_.push_back(store->change);
      if (auto* answer = std::get_if<change_action::Answer>(&action))
        answers_[answer->ticket] = answer->answer;
      if (auto* log = std::get_if<change_action::Log>(&action)) log_.push_back(log->text);
    }
  }
  void later(Duration by) {
    now_ += by;
    step(change_input::Tick{});
  }
  void order(ChangeOrder o) { step(change_input::Order{std::move(o)}); }
  void prepared(std::size_t agent) {
    step(change_input::Reply{agent, prepares_.at(agent).epoch, {}});
  }
  void all_prepared() {
    for (std::size_t i = 0; i < 4; ++i) prepared(i);
  }
  void stored() { step(change_input::Stored{stores_.back().epoch}); }
  void applied(std::size_t agent) { step(change_input::Has{agent, commits_.at(agent)}); }
  // The whole way.
  std::uint32_t change(const ChangeOrder& o) {
    order(o);
    all_prepared();
    stored();
    later(kChangeLead);
    for (std::size_t i = 0; i < 4; ++i) {
      if (commits_.contains(i)) applied(i);
    }
    return answers_.at(o.ticket).epoch;
  }

  Redistribute redistribute_ = Redistribute::never;
  bool goes_on_ = true;
  Plan plan_ = soak();
  const Instant start_ = from_ns(1'000'000'000'000);
  Instant now_ = start_;
  std::unique_ptr<ChangeBook> book_;
  std::map<std::size_t, SendEpochPrepare> prepares_;
  std::map<std::size_t, std::uint32_t> commits_;
  std::map<std::size_t, std::optional<Duration>> hold_from_;
  std::vector<Change> stores_;
  std::map<std::uint64_t, ChangeAnswer> answers_;
  std::vector<std::string> log_;
};

TEST_F(ChangeBookTest, IsPreparedByAllThenStoredThenCommitted) {
  begin();
  order(set_connections(1, 800));
  ASSERT_EQ(prepares_.size(), 4u);
  EXPECT_EQ(prepares_.at(2).epoch, 2u);
  EXPECT_EQ(prepares_.at(2).from, seconds(11));
  EXPECT_EQ(prepares_.at(2).timeline.epochs.front().parameters.load.connections, 200u);
  for (std::size_t i = 0; i < 3; ++i) prepared(i);
  EXPECT_THAT(stores_, IsEmpty());
  prepared(3);
  ASSERT_EQ(stores_.size(), 1u);
  EXPECT_THAT(commits_, IsEmpty());
  EXPECT_THAT(answers_, IsEmpty());
  stored();
  EXPECT_EQ(commits_.size(), 4u);
  const ChangeAnswer& answer = answers_.at(1);
  EXPECT_THAT(answer.problems, IsEmpty());
  EXPECT_EQ(answer.epoch, 2u);
  EXPECT_EQ(answer.from_epoch, 1u);
  EXPECT_EQ(answer.at, seconds(11));
  EXPECT_THAT(answer.away, IsEmpty());
  ASSERT_EQ(answer.differences.size(), 1u);
  EXPECT_EQ(answer.differences[0].path, "load.connections");
  EXPECT_EQ(answer.differences[0].from, "400");
  EXPECT_EQ(answer.differences[0].to, "800");
}

TEST_F(ChangeBookTest, SaysWhenAnEpochBeginsAndWhoseItIs) {
  begin();
  change(set_connections(1, 800));
  EXPECT_THAT(log_, ElementsAre("epoch 2 from 1: load.connections=800 by alice: why not"));
}

TEST_F(ChangeBookTest, OneProblemRefusesItWholeAndNamesEveryOne) {
  begin();
  order(set_connections(1, 800));
  prepared(0);
  step(change_input::Reply{1, 2, {{"descriptors", "too many", 900, 500}}});
  step(change_input::Reply{2, 2, {{"cap", "over --max-connections", 200, 150}}});
  EXPECT_THAT(answers_, IsEmpty());
  prepared(3);
  EXPECT_THAT(answers_.at(1).problems,
              ElementsAre(HasSubstr("agent b: descriptors: too many (needed 900"),
                          HasSubstr("agent c: cap")));
  EXPECT_EQ(answers_.at(1).exit_code, 2);
  EXPECT_THAT(stores_, IsEmpty());
  EXPECT_THAT(commits_, IsEmpty());
  EXPECT_EQ(book_->timeline(), *planned_timeline(soak(), 0));
}

TEST_F(ChangeBookTest, WhatASecondLookFindsRefusesItToo) {
  begin();
  order(set_connections(1, 800));
  later(kChangeRetry);
  prepared(1);
  step(change_input::Reply{1, 2, {{"descriptors", "gone meanwhile", 900, 500}}});
  for (const std::size_t i : {0u, 2u, 3u}) prepared(i);
  EXPECT_THAT(stores_, IsEmpty());
  EXPECT_THAT(answers_.at(1).problems, ElementsAre(HasSubstr("agent b: descriptors")));
}

TEST_F(ChangeBookTest, AnAnswerToARefusedChangeIsNoneToTheNext) {
  begin();
  order(set_connections(1, 800));
  step(change_input::Reply{0, 2, {{"cap", "no", 0, 0}}});
  later(kAnswerWait);
  ASSERT_EQ(answers_.size(), 1u);
  order(set_connections(2, 600));
  EXPECT_EQ(prepares_.at(1).epoch, 3u);
  step(change_input::Reply{1, 2, {}});
  for (const std::size_t i : {0u, 2u, 3u}) prepared(i);
  EXPECT_THAT(stores_, IsEmpty());
  prepared(1);
  EXPECT_EQ(stores_.size(), 1u);
}

TEST_F(ChangeBookTest, OneAtATimeInTheirOrder) {
  begin();
  order(set_connections(1, 800));
  order(set_connections(2, 600));
  EXPECT_EQ(prepares_.at(0).epoch, 2u);
  all_prepared();
  EXPECT_EQ(prepares_.at(0).epoch, 2u);
  stored();
  EXPECT_EQ(prepares_.at(0).epoch, 3u);
  all_prepared();
  stored();
  EXPECT_EQ(book_->accepted().size(), 2u);
}

TEST_F(ChangeBookTest, TheQueueIsBounded) {
  begin();
  for (std::uint64_t i = 1; i <= kMaxQueuedChanges + 2; ++i) order(set_connections(i, 400 + i));
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_THAT(answers_.begin()->second.problems, ElementsAre(HasSubstr("waiting already")));
  EXPECT_EQ(answers_.begin()->second.exit_code, 1);
}

TEST_F(ChangeBookTest, ATimeThatHasPassedOrThatTheRunDoesNotReachIsRefused) {
  begin();
  ChangeOrder past = set_connections(1, 800);
  past.at = seconds(5);
  order(past);
  EXPECT_THAT(answers_.at(1).problems, ElementsAre(HasSubstr("its time has passed: 2027-01-15T")));
  ChangeOrder beyond = set_connections(2, 800);
  beyond.at = std::chrono::hours(2);
  order(beyond);
  EXPECT_THAT(answers_.at(2).problems, ElementsAre(HasSubstr("the run is over by then")));
  EXPECT_EQ(answers_.at(2).exit_code, 2);
}

TEST_F(ChangeBookTest, RefusesToOverwriteWhatItDoesNotKnow) {
  begin();
  change(set_connections(1, 800));
  ChangeOrder late = set_connections(2, 100);
  late.if_epoch = 1;
  order(late);
  EXPECT_THAT(answers_.at(2).problems,
              ElementsAre("the epoch moved on: the run is in epoch 2, not in 1"));
  EXPECT_EQ(answers_.at(2).exit_code, 4);
  EXPECT_EQ(answers_.at(2).epoch, 2u);
  // One that is accepted, and not yet in effect, counts as well.
  ChangeOrder soon = set_connections(3, 200);
  soon.if_epoch = 2;
  order(soon);
  ChangeOrder at_once = set_connections(4, 300);
  at_once.if_epoch = 2;
  order(at_once);
  all_prepared();
  stored();
  EXPECT_THAT(answers_.at(3).problems, IsEmpty());
  EXPECT_THAT(answers_.at(4).problems, ElementsAre(HasSubstr("epoch 3 is on its way since")));
}

TEST_F(ChangeBookTest, APlannedPhaseIsNobodysChange) {
  begin();
  ChangeOrder order_later = set_connections(1, 800);
  order_later.at = std::chrono::minutes(90);
  order_later.if_epoch = 1;
  order(order_later);
  all_prepared();
  stored();
  EXPECT_THAT(answers_.at(1).problems, IsEmpty());
  EXPECT_THAT(log_,
              ElementsAre(HasSubstr("change accepted: epoch 2 begins at 2027-01-15T09:30:00")));
}

TEST_F(ChangeBookTest, AnAgentThatIsAwayGetsItWhenItIsBack) {
  begin();
  step(change_input::Away{3});
  order(set_connections(1, 200));
  for (std::size_t i = 0; i < 3; ++i) prepared(i);
  EXPECT_THAT(stores_, IsEmpty());
  later(kAwayWait);
  stored();
  EXPECT_THAT(answers_.at(1).away, ElementsAre("d"));
  later(kChangeLead + kSpreadGrace);
  for (std::size_t i = 0; i < 3; ++i) applied(i);
  EXPECT_EQ(book_->spread(now_),
            "epoch 2 on 3 of 4 agents: d still on 1 until 2027-01-15T08:01:12Z at the latest");
  EXPECT_THAT(log_, testing::Contains(HasSubstr("epoch 2 on 0 of 4 agents")));
  EXPECT_TRUE(book_->agent_state(3, now_).is_behind);

  step(change_input::Back{3, 1, 0});
  EXPECT_EQ(prepares_.at(3).epoch, 2u);
  prepared(3);
  applied(3);
  EXPECT_EQ(book_->spread(now_), "");
  EXPECT_EQ(log_.back(), "epoch 2 on every agent that is there");
}

TEST_F(ChangeBookTest, AnOrderIsNotUndoneByTheOneBeforeItThatWaitedForAnAgent) {
  begin();
  step(change_input::Away{3});
  ChangeOrder pause = set_connections(1, 400);
  pause.change.parts[0].patch = ParameterPatch{};
  pause.change.parts[0].patch.paused = true;
  order(pause);
  for (std::size_t i = 0; i < 3; ++i) prepared(i);
  step(change_input::Back{3, 1, 0});
  prepared(3);
  stored();
  EXPECT_EQ(answers_.at(1).at, seconds(10) + kChangeLead + kAwayWait);
  ChangeOrder resume = set_connections(2, 400);
  resume.change.parts[0].patch = ParameterPatch{};
  resume.change.parts[0].patch.paused = false;
  order(resume);
  all_prepared();
  stored();
  EXPECT_EQ(answers_.at(2).at, answers_.at(1).at);
  EXPECT_FALSE(book_->timeline().epochs.back().shares[0].parameters.paused);
}

TEST_F(ChangeBookTest, ManyMissedChangesAreOnePrepare) {
  begin();
  step(change_input::Away{3});
  for (std::uint64_t ticket = 1; ticket <= 3; ++ticket) {
    order(set_connections(ticket, 400 - 100 * ticket));
    for (std::size_t i = 0; i < 3; ++i) prepared(i);
    later(kAwayWait);
    stored();
    later(kChangeLead);
    for (std::size_t i = 0; i < 3; ++i) applied(i);
  }
  step(change_input::Back{3, 1, 0});
  EXPECT_EQ(prepares_.at(3).epoch, 4u);
  EXPECT_EQ(prepares_.at(3).timeline.epochs.size(), 3u);
  EXPECT_EQ(prepares_.at(3).from, stores_[0].at);
  prepared(3);
  EXPECT_EQ(commits_.at(3), 4u);
}

TEST_F(ChangeBookTest, AnAgentIsWaitedForWhenItIsThereAndSilentButNotForEver) {
  begin();
  order(set_connections(1, 800));
  for (std::size_t i = 0; i < 3; ++i) prepared(i);
  later(kAnswerWait - seconds(1));
  EXPECT_THAT(stores_, IsEmpty());
  later(seconds(1));
  EXPECT_EQ(stores_.size(), 1u);
}

TEST_F(ChangeBookTest, NobodyThereIsARefusal) {
  begin();
  for (std::size_t i = 0; i < 4; ++i) step(change_input::Away{i});
  order(set_connections(1, 800));
  later(kAwayWait);
  EXPECT_THAT(answers_.at(1).problems, ElementsAre("no agent of the run is there to take it"));
  EXPECT_EQ(answers_.at(1).exit_code, 1);
}

TEST_F(ChangeBookTest, ARaiseWaitsForThoseThatGiveWay) {
  begin();
  change(set_connections(1, 800));
  // From 200 each to 500 + 3 * 100.
  ChangeOrder shift = set_connections(2, 500, {0});
  shift.change.parts.push_back({{1, 2, 3}, {}});
  shift.change.parts[1].patch.connections = 300;
  commits_.clear();
  order(shift);
  all_prepared();
  stored();
  EXPECT_THAT(commits_, ElementsAre(testing::Pair(1, 3), testing::Pair(2, 3), testing::Pair(3, 3)));
  EXPECT_THAT(book_->agent_state(0, now_).note, "");
  later(kChangeLead);
  applied(1);
  applied(2);
  EXPECT_FALSE(commits_.contains(0));
  EXPECT_THAT(book_->agent_state(0, now_).note, HasSubstr("leave room"));
  EXPECT_LE(book_->leased(now_), book_->allowed(now_));
  applied(3);
  EXPECT_EQ(commits_.at(0), 3u);
}

TEST_F(ChangeBookTest, ARaiseWaitsForTheLeaseOfOneThatIsAway) {
  begin();
  step(change_input::Away{1});
  ChangeOrder shift = set_connections(1, 200, {0});
  shift.change.parts.push_back({{1}, {}});
  shift.change.parts[1].patch.connections = 0;
  order(shift);
  for (const std::size_t i : {0u, 2u, 3u}) prepared(i);
  later(kAwayWait);
  stored();
  EXPECT_FALSE(commits_.contains(0));
  for (int i = 0; i < 6; ++i) {
    later(seconds(9));
    for (const std::size_t agent : {0u, 2u, 3u}) book_->lease(agent, now_);
    EXPECT_EQ(commits_.contains(0), now_ >= start_ + seconds(10 + 60) + kLeaseMargin);
  }
  later(seconds(5));
  EXPECT_EQ(commits_.at(0), 2u);
  // It is back, with what it had: no lease before it has given way.
  step(change_input::Has{0, 2});
  step(change_input::Back{1, 1, 0});
  EXPECT_EQ(book_->lease(1, now_), Duration{});
  prepared(1);
  applied(1);
  EXPECT_EQ(book_->lease(1, now_), seconds(60));
}

TEST_F(ChangeBookTest, ARefusalOutlivesASilence) {
  begin();
  order(set_connections(1, 800));
  step(change_input::Reply{2, prepares_.at(2).epoch, {{"connections", "too many", 0, 0}}});
  step(change_input::Away{2});
  step(change_input::Back{2, 1, 1});
  for (const std::size_t i : {0u, 1u, 3u}) prepared(i);
  EXPECT_THAT(stores_, IsEmpty());
  ASSERT_TRUE(answers_.contains(1));
  EXPECT_THAT(answers_.at(1).problems, ElementsAre(HasSubstr("agent c: connections: too many")));
}

// The others are not known to have heard of a decrease that is to come; until then there is room.
TEST_F(ChangeBookTest, ALeaseIsAsLongAsThereIsRoom) {
  for (const bool goes_on : {true, false}) {
    goes_on_ = goes_on;
    begin();
    ChangeOrder fewer = set_connections(1, 200);
    fewer.at = seconds(50);
    order(fewer);
    all_prepared();
    stored();
    ASSERT_EQ(commits_.size(), 4u);
    step(change_input::Restarted{3});
    EXPECT_EQ(book_->lease(3, now_), goes_on ? seconds(50 - 10) - kLeaseMargin : Duration{});
    now_ = start_ + seconds(46);
    EXPECT_EQ(book_->lease(3, now_), Duration{}) << "too short to be worth it";
    now_ = start_ + seconds(50);
    for (std::size_t i = 0; i < 3; ++i) applied(i);
    EXPECT_EQ(book_->lease(3, now_), seconds(60));
  }
}

TEST_F(ChangeBookTest, WhatIsStoredIsCommittedByTheNextController) {
  begin();
  order(set_connections(1, 800));
  all_prepared();
  ChangeBook::Setup s = setup();
  s.is_adopted = true;
  s.accepted = stores_;
  prepares_.clear();
  book_ = std::make_unique<ChangeBook>(s, now_);
  EXPECT_EQ(book_->epoch(now_ + seconds(5)), 2u);
  step(change_input::Back{0, 1, 0});
  EXPECT_EQ(prepares_.at(0).epoch, 2u);
  prepared(0);
  EXPECT_EQ(commits_.at(0), 2u);
  step(change_input::Back{1, 2, 0});  // it says that it has it
  EXPECT_FALSE(prepares_.contains(1));
}

TEST_F(ChangeBookTest, WhatIsNotStoredWasCommittedNowhere) {
  begin();
  order(set_connections(1, 800));
  all_prepared();
  EXPECT_THAT(commits_, IsEmpty());
  ChangeBook::Setup s = setup();
  s.is_adopted = true;
  prepares_.clear();
  book_ = std::make_unique<ChangeBook>(s, now_);
  for (std::size_t i = 0; i < 4; ++i) step(change_input::Back{i, 1, 0});
  later(seconds(10));
  EXPECT_THAT(prepares_, IsEmpty());
  EXPECT_THAT(commits_, IsEmpty());
}

TEST_F(ChangeBookTest, AfterAdoptionNobodyIsSaidToBeBehindBeforeItIsHeardOf) {
  begin();
  change(set_connections(1, 800));
  ChangeBook::Setup s = setup();
  s.is_adopted = true;
  s.accepted = stores_;
  log_.clear();
  book_ = std::make_unique<ChangeBook>(s, now_);
  later(kSpreadGrace);
  EXPECT_EQ(book_->spread(now_),
            "not back since the controller's restart: 4 of 4 agents (a, b, c, d), at work until "
            "2027-01-15T08:01:13Z at the latest");
  EXPECT_THAT(log_, IsEmpty());
  EXPECT_EQ(book_->agent_state(0, now_).epoch, 0u);
  EXPECT_FALSE(book_->agent_state(0, now_).is_behind);
  EXPECT_THAT(book_->agent_state(0, now_).note, HasSubstr("not back"));

  step(change_input::Back{0, 1});
  for (const std::size_t i : {1u, 2u}) step(change_input::Back{i, 2});
  EXPECT_THAT(book_->spread(now_),
              testing::AllOf(HasSubstr("epoch 2 on 2 of 4 agents: a still on 1 until"),
                             HasSubstr("; not back since the controller's restart: 1 of 4 agents "
                                       "(d), at work until")));
  EXPECT_EQ(book_->agent_state(1, now_).epoch, 2u);
  prepared(0);
  applied(0);
  step(change_input::Back{3, 2});
  EXPECT_EQ(book_->spread(now_), "");
}

TEST_F(ChangeBookTest, AfterAdoptionEverybodyIsTakenToHaveAFullLease) {
  begin();
  ChangeBook::Setup s = setup();
  s.is_adopted = true;
  now_ += std::chrono::minutes(30);
  book_ = std::make_unique<ChangeBook>(s, now_);
  EXPECT_EQ(book_->leased(now_), 400u);
  EXPECT_EQ(book_->leased(now_ + seconds(60)), 400u);
  EXPECT_EQ(book_->leased(now_ + seconds(60) + kLeaseMargin), 0u);
}

TEST_F(ChangeBookTest, ALostCommitIsSaidAgain) {
  begin();
  order(set_connections(1, 200));
  all_prepared();
  stored();
  later(kChangeLead);
  for (std::size_t i = 0; i < 3; ++i) applied(i);
  prepares_.clear();
  commits_.clear();
  later(kChangeRetry);
  EXPECT_EQ(prepares_.size(), 1u);
  prepared(3);
  EXPECT_EQ(commits_.at(3), 2u);
}

TEST_F(ChangeBookTest, AnAgentThatCannotTakeWhatOthersHaveIsNamedAndAskedAgain) {
  begin();
  step(change_input::Away{3});
  order(set_connections(1, 200));
  for (std::size_t i = 0; i < 3; ++i) prepared(i);
  later(kAwayWait);
  stored();
  step(change_input::Back{3, 1, 0});
  step(change_input::Reply{3, 2, {{"allow", "not on its list", 0, 0}}});
  EXPECT_THAT(log_.back(), HasSubstr("agent d cannot take epoch 2, which others have: allow"));
  EXPECT_THAT(book_->agent_state(3, now_).note, HasSubstr("not on its list"));
  prepares_.clear();
  later(kRefusedRetry);
  EXPECT_TRUE(prepares_.contains(3));
}

TEST_F(ChangeBookTest, ALostAgentsConnectionsMoveWhenItsLeaseHasEndedAndComeBack) {
  redistribute_ = Redistribute::after_fence;
  begin();
  step(change_input::Lost{2});
  later(seconds(30));
  for (const std::size_t i : {0u, 1u, 3u}) book_->lease(i, now_);
  EXPECT_THAT(prepares_, IsEmpty());
  later(seconds(32));
  ASSERT_EQ(prepares_.size(), 3u);
  EXPECT_EQ(prepares_.at(0).timeline.epochs.front().parameters.load.connections, 134u);
  for (const std::size_t i : {0u, 1u, 3u}) prepared(i);
  EXPECT_EQ(stores_.at(0).who, "controller");
  EXPECT_EQ(stores_.at(0).what, "connections of c to the others");
  stored();
  later(kChangeLead + kAwayWait);
  for (const std::size_t i : {0u, 1u, 3u}) applied(i);
  EXPECT_EQ(book_->leased(now_), 400u);

  // Back: its old share would be too much together with theirs.
  step(change_input::Back{2, 1, 0});
  EXPECT_EQ(book_->lease(2, now_), Duration{});
  prepared(2);
  applied(2);
  EXPECT_EQ(book_->lease(2, now_), seconds(60));
  commits_.clear();
  later(milliseconds(100));
  all_prepared();
  EXPECT_EQ(stores_.at(1).what, "connections back to c");
  stored();
  EXPECT_FALSE(commits_.contains(2));
  later(kChangeLead);
  for (const std::size_t i : {0u, 1u, 3u}) applied(i);
  EXPECT_TRUE(commits_.contains(2));
  applied(2);
  EXPECT_EQ(book_->timeline().epoch(book_->epoch(now_)).shares[2].parameters.load.connections,
            100u);
}

TEST_F(ChangeBookTest, ByDefaultALostAgentsShareIsNotMoved) {
  begin();
  step(change_input::Lost{2});
  later(std::chrono::minutes(30));
  EXPECT_THAT(prepares_, IsEmpty());
}

TEST_F(ChangeBookTest, ARestartedAgentHasWhatItWasGiven) {
  begin();
  change(set_connections(1, 800));
  prepares_.clear();
  step(change_input::Lost{1});
  step(change_input::Restarted{1});
  step(change_input::Back{1, 0, 0});
  EXPECT_THAT(prepares_, IsEmpty());
  EXPECT_FALSE(book_->agent_state(1, now_).is_behind);
  EXPECT_EQ(book_->leased(now_), 600u);
  EXPECT_EQ(book_->lease(1, now_), seconds(60));
  EXPECT_EQ(book_->leased(now_), 800u);
}

TEST_F(ChangeBookTest, AnEndingRunTakesNoChange) {
  begin();
  order(set_connections(1, 800));
  order(set_connections(2, 900));
  step(change_input::Ending{});
  EXPECT_THAT(answers_.at(1).problems, ElementsAre("the run is ending"));
  EXPECT_EQ(answers_.at(2).exit_code, 4);
  order(set_connections(3, 100));
  EXPECT_THAT(answers_.at(3).problems, ElementsAre("the run is ending"));
}

TEST_F(ChangeBookTest, WhoeverWaitsForAStoreThatCannotBeWrittenIsTold) {
  begin();
  order(set_connections(1, 800));
  order(set_connections(2, 900));
  step(change_input::Unstorable{"disk full"});
  for (const std::uint64_t ticket : {1u, 2u}) {
    EXPECT_THAT(answers_.at(ticket).problems, ElementsAre("disk full"));
    EXPECT_EQ(answers_.at(ticket).exit_code, 1);
    EXPECT_FALSE(answers_.at(ticket).is_undecided);
  }
  EXPECT_EQ(book_->under_way(), nullptr);
}

TEST_F(ChangeBookTest, WhatIsOnItsWayToTheStoreIsMadeWhenItGetsThere) {
  begin();
  order(set_connections(1, 800));
  all_prepared();
  step(change_input::Unstorable{"disk full"});
  EXPECT_THAT(answers_.at(1).problems, ElementsAre("disk full"));
  EXPECT_TRUE(answers_.at(1).is_undecided);
  answers_.clear();
  stored();
  EXPECT_TRUE(commits_.contains(0));
  EXPECT_THAT(answers_, IsEmpty()) << "answered already";
}

TEST_F(ChangeBookTest, FinishedAgentsAreNotWaitedForAndHoldNothing) {
  begin();
  step(change_input::Finished{0});
  EXPECT_EQ(book_->leased(now_), 300u);
  order(set_connections(1, 200));
  for (const std::size_t i : {1u, 2u, 3u}) prepared(i);
  EXPECT_EQ(stores_.size(), 1u);
}

TEST_F(ChangeBookTest, PauseAndMetadataAreToldWithoutSecrets) {
  begin();
  ChangeOrder o = set_connections(1, 400);
  o.change.parts[0].patch = {};
  o.change.parts[0].patch.paused = true;
  o.change.parts[0].patch.metadata = Metadata{{"authorization", "secret"}};
  change(o);
  const auto& d = answers_.at(1).differences;
  ASSERT_EQ(d.size(), 2u);
  EXPECT_EQ(d[0].path, "paused");
  EXPECT_EQ(d[0].from, "false");
  EXPECT_EQ(d[0].to, "true");
  EXPECT_EQ(d[1].path, "call.metadata");
  EXPECT_EQ(d[1].to, "(changed)");
}

// 100 and 300 connections take turns; then all are to have 200.
class KnotTest : public ChangeBookTest {
 protected:
  Duration period_ = seconds(30);
  void SetUp() override {
    Rotation& rotation = plan_.rotation.emplace();
    rotation.every = period_;
    rotation.across = Rotation::Across::agents;
    rotation.sets = {{"few", {}}, {"many", {}}};
    rotation.sets[0].patch.connections = 400;
    rotation.sets[1].patch.connections = 1200;
    begin();
    ASSERT_EQ(book_->leased(now_), 800u);
    order(set_connections(1, 800));
    all_prepared();
  }
};

TEST_F(KnotTest, ThoseWhoWaitForOneAnotherAreToldWhenToHold) {
  stored();
  // Two do more now and less later, two less now and more later.
  ASSERT_EQ(commits_.size(), 2u) << "there is no room for a raise now";
  for (const auto& [agent, hold_from] : hold_from_)
    EXPECT_EQ(hold_from, period_ - kLeaseMargin) << "the others may still have 300 then";
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(book_->lease(i, now_), commits_.contains(i) ? Duration{} : seconds(60))
        << "not before it is known that they know";
  later(milliseconds(100));
  for (const auto& [agent, epoch] : std::map(commits_)) applied(agent);
  ASSERT_EQ(commits_.size(), 4u) << "they have made room";
  for (std::size_t i = 0; i < 4; ++i) applied(i);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(book_->lease(i, now_), seconds(60)) << i;
  EXPECT_EQ(book_->leased(start_ + period_), 800u);
  EXPECT_EQ(book_->leased(start_ + 2 * period_), 800u);
}

TEST_F(KnotTest, AnotherDivisionOfAsManyIsADifference) {
  stored();
  ASSERT_EQ(answers_.at(1).differences.size(), 1u);
  EXPECT_EQ(answers_.at(1).differences[0].path, "load.connections");
  EXPECT_EQ(answers_.at(1).differences[0].from, "800: 100 | 300 an agent");
  EXPECT_EQ(answers_.at(1).differences[0].to, "800: 200 an agent");
}

TEST_F(KnotTest, ALeaseThatWasCutCountsUntilThere) {
  stored();
  const std::size_t cut = commits_.begin()->first;
  applied(cut);
  EXPECT_FALSE(book_->lease_ended(cut, start_ + period_ - Duration(1)));
  EXPECT_TRUE(book_->lease_ended(cut, start_ + period_));
  EXPECT_EQ(book_->lease(cut, now_), period_ - seconds(10) - kLeaseMargin) << "no longer";
}

TEST_F(KnotTest, NobodyIsToldToHoldForOneThatIsAway) {
  step(change_input::Away{0});
  stored();
  EXPECT_TRUE(commits_.empty());
  later(seconds(5));
  EXPECT_TRUE(commits_.empty());
  step(change_input::Back{0, 1, 1});
  step(change_input::Reply{0, prepares_.at(0).epoch, {}});
  EXPECT_FALSE(commits_.empty());
}

TEST_F(KnotTest, TheNextChangeWaitsUntilAllHaveThisOne) {
  order(set_connections(2, 400));
  stored();
  ASSERT_EQ(commits_.size(), 2u);
  for (const auto& [agent, epoch] : std::map(commits_)) applied(agent);
  EXPECT_EQ(stores_.size(), 1u);
  EXPECT_FALSE(answers_.contains(2));
  for (std::size_t i = 0; i < 4; ++i) applied(i);
  all_prepared();
  EXPECT_EQ(stores_.size(), 2u);
}

TEST_F(KnotTest, OneThatCannotTakeItDoesNotKeepTheOthers) {
  step(change_input::Away{0});
  stored();
  ASSERT_TRUE(commits_.empty());
  step(change_input::Back{0, 1, 1});
  step(change_input::Reply{0, prepares_.at(0).epoch, {{"cap", "too much", 200, 100}}});
  later(milliseconds(100));
  EXPECT_FALSE(commits_.empty());
  EXPECT_FALSE(commits_.contains(0));
}

class ShortTurnsTest : public KnotTest {
 protected:
  ShortTurnsTest() { period_ = seconds(2); }
};

TEST_F(ShortTurnsTest, OneAfterAnotherIsTold) {
  stored();
  for (int i = 0; i < 20 && commits_.size() < 4; ++i) {
    for (const auto& [agent, epoch] : std::map(commits_)) applied(agent);
    later(milliseconds(100));
  }
  EXPECT_EQ(commits_.size(), 4u);
}

class KnotInAShortRunTest : public KnotTest {
 protected:
  KnotInAShortRunTest() {
    goes_on_ = false;
    period_ = seconds(10);
  }
};

TEST_F(KnotInAShortRunTest, NobodyIsToldToHoldAndAllKeepTheirLeases) {
  stored();
  for (int i = 0; i < 600; ++i) {
    later(milliseconds(100));
    for (std::size_t a = 0; a < 4; ++a) EXPECT_EQ(book_->lease(a, now_), seconds(60)) << i;
  }
  for (const auto& [agent, hold_from] : hold_from_) EXPECT_FALSE(hold_from) << agent;
  EXPECT_EQ(book_->leased(now_), 800u);
}

TEST_F(KnotTest, OneThatHasNotTakenACommitIsAskedAgain) {
  stored();
  const std::size_t told = commits_.begin()->first;
  prepares_.clear();
  step(change_input::Reply{told, commits_.at(told), {{"plan", "is not prepared", 0, 0}}});
  ASSERT_TRUE(prepares_.contains(told));
  EXPECT_EQ(book_->lease(told, now_), seconds(60)) << "by the old plan";
  commits_.erase(told);
  prepared(told);
  for (int i = 0; i < 10 && !commits_.contains(told); ++i) {
    for (const auto& [agent, epoch] : std::map(commits_)) applied(agent);
    later(milliseconds(100));
  }
  EXPECT_TRUE(commits_.contains(told));
}

TEST_F(ChangeBookTest, ARefusalIsOfOneChangeOnly) {
  begin();
  order(set_connections(1, 800));
  for (const std::size_t i : {0u, 1u, 2u}) prepared(i);
  step(change_input::Reply{3, prepares_.at(3).epoch, {{"cap", "too much", 200, 100}}});
  ASSERT_FALSE(answers_.at(1).problems.empty());
  step(change_input::Away{3});
  order(set_connections(2, 200));
  for (const std::size_t i : {0u, 1u, 2u}) prepared(i);
  later(kAwayWait);
  stored();
  prepares_.clear();
  step(change_input::Back{3, 1, 1});
  ASSERT_TRUE(prepares_.contains(3)) << "it has not been asked for this one";
  prepared(3);
  EXPECT_TRUE(commits_.contains(3));
}

TEST_F(ChangeBookTest, OneThatLacksAChangeGetsNoLeaseForWhatThereIsNoRoomFor) {
  begin();
  step(change_input::Away{0});
  order(set_connections(1, 200));
  for (const std::size_t i : {1u, 2u, 3u}) prepared(i);
  later(kAwayWait);
  stored();
  for (const std::size_t i : {1u, 2u, 3u}) applied(i);
  step(change_input::Back{0, 1, 1});
  EXPECT_EQ(book_->lease(0, now_), Duration{}) << "100 by its own plan, and 50 are left";
  step(change_input::Reply{0, prepares_.at(0).epoch, {}});
  applied(0);
  EXPECT_EQ(book_->lease(0, now_), seconds(60));
}

}  // namespace
}  // namespace spate::controller
