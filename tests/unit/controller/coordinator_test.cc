#include "controller/coordinator.h"

#include "tests/unit/controller/coordinator_harness.h"

namespace spate::controller {
namespace {

using std::chrono::seconds;
using test::CoordinatorTest;
using test::FakeAgent;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(CoordinatorTest, TakesARunThroughToItsEnd) {
  start();
  const std::string run = start_run();
  EXPECT_THAT(last<action::AnswerSubmit>()->answer.run, run);
  EXPECT_EQ(info_[run].end, RunEnd::crashed) << "until it has ended well";
  step(event::Watch{++token_, run});
  FakeAgent one("pc-1", 1), two("pc-2", 1);
  say("pc-1", record(one, run, seconds(0)));
  say("pc-2", record(two, run, seconds(0)));
  EXPECT_EQ(sent<SendRecordAck>("pc-1"), nullptr) << "nothing is acknowledged before it is stored";
  commit();
  EXPECT_EQ(sent<SendRecordAck>("pc-1")->seq, 1U);
  pass(seconds(60));
  say("pc-1", AgentFinished{run, 1, "completed"});
  say("pc-2", AgentFinished{run, 1, "completed"});
  EXPECT_EQ(coordinator_->live_run(run), nullptr);
  EXPECT_EQ(info_[run].end, RunEnd::completed);
  ASSERT_NE(barrier_, 0U);
  EXPECT_FALSE(std::holds_alternative<WatchEnd>(last<action::Show>()->line));
  step(event::BarrierPassed{barrier_});
  EXPECT_TRUE(std::holds_alternative<WatchEnd>(last<action::Show>()->line));
}

TEST_F(CoordinatorTest, AnswersASubmissionAndStartsTheRunWhenTheyAreStored) {
  start();
  say_hello(hello("pc-1", 1));
  say_hello(hello("pc-2", 1));
  const std::string run = submit();
  for (const char* agent : {"pc-1", "pc-2"}) {
    say(agent, AgentPrepareReply{run, {}});
    say(agent, AgentArmed{run, 5, 5, {}});
  }
  EXPECT_EQ(last<action::AnswerSubmit>(), nullptr);
  EXPECT_EQ(sent<SendStart>("pc-1"), nullptr);
  pass_barriers();
  ASSERT_NE(last<action::AnswerSubmit>(), nullptr);
  EXPECT_EQ(last<action::AnswerSubmit>()->answer.run, run);
  ASSERT_NE(sent<SendStart>("pc-1"), nullptr);
  EXPECT_EQ(sent<SendStart>("pc-1")->at_controller_ns, info_[run].start_boot_ns);
}

TEST_F(CoordinatorTest, ReleasesAnAgentThatArmsForARunThatHasEnded) {
  start();
  const std::string run = start_run();
  step(event::Stop{++token_, run, true});
  say("pc-1", AgentFinished{run, 0, "stopped"});
  say("pc-2", AgentFinished{run, 0, "stopped"});
  ASSERT_EQ(coordinator_->live_run(run), nullptr);
  actions_.clear();
  say("pc-1", AgentArmed{run, 5, 5, {}});
  ASSERT_NE(sent<SendStop>("pc-1"), nullptr);
  EXPECT_EQ(sent<SendStop>("pc-1")->run, run);
}

TEST_F(CoordinatorTest, SaysWhyWhenASubmissionCannotBeStored) {
  start();
  say_hello(hello("pc-1", 1));
  say_hello(hello("pc-2", 1));
  const std::string run = submit();
  for (const char* agent : {"pc-1", "pc-2"}) {
    say(agent, AgentPrepareReply{run, {}});
    say(agent, AgentArmed{run, 5, 5, {}});
  }
  pass(kArmDeadline + seconds(1));
  ASSERT_NE(last<action::AnswerSubmit>(), nullptr);
  EXPECT_EQ(last<action::AnswerSubmit>()->answer.exit_code, 1);
  EXPECT_THAT(last<action::AnswerSubmit>()->answer.problems, ElementsAre(HasSubstr("stored")));
}

TEST_F(CoordinatorTest, TellsWatchersTheEndEvenIfTheStoreCannotBeWritten) {
  start();
  const std::string run = start_run();
  step(event::Watch{++token_, run});
  step(event::Stop{++token_, run, true});
  EXPECT_TRUE(last<action::AnswerStop>()->answer.has_value());
  say("pc-1", AgentFinished{run, 0, "stopped"});
  say("pc-2", AgentFinished{run, 0, "stopped"});
  tick_after(kFinalCommitDeadline - std::chrono::milliseconds(1));
  EXPECT_FALSE(std::holds_alternative<WatchEnd>(last<action::Show>()->line));
  tick_after(std::chrono::milliseconds(1));
  EXPECT_TRUE(std::holds_alternative<WatchEnd>(last<action::Show>()->line));
}

TEST_F(CoordinatorTest, ARefusedRunIsOnRecord) {
  start();
  const std::string run = submit();
  tick_after(kDefaultWait);
  EXPECT_EQ(last<action::AnswerSubmit>()->answer.exit_code, 1);
  EXPECT_EQ(info_[run].end, RunEnd::failed);
  EXPECT_THAT(info_[run].end_reason, HasSubstr("the plan asks for 2 agents, 0 are there"));
}

TEST_F(CoordinatorTest, StoresWhatIsDeliveredAfterTheEnd) {
  start();
  const std::string run = start_run();
  FakeAgent one("pc-1", 1);
  say("pc-1", record(one, run, seconds(0)));
  commit();
  cut("pc-1");
  pass(seconds(60));
  say("pc-2", AgentFinished{run, 0, "completed"});
  pass(seconds(60));
  ASSERT_EQ(coordinator_->live_run(run), nullptr);
  AgentHello back = hello("pc-1", 1);
  back.running = run;
  say_hello(back);
  EXPECT_EQ(sent<SendRecordAck>("pc-1")->seq, 1U);
  EXPECT_NE(sent<SendStop>("pc-1"), nullptr);
  say("pc-1", record(one, run, seconds(1)));
  EXPECT_EQ(records_.size(), 2U);
  commit();
  EXPECT_EQ(sent<SendRecordAck>("pc-1")->seq, 2U);
}

TEST_F(CoordinatorTest, ClosesStreamsThatDoNotKeepToTheOrder) {
  start();
  step(event::StreamOpened{50});
  step(event::FromAgent{50, AgentHeartbeat{}});
  EXPECT_THAT(last<action::CloseStream>()->reason, HasSubstr("hello"));
  step(event::StreamOpened{51});
  tick_after(kHelloDeadline);
  EXPECT_EQ(last<action::CloseStream>()->stream, 51U);
  start_run();
  say("pc-1", AgentNonsense{"not a message"});
  EXPECT_THAT(events_, HasSubstr("agent sent nonsense agent=pc-1"));
  EXPECT_EQ(last<action::CloseStream>()->stream, streams_.at("pc-1"));
}

TEST_F(CoordinatorTest, AnswersOperators) {
  start();
  step(event::Stop{++token_, "nothing", false});
  EXPECT_EQ(last<action::AnswerStop>()->answer.error().code, ErrorCode::not_found);
  step(event::Watch{++token_, ""});
  EXPECT_EQ(last<action::RefuseWatcher>()->error.code, ErrorCode::not_found);
  step(event::Watch{++token_, "old"});
  EXPECT_EQ(last<action::ShowStoredEnd>()->run, "old");
  const std::string run = start_run();
  step(event::ListAgents{++token_});
  ASSERT_EQ(last<action::AnswerAgents>()->agents.size(), 2U);
  EXPECT_EQ(last<action::AnswerAgents>()->agents[0].run, run);
  step(event::ListRuns{++token_, ""});
  ASSERT_EQ(last<action::AnswerRuns>()->live.size(), 1U);
  EXPECT_EQ(last<action::AnswerRuns>()->live[0].state, "running");
  EXPECT_EQ(last<action::AnswerRuns>()->token, token_);
}

// What the store gives to the process after this one.
class RestartTest : public CoordinatorTest {
 protected:
  void restart(Duration away) {
    Restored restored;
    restored.alive_wall_ms = kWallMs + (now_ - from_ns(kBegin)) / std::chrono::milliseconds(1);
    for (const auto& [id, info] : info_) {
      if (info.state == RunState::finished) continue;
      Restored::Run run;
      run.info = info;
      run.aggregate = std::make_unique<Aggregate>(info);
      for (const Record& r : records_) {
        run.aggregate->add(r);
        run.finished_requests += r.finished();
        run.covered_to[r.key.agent] = r.start + r.length;
        std::erase_if(run.marks, [&](const Mark& m) {
          return m.agent == r.key.agent && m.incarnation == r.key.incarnation;
        });
        run.marks.push_back({id, r.key.agent, r.key.incarnation, r.key.seq});
      }
      restored.runs.push_back(std::move(run));
    }
    now_ += away;
    streams_.clear();
    actions_.clear();
    start(std::move(restored));
    step(event::Tick{});
  }
  void come_back(const std::string& name, std::uint64_t incarnation, const std::string& run) {
    AgentHello h = hello(name, incarnation);
    h.cluster = kCluster;
    h.term = term_ - 1;
    h.running = run;
    say_hello(h);
  }
};

TEST_F(RestartTest, ARunOutlivesItsController) {
  start();
  const std::string run = start_run();
  FakeAgent one("pc-1", 1), two("pc-2", 1);
  for (int s = 0; s < 3; ++s) {
    say("pc-1", record(one, run, seconds(s)));
    say("pc-2", record(two, run, seconds(s)));
  }
  commit();
  const auto t = info_[run].start_boot_ns;
  restart(seconds(41));
  ASSERT_NE(coordinator_->live_run(run), nullptr);
  EXPECT_THAT(events_, HasSubstr("controller restarted away_s=4"));
  EXPECT_EQ(to_ns(*coordinator_->live_run(run)->run().start()), t);
  come_back("pc-1", 1, run);
  come_back("pc-2", 1, run);
  EXPECT_EQ(sent<SendRecordAck>("pc-1")->seq, 3U);
  EXPECT_EQ(sent<SendPrepare>("pc-1"), nullptr);
  for (int s = 3; s < 60; ++s) {
    say("pc-1", record(one, run, seconds(s)));
    say("pc-2", record(two, run, seconds(s)));
  }
  EXPECT_THAT(events_, HasSubstr("records came late after the controller's restart count="));
  commit();
  pass(seconds(20));
  say("pc-1", AgentFinished{run, 60, "completed"});
  say("pc-2", AgentFinished{run, 60, "completed"});
  EXPECT_EQ(coordinator_->live_run(run), nullptr);
  EXPECT_EQ(info_[run].end, RunEnd::completed);
  EXPECT_EQ(outcome_[run].verdict, "VALID");
  EXPECT_EQ(outcome_[run].requests, 600U);
}

TEST_F(RestartTest, ARunOfWhichNobodyIsHeardIsClosedAsCrashed) {
  start();
  const std::string run = start_run();
  restart(seconds(5));
  pass(kAdoptionWait);
  EXPECT_THAT(events_, HasSubstr("agent lost agent=pc-1"));
  pass(seconds(60) + std::chrono::minutes(10));
  EXPECT_EQ(coordinator_->live_run(run), nullptr);
  EXPECT_EQ(info_[run].end, RunEnd::crashed);
  EXPECT_EQ(outcome_[run].verdict, "INVALID");
}

TEST_F(RestartTest, ARunThatWasNotStartedIsClosedAsCrashed) {
  start();
  say_hello(hello("pc-1", 1));
  const std::string run = submit();
  restart(seconds(1));
  EXPECT_EQ(coordinator_->live_run(run), nullptr);
  EXPECT_EQ(info_[run].end, RunEnd::crashed);
  EXPECT_EQ(info_[run].state, RunState::finished);
}

TEST_F(RestartTest, LearnsTheStartFromAgentsAfterAReboot) {
  start();
  const std::string run = start_run();
  boot_id_ = "boot-2";
  now_ = from_ns(5'000'000'000);  // the clock begins anew
  restart(Duration{});
  ASSERT_NE(coordinator_->live_run(run), nullptr);
  EXPECT_FALSE(coordinator_->live_run(run)->run().is_start_known());
  AgentHello back = hello("pc-1", 1);
  back.running = run;
  back.run_start_agent_ns = 700'000'000'000;
  say_hello(back);
  say("pc-1", AgentHeartbeat{0, 0, -1, 0});
  EXPECT_FALSE(coordinator_->live_run(run)->run().is_start_known()) << "no offset yet";
  say("pc-1", AgentHeartbeat{0, -696'000'000'000, 1000, 0});
  EXPECT_EQ(to_ns(*coordinator_->live_run(run)->run().start()), 4'000'000'000);
  EXPECT_EQ(info_[run].boot_id, "boot-2");
}

TEST_F(RestartTest, AnAgentThatWasRestartedMeanwhileRejoins) {
  start();
  const std::string run = start_run();
  FakeAgent one("pc-1", 1);
  say("pc-1", record(one, run, seconds(0)));
  commit();
  restart(seconds(5));
  AgentHello back = hello("pc-1", 2);
  back.accounts = {{run, 1, 2, "killed"}};
  say_hello(back);
  EXPECT_EQ(sent<SendRecordAck>("pc-1")->seq, 1U);
  ASSERT_NE(sent<SendPrepare>("pc-1"), nullptr);
  say("pc-1", AgentPrepareReply{run, {}});
  say("pc-1", AgentArmed{run, 5, 5, {}});
  ASSERT_NE(sent<SendStart>("pc-1"), nullptr);
  EXPECT_EQ(sent<SendStart>("pc-1")->at_controller_ns, info_[run].start_boot_ns);
  // What the process that died had left comes from the one that follows.
  say("pc-1", record(one, run, seconds(1)));
  FakeAgent next("pc-1", 2);
  say("pc-1", record(next, run, seconds(7)));
  EXPECT_EQ(records_.size(), 3U);
  EXPECT_THAT(events_, HasSubstr("agent back in its share agent=pc-1 gap_s=5.0 cause=\"killed\""));
}

TEST_F(RestartTest, AnAgentThatCouldNotRejoinBeforeIsToldOfAStopAndWaitedFor) {
  start();
  const std::string run = start_run();
  say_hello(successor("pc-1", 2, run));
  say("pc-1", AgentPrepareReply{run, {{"target", "connection refused", 0, 0}}});
  restart(seconds(5));
  say_hello(hello("pc-2", 1));
  say_hello(successor("pc-1", 2, run));
  say("pc-1", AgentPrepareReply{run, {}});
  say("pc-1", AgentArmed{run, 5, 5, {}});
  say("pc-1", AgentHeartbeat{});
  EXPECT_EQ(sent<SendHeartbeatReply>("pc-1")->leased_run, run);
  step(event::Stop{++token_, run, false});
  EXPECT_NE(sent<SendStop>("pc-1"), nullptr);
  say("pc-2", AgentFinished{run, 0, "stopped"});
  ASSERT_NE(coordinator_->live_run(run), nullptr) << "pc-1 has not finished";
  EXPECT_EQ(coordinator_->live_run(run)->run().stage(), RunStage::draining);
}

TEST_F(CoordinatorTest, AStoreThatCouldNotBeWrittenForAWhileIsToldAndIsNoReason) {
  start();
  const std::string run = start_run();
  step(event::StoreInTrouble{"disk full"});
  step(event::AskStatus{++token_, run});
  EXPECT_EQ(last<action::AnswerStatus>()->live->live->store_trouble, "disk full");
  EXPECT_THAT(events_, HasSubstr("disk full"));
  FakeAgent one("pc-1", 1), two("pc-2", 1);
  for (int s = 0; s < 60; ++s) {
    say("pc-1", record(one, run, seconds(s)));
    say("pc-2", record(two, run, seconds(s)));
  }
  commit();
  step(event::StoreRecovered{});
  step(event::AskStatus{++token_, run});
  EXPECT_EQ(last<action::AnswerStatus>()->live->live->store_trouble, "");
  pass(seconds(60));
  say("pc-1", AgentFinished{run, 60, "completed"});
  say("pc-2", AgentFinished{run, 60, "completed"});
  EXPECT_EQ(outcome_[run].verdict, "VALID");
}

TEST_F(CoordinatorTest, TellsRunsOfAnAgentsClockAndDisk) {
  start();
  const std::string run = start_run();
  say("pc-1", AgentHeartbeat{0, 0, 0, 0, 7'200'000'000'000, ""});
  say("pc-1", AgentHeartbeat{0, 0, 0, 0, 3'600'000'000'000, "disk full"});
  EXPECT_THAT(events_, HasSubstr("clock stepped agent=pc-1 by=-1h"));
  EXPECT_THAT(events_, HasSubstr("spool in trouble agent=pc-1 cause=\"disk full\""));
  step(event::AskStatus{++token_, run});
  EXPECT_EQ(last<action::AnswerStatus>()->live->live->agents[0].note, "disk full");
  say("pc-1", AgentHeartbeat{0, 0, 0, 0, 3'600'000'000'000, ""});
  EXPECT_THAT(events_, HasSubstr("spool works again agent=pc-1"));
}

TEST_F(CoordinatorTest, TellsRunsOfItsOwnClockAndOfOnesThatDiffer) {
  constexpr std::int64_t kHour = 3'600'000'000'000;
  start();
  step(event::Tick{100 * kHour});
  say_hello(hello("pc-1", 1));
  say("pc-1", AgentHeartbeat{0, 0, 0, 0, 99 * kHour, ""});
  EXPECT_THAT(log_, HasSubstr("clock differs from the controller's agent=pc-1 by=-1h"));
  start_run();
  EXPECT_THAT(events_, HasSubstr("clock differs from the controller's agent=pc-1 by=-1h"))
      << "also if it was known before the run";
  step(event::ListAgents{++token_});
  EXPECT_THAT(last<action::AnswerAgents>()->agents[0].note, HasSubstr("by -1h"));
  step(event::Tick{99 * kHour});
  EXPECT_THAT(events_, HasSubstr("clock stepped controller by=-1h"));
}

TEST_F(CoordinatorTest, TellsARunThatTheStoreWillBeFullBeforeItsEnd) {
  start();
  const std::string run = start_run();
  // Twice as much as the run's minute needs; then half as much.
  constexpr std::uint64_t kMiB = 1 << 20;
  now_ -= kGrowthWindowMin;
  step(event::StoreMeasured{{kMiB, kMiB}});
  now_ += kGrowthWindowMin;
  step(event::StoreMeasured{{2 * kMiB, kMiB / 2}});
  EXPECT_THAT(events_, testing::Not(HasSubstr("store is filling")));
  step(event::AskStatus{++token_, run});
  EXPECT_THAT(last<action::AnswerStatus>()->live->live->store_space,
              HasSubstr("about 2 min left at the growth of the last 5 min"));
  step(event::StoreMeasured{{2 * kMiB, kMiB / 8}});
  step(event::StoreMeasured{{2 * kMiB, kMiB / 9}});
  EXPECT_THAT(events_, HasSubstr("store is filling: 2 MiB, 128 KiB free: about 37 s left"));
  EXPECT_THAT(events_, testing::Not(HasSubstr("114 KiB"))) << "once";
}

TEST_F(CoordinatorTest, LogsARefusalOnceUntilItIsAnotherOne) {
  start();
  const auto times = [&](const std::string& text) {
    std::size_t n = 0;
    for (std::size_t at = log_.find(text); at != log_.npos; at = log_.find(text, at + 1)) ++n;
    return n;
  };
  AgentHello old = hello("pc-1", 1);
  old.protocol = kProtocolVersion + 1;
  for (int i = 0; i < 5; ++i) {
    say_hello(old);
    EXPECT_NE(sent<SendRejected>("pc-1"), nullptr) << "it is told each time";
  }
  EXPECT_EQ(times("agent refused agent=pc-1"), 1U);
  old.cluster = "another";
  old.running = "run-1";
  say_hello(old);
  EXPECT_EQ(times("agent refused agent=pc-1"), 2U) << "another reason";
  tick_after(kRefusalAgainAfter);
  say_hello(old);
  EXPECT_EQ(times("agent refused agent=pc-1"), 3U) << "still refused";
  say_hello(hello("pc-1", 1));
  say_hello(old);
  EXPECT_EQ(times("agent refused agent=pc-1"), 4U) << "it was accepted in between";
}

TEST_F(CoordinatorTest, GrantsLeasesWhileARunIsLive) {
  start();
  const std::string run = start_run();
  say("pc-1", AgentHeartbeat{});
  EXPECT_EQ(sent<SendHeartbeatReply>("pc-1")->leased_run, run);
  EXPECT_EQ(sent<SendHeartbeatReply>("pc-1")->lease, std::chrono::minutes(10));
  say("pc-1", AgentFinished{run, 0, "completed"});
  say("pc-1", AgentHeartbeat{});
  EXPECT_EQ(sent<SendHeartbeatReply>("pc-1")->leased_run, "");
}

TEST_F(CoordinatorTest, EndsWhenAnAgentHasSeenAHigherTerm) {
  start();
  AgentHello h = hello("pc-1", 1);
  h.cluster = kCluster;
  h.term = 9;
  say_hello(h);
  ASSERT_NE(last<action::Exit>(), nullptr);
  EXPECT_EQ(last<action::Exit>()->code, kExitSuperseded);
  EXPECT_THAT(log_, HasSubstr("term 1 superseded by 9"));
  EXPECT_EQ(sent<SendWelcome>("pc-1"), nullptr);
  actions_.clear();
  say_hello(hello("pc-2", 1));
  EXPECT_TRUE(actions_.empty());
}

TEST_F(CoordinatorTest, EndsWhenAnotherControllerHasTheStore) {
  start();
  step(event::StoreTakenOver{4});
  EXPECT_EQ(last<action::Exit>()->code, kExitSuperseded);
}

TEST_F(CoordinatorTest, RefusesAnAgentAtWorkForAnotherController) {
  start();
  AgentHello h = hello("pc-1", 1);
  h.cluster = "fedcba98";
  h.term = 100;
  h.running = "their-run";
  say_hello(h);
  EXPECT_THAT(sent<SendRejected>("pc-1")->reason,
              HasSubstr("run their-run for another controller"));
  h.running.clear();
  h.accounts = {{"their-run", 1, 7, "killed", true}};
  say_hello(h);
  EXPECT_THAT(sent<SendRejected>("pc-1")->reason, HasSubstr("has records of run their-run"));
  h.accounts[0].waiting = false;
  say_hello(h);
  EXPECT_EQ(sent<SendWelcome>("pc-1")->cluster, kCluster);
}

TEST_F(CoordinatorTest, HoldsBothOfACopiedMachine) {
  start();
  const std::string run = start_run();
  const StreamId first = streams_.at("pc-1");
  AgentHello copy = hello("pc-1", 1);
  copy.nonce = 99;
  copy.peer = "10.0.0.9";
  say_hello(copy);
  EXPECT_THAT(sent<SendRejected>("pc-1")->reason, HasSubstr("identity used twice"));
  EXPECT_THAT(sent<SendRejected>("pc-1")->reason, HasSubstr("10.0.0.9"));
  EXPECT_THAT(events_, HasSubstr("identity used twice agent=pc-1"));
  bool is_first_stopped = false;
  for (const Action& a : actions_) {
    const auto* send = std::get_if<action::Send>(&a);
    if (send != nullptr && send->stream == first)
      is_first_stopped = is_first_stopped || std::holds_alternative<SendStop>(send->message);
  }
  EXPECT_TRUE(is_first_stopped);
  // With an identity of its own for the copy, the next start of the other is welcome.
  say_hello(successor("pc-1", 2, run));
  EXPECT_NE(sent<SendWelcome>("pc-1"), nullptr);
}

// It has the higher number, and has never heard of the process that has the share: that one may be
// at work on another machine.
TEST_F(CoordinatorTest, HoldsAnAgentWhoseFolderDoesNotKnowTheProcessWithItsShare) {
  start();
  std::string plan = test::kScript;
  plan.insert(plan.find("\"interval\""), "\"on_controller_loss\": \"stop\", ");
  start_run(plan);
  cut("pc-1");
  say_hello(hello("pc-1", 2));
  EXPECT_THAT(sent<SendRejected>("pc-1")->reason, HasSubstr("identity used twice"));
  EXPECT_EQ(sent<SendPrepare>("pc-1"), nullptr);
  say_hello(hello("pc-1", 2));
  EXPECT_NE(sent<SendRejected>("pc-1"), nullptr) << "the lease lives";
  pass(kShortLease + kLeaseMargin);
  say_hello(hello("pc-1", 2));
  EXPECT_NE(sent<SendPrepare>("pc-1"), nullptr) << "whoever it was has stopped";
}

TEST_F(CoordinatorTest, AShutDownLeavesRunsToTheNextProcess) {
  start();
  const std::string run = start_run();
  say_hello(hello("pc-3", 1));
  step(event::ShutDown{});
  EXPECT_EQ(info_[run].state, RunState::running);
  EXPECT_EQ(last<action::Exit>()->code, 0);
  EXPECT_EQ(sent<SendStop>("pc-1"), nullptr);
}

TEST_F(CoordinatorTest, AShutDownRefusesWhatHasNotStarted) {
  start();
  const std::string run = submit();
  step(event::ShutDown{});
  EXPECT_THAT(last<action::AnswerSubmit>()->answer.problems.at(0), HasSubstr("shut down"));
  EXPECT_EQ(info_[run].state, RunState::finished);
}

}  // namespace
}  // namespace spate::controller
