// Changes of parameters through the whole coordinator: from an operator's order to the agents, the
// store and the answer.

#include "controller/agent_wire.h"
#include "controller/coordinator.h"
#include "proto/agent.pb.h"
#include "tests/unit/controller/coordinator_harness.h"

namespace spate::controller {
namespace {

using std::chrono::seconds;
using test::CoordinatorTest;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ChangesTest : public CoordinatorTest {
 protected:
  void begin() {
    start();
    run_ = start_run();
    pass(seconds(2));
  }
  ChangeRequest request(std::vector<std::string> assignments) {
    ChangeRequest r;
    r.run = run_;
    r.assignments = std::move(assignments);
    r.who = "alice";
    return r;
  }
  void order(const ChangeRequest& r) { step(event::ChangeRun{++token_, r, 1'796'034'400'000}); }
  void reply(const std::string& agent, std::vector<AgentProblem> problems = {}) {
    say(agent, AgentEpochReply{run_, sent<SendEpochPrepare>(agent)->epoch, std::move(problems)});
  }
  const ChangeAnswer& answer() {
    EXPECT_EQ(last<action::AnswerChange>()->token, token_);
    return last<action::AnswerChange>()->answer;
  }
  const Change* written() {
    const Change* found = nullptr;
    for (const Action& action : actions_) {
      const auto* write = std::get_if<action::Write>(&action);
      if (write == nullptr) continue;
      if (const auto* put = std::get_if<store_op::PutChange>(&write->op)) found = &put->change;
    }
    return found;
  }
  RunStatus status() {
    step(event::AskStatus{++token_, run_});
    return *last<action::AnswerStatus>()->live;
  }

  std::string run_;
};

TEST_F(ChangesTest, IsPreparedStoredAndThenCommitted) {
  begin();
  order(request({"load.connections=20"}));
  EXPECT_EQ(sent<SendEpochPrepare>("pc-1")->timeline.epochs.front().parameters.load.connections,
            10U);
  reply("pc-1");
  EXPECT_EQ(written(), nullptr);
  reply("pc-2");
  ASSERT_NE(written(), nullptr);
  EXPECT_EQ(written()->who, "alice");
  EXPECT_EQ(sent<SendEpochCommit>("pc-1"), nullptr) << "nobody is told before it is stored";
  EXPECT_EQ(last<action::AnswerChange>(), nullptr);
  step(event::BarrierPassed{barrier_});
  EXPECT_EQ(sent<SendEpochCommit>("pc-1")->epoch, 2U);
  EXPECT_EQ(sent<SendEpochCommit>("pc-2")->epoch, 2U);
  EXPECT_THAT(answer().problems, IsEmpty());
  EXPECT_EQ(answer().epoch, 2U);
  EXPECT_THAT(answer().prepared, ElementsAre("pc-1", "pc-2"));
  pass(seconds(2));
  EXPECT_THAT(events_, HasSubstr("epoch 2 from 1: load.connections=20 by alice"));
}

TEST_F(ChangesTest, OneAgentsCapRefusesItWhole) {
  begin();
  order(request({"load.connections=20"}));
  reply("pc-1");
  reply("pc-2", {{"cap", "--max-connections", 10, 7}});
  EXPECT_THAT(answer().problems, ElementsAre(HasSubstr("agent pc-2: cap: --max-connections")));
  EXPECT_EQ(answer().exit_code, 2);
  EXPECT_EQ(written(), nullptr);
  EXPECT_EQ(sent<SendEpochCommit>("pc-1"), nullptr);
}

TEST_F(ChangesTest, WhatIsWrongIsRefusedBeforeAnybodyIsAsked) {
  begin();
  order(request({"load.conections=20", "interval=2s"}));
  EXPECT_EQ(answer().problems.size(), 2U);
  EXPECT_EQ(answer().exit_code, 2);
  ChangeRequest moved = request({"load.connections=20"});
  moved.if_epoch = 7;
  order(moved);
  EXPECT_EQ(answer().exit_code, 4);
  EXPECT_THAT(answer().problems, ElementsAre(HasSubstr("the run is in epoch 1, not in 7")));
  ChangeRequest nowhere = request({"load.connections=20"});
  nowhere.run = "nothing";
  order(nowhere);
  EXPECT_EQ(answer().exit_code, 4);
  EXPECT_THAT(answer().problems, ElementsAre(HasSubstr("no run nothing is live")));
  EXPECT_EQ(sent<SendEpochPrepare>("pc-1"), nullptr);
}

TEST_F(ChangesTest, StatusTellsHowOldAnAgentsNewestRecordIs) {
  begin();
  test::FakeAgent one("pc-1", 1);
  say("pc-1", record(one, run_, seconds(0)));
  pass(seconds(3));
  const RunStatus s = status();
  EXPECT_EQ(s.live->agents[0].lag, s.live->elapsed - seconds(1));
  EXPECT_EQ(s.live->agents[0].records_waiting, 1U) << "it is not stored yet";
  EXPECT_EQ(s.live->agents[1].lag, s.live->elapsed) << "nothing of it has come";
  say("pc-2", AgentFinished{run_, 0, "capped"});
  EXPECT_EQ(status().live->agents[1].lag, Duration{});
}

TEST_F(ChangesTest, IsRefusedAtOnceWhileNothingCanBeStored) {
  begin();
  step(event::StoreInTrouble{"disk full"});
  ChangeRequest pause = request({});
  pause.verb = ChangeRequest::Verb::pause;
  for (const ChangeRequest& r : {request({"load.connections=20"}), pause}) {
    order(r);
    EXPECT_EQ(answer().exit_code, 1);
    EXPECT_THAT(answer().problems,
                ElementsAre(HasSubstr("cannot store a change: disk full; then")));
  }
  EXPECT_EQ(sent<SendEpochPrepare>("pc-1"), nullptr);
  step(event::StoreRecovered{});
  order(request({"load.connections=20"}));
  EXPECT_NE(sent<SendEpochPrepare>("pc-1"), nullptr);
}

TEST_F(ChangesTest, IsGivenUpIfTheStoreCannotBeWrittenForAWhile) {
  begin();
  order(request({"load.connections=20"}));
  reply("pc-1");
  reply("pc-2");
  step(event::StoreInTrouble{"disk full"});
  pass(kUnstorableAfter - std::chrono::milliseconds(1));
  EXPECT_EQ(last<action::AnswerChange>(), nullptr);
  pass(std::chrono::milliseconds(1));
  ASSERT_NE(last<action::AnswerChange>(), nullptr);
  EXPECT_EQ(answer().exit_code, 1);
  EXPECT_TRUE(answer().is_undecided);
  step(event::StoreRecovered{});
  step(event::BarrierPassed{barrier_});
  ASSERT_NE(sent<SendEpochCommit>("pc-1"), nullptr) << "it was stored in the end";
  EXPECT_EQ(sent<SendEpochCommit>("pc-1")->epoch, 2U);
}

TEST_F(ChangesTest, AHeartbeatSaysWhatAnAgentHas) {
  begin();
  order(request({"load.connections=20"}));
  reply("pc-1");
  reply("pc-2");
  step(event::BarrierPassed{barrier_});
  const auto wire = [](const ControllerMessage& m) { return to_wire(m, 1, 0).epoch_commit(); };
  EXPECT_EQ(wire(*sent<SendEpochCommit>("pc-1")).epoch(), 2U);
  EXPECT_FALSE(wire(*sent<SendEpochCommit>("pc-1")).has_hold_from_ns());
  EXPECT_EQ(wire(SendEpochCommit{run_, 2, Duration(5)}).hold_from_ns(), 5);
  agent::v1::AgentMessage beat;
  beat.mutable_heartbeat()->set_certain(2);
  say("pc-1", from_wire(beat));
  pass(seconds(3));
  EXPECT_EQ(status().live->agents[0].epoch, 2U);
  EXPECT_EQ(status().live->agents[1].epoch, 1U);
}

TEST_F(ChangesTest, StatusTellsWhoIsWhere) {
  begin();
  order(request({"load.connections=20"}));
  reply("pc-1");
  reply("pc-2");
  step(event::BarrierPassed{barrier_});
  pass(seconds(3));
  say("pc-1", AgentEpochApplied{run_, 2, seconds(3)});
  const RunStatus s = status();
  ASSERT_TRUE(s.live);
  EXPECT_EQ(s.live->epoch, 2U);
  EXPECT_EQ(s.live->connections, 20U);
  EXPECT_THAT(s.live->spread, HasSubstr("epoch 2 on 1 of 2 agents: pc-2 still on 1"));
  EXPECT_EQ(s.live->agents[0].epoch, 2U);
  EXPECT_EQ(s.live->agents[1].epoch, 1U);
  EXPECT_NE(s.live->agents[0].lease_until, "");
  ASSERT_EQ(s.changes.size(), 1U);
  EXPECT_EQ(s.changes[0].change.what, "load.connections=20");
  EXPECT_TRUE(s.changes[0].is_due);
  EXPECT_THAT(events_, HasSubstr("epoch 2 on 0 of 2 agents"));
}

TEST_F(ChangesTest, AnAgentWhoseStreamBrokeGetsItOnTheNext) {
  begin();
  cut("pc-2");
  tick_after(std::chrono::milliseconds(100));
  order(request({"call.compress=true"}));
  reply("pc-1");
  for (int i = 0; i < 51; ++i) pass(std::chrono::milliseconds(100));
  step(event::BarrierPassed{barrier_});
  EXPECT_THAT(answer().away, ElementsAre("pc-2"));
  AgentHello back = hello("pc-2", 1);
  back.running = run_;
  back.epoch = 1;
  say_hello(back);
  ASSERT_NE(sent<SendEpochPrepare>("pc-2"), nullptr);
  reply("pc-2");
  EXPECT_EQ(sent<SendEpochCommit>("pc-2")->epoch, 2U);
}

// Its share may be nothing, or paused, until a change gives it something.
TEST_F(ChangesTest, ARestartedAgentThatSendsNothingIsThereAllTheSame) {
  begin();
  cut("pc-2");
  say_hello(successor("pc-2", 2, run_));
  ASSERT_NE(sent<SendPrepare>("pc-2"), nullptr);
  order(request({"load.connections=20"}));
  EXPECT_EQ(sent<SendEpochPrepare>("pc-2"), nullptr) << "it has not answered yet";
  say("pc-2", AgentPrepareReply{run_, {}});
  say("pc-2", AgentArmed{run_, 0, 0, {}});
  ASSERT_NE(sent<SendStart>("pc-2"), nullptr);
  pass(seconds(1));
  ASSERT_NE(sent<SendEpochPrepare>("pc-2"), nullptr);
  reply("pc-1");
  reply("pc-2");
  step(event::BarrierPassed{barrier_});
  EXPECT_THAT(answer().prepared, ElementsAre("pc-1", "pc-2"));
}

TEST_F(ChangesTest, AnEndedRunAnswersWhoWaits) {
  begin();
  order(request({"load.connections=20"}));
  reply("pc-1");
  reply("pc-2");
  step(event::Stop{++token_, run_, true});
  say("pc-1", AgentFinished{run_, 0, "stopped"});
  say("pc-2", AgentFinished{run_, 0, "stopped"});
  EXPECT_EQ(last<action::AnswerChange>()->answer.exit_code, 4);
}

}  // namespace
}  // namespace spate::controller
