#include "controller/coordinator.h"

#include "tests/unit/controller/coordinator_harness.h"

namespace spate::controller {
namespace {

using std::chrono::seconds;
using test::CoordinatorTest;
using test::FakeAgent;
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
  tick_after(kLostAfter);
  say("pc-2", AgentFinished{run, 0, "completed"});
  pass(seconds(120));
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

}  // namespace
}  // namespace spate::controller
