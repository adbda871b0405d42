#include "controller/run.h"

#include <gmock/gmock.h>

#include <numeric>

#include "controller/orders.h"
#include "controller/run_shares.h"
#include "tests/unit/controller/run_data.h"

namespace spate::controller {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// A run under a manual clock, with what it asked for sorted by kind.
class RunTest : public testing::Test {
 protected:
  void make(std::uint32_t agents, std::string probe = "", Duration length = seconds(10)) {
    controller::Run::Order order;
    order.id = "demo-x";
    order.plan = plan_;
    order.plan.name = "demo";
    order.plan.target.url = "grpc://127.0.0.1:7000";
    order.plan.target.probe = std::move(probe);
    order.plan.agents = agents;
    order.plan.drain = seconds(5);
    order.plan.phases = {test::phase("flood", length, true, 10)};
    order.wait = seconds(10);
    order.wall_ms = 1'000'000;
    run_ = std::make_unique<controller::Run>(std::move(order), now_);
  }

  void step(const RunInput& input) {
    for (const RunAction& action : run_->step(input, now_)) {
      if (const auto* send = std::get_if<run_action::Send>(&action)) sent_.push_back(*send);
      if (const auto* refused = std::get_if<run_action::Refused>(&action)) refused_ = *refused;
      if (const auto* log = std::get_if<run_action::Log>(&action)) log_ += log->text + "\n";
      accepted_ += std::holds_alternative<run_action::Accepted>(action);
      sampling_ += std::holds_alternative<run_action::StartSampling>(action);
      final_samples_ += std::holds_alternative<run_action::TakeFinalSample>(action);
      closed_ += std::holds_alternative<run_action::Close>(action);
    }
  }
  void tick_after(Duration d) {
    now_ += d;
    step(run_input::Tick{});
  }
  template <class Message>
  std::vector<std::string> receivers() const {
    std::vector<std::string> names;
    for (const auto& s : sent_) {
      if (std::holds_alternative<Message>(s.message)) names.push_back(s.agent);
    }
    return names;
  }
  template <class Message>
  const Message& last() const {
    const Message* found = nullptr;
    for (const auto& s : sent_) {
      if (const auto* m = std::get_if<Message>(&s.message)) found = m;
    }
    EXPECT_NE(found, nullptr);
    return *found;
  }

  void agents_come(int count) {
    run_input::Agents agents;
    for (int i = 1; i <= count; ++i)
      agents.online.push_back({"pc-" + std::to_string(i), 100U + static_cast<unsigned>(i), "",
                               "id-" + std::to_string(i)});
    step(agents);
  }
  static std::uint64_t incarnation_of(const std::string& agent) {
    return 100U + static_cast<unsigned>(agent.back() - '0');
  }
  void accept(const std::string& agent) { step(run_input::PrepareReply{agent, {}}); }
  void arm(const std::string& agent) { step(run_input::Armed{agent, {"demo-x", 5, 5, {}}}); }
  void rotate_hourly() {
    Rotation& rotation = plan_.rotation.emplace();
    rotation.every = std::chrono::hours(1);
    rotation.sets = {{"a", {}}, {"b", {}}};
    rotation.sets[1].patch.compress = true;
  }
  // Two agents up to the stage `running`.
  void start() {
    agents_come(2);
    accept("pc-1");
    accept("pc-2");
    arm("pc-1");
    arm("pc-2");
    step(run_input::StartStored{});
    tick_after(kStartLead);
    EXPECT_EQ(run_->stage(), RunStage::running);
    sent_.clear();
  }
  void finish(const std::string& agent, std::uint64_t records,
              const std::string& reason = "completed") {
    step(run_input::Committed{agent, records, incarnation_of(agent)});
    step(run_input::Finished{agent, records, reason});
  }

  Plan plan_;  // what make() does not set
  Instant now_ = from_ns(1'000'000'000'000);
  std::unique_ptr<controller::Run> run_;
  std::vector<run_action::Send> sent_;
  run_action::Refused refused_{{}, -1};
  std::string log_;
  int accepted_ = 0, sampling_ = 0, final_samples_ = 0, closed_ = 0;
};

TEST_F(RunTest, PlansItsStartIfChangeOversGoByWallClock) {
  rotate_hourly();
  plan_.rotation->at = "00:17";  // 20 s after the submission
  const Duration ahead = kStartLead + kUsualArmTime + std::chrono::milliseconds(50);
  make(2, "", seconds(60));
  agents_come(2);
  const Instant planned = now_ + ahead;
  EXPECT_EQ(last<SendPrepare>().timeline.segments.at(1).offset, seconds(20) - ahead);
  accept("pc-1");
  accept("pc-2");
  tick_after(seconds(1));
  arm("pc-1");
  arm("pc-2");
  step(run_input::StartStored{});
  EXPECT_EQ(last<SendStart>().at_controller_ns, to_ns(planned));
  EXPECT_EQ(run_->info().started_wall_ms, 1'005'550);
  EXPECT_EQ(timeline_of(run_->info())->segments.at(1).offset, seconds(20) - ahead);
  EXPECT_THAT(log_, Not(HasSubstr("late by_ms")));
}

TEST_F(RunTest, SaysByHowMuchChangeOversAreLate) {
  rotate_hourly();
  plan_.rotation->at = "00:17";
  make(2, "", seconds(60));
  agents_come(2);
  const SendPrepare prepared = last<SendPrepare>();
  accept("pc-1");
  accept("pc-2");
  tick_after(seconds(7));
  arm("pc-1");
  arm("pc-2");
  EXPECT_THAT(log_, HasSubstr("change-overs are late by_ms=1950"));
  step(run_input::StartStored{});
  EXPECT_EQ(last<SendStart>().at_controller_ns, to_ns(now_ + kStartLead));
  // It is what the agents have all the same.
  EXPECT_EQ(timeline_of(run_->info())->segments, prepared.timeline.segments);
}

TEST_F(RunTest, SaysWhichOwnerAllowsHowMuch) {
  make(2);
  agents_come(2);
  step(run_input::PrepareReply{"pc-1", {}, 500});
  accept("pc-2");
  EXPECT_THAT(log_, HasSubstr("agent capped by its owner agent=pc-1 max_rate=500/s"));
  EXPECT_THAT(log_, Not(HasSubstr("agent=pc-2 max_rate")));
}

TEST_F(RunTest, GoesFromSubmissionToItsEnd) {
  make(2, "127.0.0.1:7001");
  agents_come(1);
  EXPECT_EQ(run_->stage(), RunStage::waiting);
  agents_come(3);
  EXPECT_EQ(run_->stage(), RunStage::preparing);
  EXPECT_THAT(receivers<SendPrepare>(), ElementsAre("pc-1", "pc-2"));
  accept("pc-1");
  EXPECT_EQ(accepted_, 0);
  accept("pc-2");
  EXPECT_EQ(accepted_, 1);
  arm("pc-2");
  arm("pc-1");
  EXPECT_EQ(run_->stage(), RunStage::arming);
  EXPECT_EQ(run_->info().start_boot_ns, to_ns(now_ + kStartLead)) << "it is being stored";
  EXPECT_TRUE(receivers<SendStart>().empty());
  step(run_input::StartStored{});
  EXPECT_EQ(run_->stage(), RunStage::armed);
  EXPECT_EQ(run_->info().state, RunState::armed);
  EXPECT_EQ(sampling_, 1);
  EXPECT_THAT(receivers<SendStart>(), ElementsAre("pc-1", "pc-2"));
  EXPECT_EQ(last<SendStart>().at_controller_ns, to_ns(now_ + kStartLead));
  EXPECT_EQ(run_->info().started_wall_ms, 1'000'500);
  tick_after(kStartLead);
  EXPECT_EQ(run_->stage(), RunStage::running);
  step(run_input::Started{"pc-1", to_ns(*run_->start()) + 2000, 900});
  EXPECT_EQ(run_->info().agents[0].start_skew_ns, 2000);
  tick_after(seconds(10));
  EXPECT_EQ(run_->stage(), RunStage::draining);
  EXPECT_TRUE(receivers<SendStop>().empty());  // they know the plan's end
  finish("pc-1", 10);
  step(run_input::Finished{"pc-2", 10, "completed"});
  EXPECT_EQ(run_->stage(), RunStage::collecting);
  EXPECT_EQ(final_samples_, 1);
  step(run_input::FinalSample{true});
  EXPECT_EQ(closed_, 0);  // the records of pc-2 are not committed yet
  step(run_input::Committed{"pc-2", 10, 102});
  EXPECT_EQ(closed_, 1);
  EXPECT_EQ(run_->info().end, RunEnd::completed);
  EXPECT_EQ(run_->info().state, RunState::finished);
  EXPECT_EQ(run_->info().length, seconds(10));
}

TEST_F(RunTest, SaysWhichAgentsAreThereWhenTooFewCome) {
  make(3);
  run_input::Agents agents;
  agents.online = {{"pc-1", 1, ""}, {"pc-2", 2, "other-run"}};
  step(agents);
  tick_after(seconds(9));
  EXPECT_EQ(closed_, 0);
  tick_after(seconds(1));
  EXPECT_EQ(refused_.exit_code, 1);
  ASSERT_EQ(refused_.problems.size(), 1U);
  EXPECT_THAT(refused_.problems[0],
              HasSubstr("asks for 3 agents, 1 are there after waiting 10s: pc-1"));
  EXPECT_THAT(refused_.problems[0], HasSubstr("pc-2 (in other-run)"));
  EXPECT_EQ(closed_, 1);
}

TEST_F(RunTest, ReturnsTheProblemsOfAllAgentsAtOnce) {
  make(3);
  agents_come(3);
  step(run_input::PrepareReply{"pc-1", {{"descriptors", "too few", 5000, 1024}}});
  EXPECT_EQ(refused_.exit_code, -1);
  accept("pc-2");
  step(run_input::PrepareReply{"pc-3", {{"allow", "10.0.0.1 is not on the list", 0, 0}}});
  EXPECT_EQ(refused_.exit_code, 2);
  EXPECT_THAT(refused_.problems,
              ElementsAre("agent pc-1: descriptors: too few (needed 5,000, there are 1,024)",
                          "agent pc-3: allow: 10.0.0.1 is not on the list"));
  EXPECT_THAT(receivers<SendStop>(), ElementsAre("pc-2"));  // the only one that had accepted
  EXPECT_EQ(run_->info().end, RunEnd::failed);
  EXPECT_EQ(closed_, 1);
}

TEST_F(RunTest, RefusesWhenAnAgentDoesNotAnswerItsShare) {
  make(2);
  agents_come(2);
  accept("pc-1");
  tick_after(kPrepareDeadline);
  EXPECT_THAT(refused_.problems, ElementsAre(HasSubstr("pc-2: no answer to its share within 30s")));
  EXPECT_EQ(refused_.exit_code, 1);
}

TEST_F(RunTest, RefusesWhenAnAgentIsLostWhilePreparing) {
  make(2);
  agents_come(2);
  step(run_input::Lost{"pc-2", "its stream broke"});
  EXPECT_EQ(closed_, 0);  // pc-1 may have something to say, too
  accept("pc-1");
  EXPECT_THAT(refused_.problems,
              ElementsAre(HasSubstr("pc-2: lost: was lost before it answered: its stream broke")));
  EXPECT_EQ(refused_.exit_code, 1);
  EXPECT_THAT(receivers<SendStop>(), ElementsAre("pc-1"));
}

TEST_F(RunTest, FreesAnAgentThatWasLostWhilePreparingAndCameBack) {
  make(2);
  agents_come(2);
  accept("pc-2");
  step(run_input::Lost{"pc-2", "no heartbeat for 5s"});
  step(run_input::Back{"pc-2", true});
  step(run_input::PrepareReply{"pc-1", {{"target", "does not answer", 0, 0}}});
  EXPECT_EQ(run_->stage(), RunStage::finished);
  EXPECT_THAT(receivers<SendStop>(), ElementsAre("pc-2"));
}

TEST_F(RunTest, FailsWhenConnectionsAreNotOpenInTime) {
  make(2);
  agents_come(2);
  accept("pc-1");
  accept("pc-2");
  arm("pc-1");
  tick_after(kArmDeadline);
  EXPECT_EQ(closed_, 0);  // and 10 ms for each of its 5 connections
  tick_after(milliseconds(50));
  EXPECT_EQ(closed_, 1);
  EXPECT_THAT(run_->info().end_reason, HasSubstr("pc-2"));
  EXPECT_EQ(run_->info().end, RunEnd::failed);
  EXPECT_THAT(receivers<SendStop>(), ElementsAre("pc-1", "pc-2"));
}

TEST_F(RunTest, FailsWhenAnAgentIsLostBeforeTheStart) {
  make(2);
  agents_come(2);
  accept("pc-1");
  accept("pc-2");
  arm("pc-1");
  arm("pc-2");
  step(run_input::Lost{"pc-2", "no heartbeat"});
  EXPECT_EQ(closed_, 1);
  EXPECT_THAT(run_->info().end_reason, HasSubstr("pc-2 was lost before the start"));
  EXPECT_EQ(run_->info().started_wall_ms, 0);
  EXPECT_THAT(receivers<SendStop>(), ElementsAre("pc-1"));
}

TEST_F(RunTest, GoesOnWithTheOthersWhenAnAgentIsLost) {
  make(2);
  start();
  now_ += seconds(4);
  step(run_input::Lost{"pc-2", "its stream broke"});
  EXPECT_EQ(run_->stage(), RunStage::running);
  EXPECT_EQ(run_->info().agents[1].lost_at_ns, 4'000'000'000);
  tick_after(seconds(6));
  finish("pc-1", 10);
  EXPECT_EQ(closed_, 1);
  EXPECT_EQ(run_->info().end, RunEnd::completed);
  EXPECT_EQ(run_->info().agents[1].lost_reason, "its stream broke");
  EXPECT_FALSE(run_->info().agents[1].last_seq.has_value());
}

TEST_F(RunTest, WaitsForAgentsThatMayBeAtWorkWhenEveryOneIsLost) {
  make(2);
  start();
  now_ += seconds(4);
  step(run_input::Lost{"pc-1", "gone"});
  step(run_input::Lost{"pc-2", "gone"});
  EXPECT_THAT(log_, HasSubstr("2 of 2 agents were lost within 30s"));
  tick_after(seconds(6));
  EXPECT_EQ(run_->stage(), RunStage::draining);
  // Their leases of ten minutes may live until then.
  tick_after(seconds(60));
  tick_after(run_->info().plan.controller_loss_limit - seconds(60));
  EXPECT_EQ(closed_, 0);
  tick_after(seconds(5));
  EXPECT_EQ(closed_, 1);
  EXPECT_EQ(run_->info().end, RunEnd::failed);
  EXPECT_EQ(run_->info().end_reason, "every agent was lost");
}

TEST_F(RunTest, TakesBackAgentsThatWereAwayAtTheEnd) {
  make(2);
  start();
  step(run_input::Lost{"pc-1", "gone"});
  step(run_input::Lost{"pc-2", "gone"});
  tick_after(seconds(10));
  for (int i = 0; i < 100; ++i) tick_after(seconds(1));
  for (const char* agent : {"pc-1", "pc-2"}) {
    step(run_input::Back{agent, true});
    tick_after(milliseconds(100));
  }
  EXPECT_EQ(closed_, 0);
  finish("pc-1", 10);
  finish("pc-2", 10);
  EXPECT_EQ(closed_, 1);
  EXPECT_EQ(run_->info().end, RunEnd::completed);
  EXPECT_TRUE(run_->info().agents[0].lost_reason.empty());
}

TEST_F(RunTest, AStopEndsARunWithoutAgentsAtOnce) {
  make(2);
  start();
  step(run_input::Lost{"pc-1", "gone"});
  step(run_input::Lost{"pc-2", "gone"});
  step(run_input::Stop{true, "stopped at once by the user"});
  EXPECT_EQ(closed_, 1);
  EXPECT_EQ(run_->info().end, RunEnd::stopped);
}

TEST_F(RunTest, GivesARestartedAgentTheRestOfItsShare) {
  make(2);
  start();
  step(run_input::Committed{"pc-2", 3, 102});
  now_ += seconds(4);
  step(run_input::Account{"pc-2", {"demo-x", 102, 5, "killed"}});
  step(run_input::Restarted{"pc-2", 103, false});
  EXPECT_THAT(log_, HasSubstr("agent restarted agent=pc-2 cause=\"killed\""));
  ASSERT_THAT(receivers<SendPrepare>(), ElementsAre("pc-2"));
  EXPECT_EQ(last<SendPrepare>().timeline.segments.size(), 1U);
  ASSERT_EQ(run_->info().agents[1].dead.size(), 1U);
  EXPECT_EQ(run_->info().agents[1].dead[0], (DeadIncarnation{102, 5, "killed"}));
  EXPECT_FALSE(run_->has_member("id-2", 102));
  EXPECT_TRUE(run_->has_member("id-2", 103));
  accept("pc-2");
  arm("pc-2");
  EXPECT_EQ(last<SendStart>().at_controller_ns, to_ns(*run_->start()));
  step(run_input::Started{"pc-2", to_ns(now_), 900});
  EXPECT_FALSE(run_->info().agents[1].start_skew_ns.has_value()) << "it is late, not askew";
  tick_after(seconds(6));
  finish("pc-1", 10);
  step(run_input::Committed{"pc-2", 6, 103});
  step(run_input::Finished{"pc-2", 6, "completed"});
  EXPECT_EQ(closed_, 0) << "two records of the process that died are missing";
  step(run_input::Committed{"pc-2", 5, 102});
  EXPECT_EQ(closed_, 1);
  EXPECT_EQ(run_->info().end, RunEnd::completed);
  EXPECT_TRUE(run_->info().agents[1].lost_reason.empty());
}

TEST_F(RunTest, AsksARestartedAgentAgainUntilItCanDoItsShare) {
  make(2);
  start();
  step(run_input::Restarted{"pc-2", 103, false});
  step(run_input::PrepareReply{"pc-2", {{"target", "does not answer", 0, 0}}});
  EXPECT_THAT(run_->info().agents[1].lost_reason, HasSubstr("target: does not answer"));
  sent_.clear();
  tick_after(kRejoinRetry);
  EXPECT_THAT(receivers<SendPrepare>(), ElementsAre("pc-2"));
  accept("pc-2");
  EXPECT_TRUE(run_->info().agents[1].lost_reason.empty());
}

TEST_F(RunTest, ARestartedAgentThatWasLostBeforeItRejoinedHasALeaseAgain) {
  make(2);
  start();
  const std::string id = run_->info().agents[1].agent_id;
  step(run_input::Restarted{"pc-2", 103, false});
  step(run_input::Lost{"pc-2", "no heartbeat for 5s"});
  EXPECT_FALSE(run_->lease_of(id, 103));
  step(run_input::Back{"pc-2", false});
  accept("pc-2");
  arm("pc-2");
  EXPECT_TRUE(run_->lease_of(id, 103));
  EXPECT_TRUE(run_->info().agents[1].lost_reason.empty());
}

TEST_F(RunTest, AsksARestartedAgentAgainThatGaveUpWhileItWasAway) {
  make(1);
  agents_come(1);
  accept("pc-1");
  arm("pc-1");
  step(run_input::StartStored{});
  tick_after(kStartLead);
  step(run_input::Restarted{"pc-1", 103, false});
  sent_.clear();
  step(run_input::Finished{"pc-1", 0, "no controller was heard for 1m"});
  EXPECT_EQ(run_->stage(), RunStage::running);
  tick_after(kRejoinRetry);
  EXPECT_THAT(receivers<SendPrepare>(), ElementsAre("pc-1"));
}

TEST_F(RunTest, AnAgentThatIsRestartedAtTheEndHasNothingLeftToDo) {
  make(2);
  start();
  tick_after(seconds(10));
  finish("pc-1", 10);
  step(run_input::Account{"pc-2", {"demo-x", 102, 9, "killed"}});
  step(run_input::Restarted{"pc-2", 103, false});
  EXPECT_TRUE(receivers<SendPrepare>().empty());
  EXPECT_THAT(run_->info().agents[1].lost_reason, HasSubstr("killed"));
  EXPECT_EQ(closed_, 0);
  step(run_input::Committed{"pc-2", 9, 102});
  EXPECT_EQ(closed_, 1);
}

TEST_F(RunTest, TakesALostAgentBack) {
  make(2);
  start();
  step(run_input::Lost{"pc-2", "gone"});
  step(run_input::Back{"pc-2", true});
  EXPECT_TRUE(run_->info().agents[1].lost_reason.empty());
  EXPECT_EQ(run_->live_agents(), 2U);
  // It never said that it had started: the start is repeated, at the same instant.
  EXPECT_EQ(last<SendStart>().at_controller_ns, to_ns(*run_->start()));
}

TEST_F(RunTest, AsksAnAgentThatCameBackWithoutTheRunForItsEnd) {
  make(2);
  start();
  step(run_input::Committed{"pc-2", 3, 102});
  step(run_input::Back{"pc-2", false});
  EXPECT_THAT(receivers<SendStop>(), ElementsAre("pc-2"));
  // It has forgotten the run altogether: fewer records than there are.
  step(run_input::Finished{"pc-2", 0, "not running on agent pc-2"});
  EXPECT_THAT(run_->info().agents[1].lost_reason, HasSubstr("does not know the run any more"));
}

TEST_F(RunTest, DrainsWhenTheUserStopsIt) {
  make(2);
  start();
  now_ += seconds(3);
  step(run_input::Stop{false, "stopped by the user"});
  EXPECT_EQ(run_->stage(), RunStage::draining);
  EXPECT_THAT(receivers<SendStop>(), ElementsAre("pc-1", "pc-2"));
  EXPECT_EQ(last<SendStop>().drain, seconds(5));
  finish("pc-1", 4, "stopped");
  finish("pc-2", 4, "stopped");
  EXPECT_EQ(closed_, 1);
  EXPECT_EQ(run_->info().end, RunEnd::stopped);
  EXPECT_EQ(run_->info().length, seconds(3));
}

TEST_F(RunTest, CutsOffAtOnceWhenAskedTo) {
  make(2);
  start();
  step(run_input::Stop{true, "stopped at once by the user"});
  EXPECT_EQ(last<SendStop>().drain, Duration{});
  finish("pc-1", 1, "stopped");
  tick_after(kCutOffGrace);
  EXPECT_EQ(closed_, 1);  // pc-2 said nothing more
  EXPECT_THAT(run_->info().agents[1].lost_reason, HasSubstr("did not finish within 5s"));
}

TEST_F(RunTest, ASecondStopCutsTheDrainOff) {
  make(2);
  start();
  step(run_input::Stop{false, "stopped by the user"});
  sent_.clear();
  step(run_input::Stop{true, "stopped at once by the user"});
  EXPECT_THAT(receivers<SendStop>(), ElementsAre("pc-1", "pc-2"));
  EXPECT_EQ(last<SendStop>().drain, Duration{});
}

TEST_F(RunTest, AStopAfterTheEndChangesNothing) {
  make(2);
  start();
  now_ += seconds(10);
  step(run_input::Stop{false, "stopped by the user"});
  EXPECT_EQ(run_->stage(), RunStage::draining);
  finish("pc-1", 10);
  finish("pc-2", 10);
  EXPECT_EQ(run_->info().end, RunEnd::completed);
}

TEST_F(RunTest, AStopBeforeTheStartIsNotARun) {
  make(2);
  step(run_input::Stop{false, "stopped by the user"});
  EXPECT_EQ(refused_.exit_code, 105);
  EXPECT_EQ(closed_, 1);

  make(2);
  agents_come(2);
  accept("pc-1");
  accept("pc-2");
  step(run_input::Stop{false, "stopped by the user"});
  EXPECT_EQ(closed_, 2);
  EXPECT_EQ(run_->info().end, RunEnd::stopped);
  EXPECT_THAT(receivers<SendStop>(), ElementsAre("pc-1", "pc-2"));
}

TEST_F(RunTest, EndsTheDrainOfAnAgentThatDoesNotFinish) {
  make(2);
  start();
  tick_after(seconds(10));
  finish("pc-1", 10);
  tick_after(seconds(5) + kDrainGrace);
  EXPECT_THAT(receivers<SendStop>(), ElementsAre("pc-2"));
  tick_after(kCutOffGrace);
  EXPECT_EQ(closed_, 1);
  EXPECT_EQ(run_->info().end, RunEnd::completed);
  EXPECT_FALSE(run_->info().agents[1].lost_reason.empty());
}

TEST_F(RunTest, NamesRecordsThatNeverCome) {
  make(2);
  start();
  tick_after(seconds(10));
  finish("pc-1", 10);
  step(run_input::Committed{"pc-2", 7, 102});
  step(run_input::Finished{"pc-2", 10, "completed"});
  tick_after(kCollectDeadline);
  EXPECT_EQ(closed_, 1);
  EXPECT_THAT(log_, HasSubstr("records missing agent=pc-2 incarnation=102 stored=7 reported=10"));
}

TEST_F(RunTest, DoesNotWaitForeverForTheFinalSample) {
  make(2, "127.0.0.1:7001");
  start();
  tick_after(seconds(10));
  finish("pc-1", 10);
  finish("pc-2", 10);
  EXPECT_EQ(run_->stage(), RunStage::collecting);
  tick_after(kCollectDeadline);
  EXPECT_EQ(closed_, 1);
}

TEST_F(RunTest, FixesItsStartAnewWhenTheStoreWasTooSlow) {
  make(1);
  agents_come(1);
  accept("pc-1");
  arm("pc-1");
  now_ += seconds(4);
  step(run_input::StartStored{});
  EXPECT_TRUE(receivers<SendStart>().empty()) << "it is past";
  now_ += seconds(4);
  step(run_input::StartStored{});
  EXPECT_EQ(last<SendStart>().at_controller_ns, *run_->info().start_boot_ns);
  EXPECT_GE(*run_->start(), now_ + kMinStartLead);
}

TEST_F(RunTest, FailsWhenItsStartCannotBeStored) {
  make(1);
  agents_come(1);
  accept("pc-1");
  arm("pc-1");
  tick_after(kArmDeadline + seconds(1));
  EXPECT_EQ(closed_, 1);
  EXPECT_THAT(run_->info().end_reason, HasSubstr("could not be stored"));
  EXPECT_FALSE(run_->info().start_boot_ns);
  EXPECT_THAT(receivers<SendStop>(), ElementsAre("pc-1"));
}

// A run of two agents that was adopted after a reboot, 60 s after T by the wall clock.
class RebootedRunTest : public RunTest {
 protected:
  void adopt() {
    make(2, "", seconds(600));
    start();
    controller::Run::Adopted adopted;
    adopted.info = run_->info();
    adopted.boot_id = "boot-2";
    adopted.is_start_known = false;
    adopted.start = now_ - seconds(60);
    run_ = std::make_unique<controller::Run>(std::move(adopted), now_);
    sent_.clear();
  }
};

TEST_F(RebootedRunTest, WaitsWithARestartedAgentUntilAnotherHasToldTheStart) {
  adopt();
  step(run_input::Restarted{"pc-2", 103, false});
  tick_after(seconds(1));
  EXPECT_TRUE(sent_.empty()) << "what is left of its share is not known";
  const Instant start = now_ - seconds(75);
  step(run_input::Back{"pc-1", true});
  step(run_input::StartKnown{start});
  tick_after(seconds(1));
  ASSERT_THAT(receivers<SendPrepare>(), ElementsAre("pc-2"));
  accept("pc-2");
  arm("pc-2");
  EXPECT_EQ(last<SendStart>().at_controller_ns, to_ns(start));
}

TEST_F(RebootedRunTest, TakesTheWallClocksWordWhenNobodyTells) {
  adopt();
  const Instant guess = *run_->start();
  step(run_input::Restarted{"pc-1", 103, false});
  step(run_input::Restarted{"pc-2", 103, false});
  tick_after(kAdoptionWait);
  EXPECT_THAT(receivers<SendPrepare>(), ElementsAre("pc-1", "pc-2"));
  EXPECT_EQ(*run_->start(), guess);
  EXPECT_THAT(log_, HasSubstr("start guessed"));
}

TEST_F(RunTest, AFailedFinalSampleIsNamedAndEndsTheRun) {
  make(1, "127.0.0.1:7001");
  agents_come(1);
  accept("pc-1");
  arm("pc-1");
  step(run_input::StartStored{});
  tick_after(kStartLead);
  tick_after(seconds(10));
  finish("pc-1", 10);
  step(run_input::FinalSample{false});
  EXPECT_EQ(closed_, 1);
  EXPECT_THAT(log_, HasSubstr("final target sample missing"));
}

TEST_F(RunTest, FailsWhenAgentsEndBeforeThePlanDoes) {
  make(1);
  agents_come(1);
  accept("pc-1");
  arm("pc-1");
  step(run_input::StartStored{});
  tick_after(kStartLead);
  now_ += seconds(2);
  finish("pc-1", 2, "the workers died");
  EXPECT_EQ(closed_, 1);
  EXPECT_EQ(run_->info().end, RunEnd::failed);
  EXPECT_EQ(run_->info().length, seconds(2));
  EXPECT_THAT(log_, HasSubstr("the workers died"));
}

// Whatever happens or does not happen, a run ends: for each stage, nobody says anything any more.
TEST_F(RunTest, EndsFromEveryStageByTimeAlone) {
  for (int said = 0; said <= 8; ++said) {
    closed_ = 0;
    make(2, "127.0.0.1:7001");
    if (said >= 1) agents_come(2);
    if (said >= 2) accept("pc-1");
    if (said >= 3) accept("pc-2");
    if (said >= 4) arm("pc-1");
    if (said >= 5) arm("pc-2");
    if (said >= 6) step(run_input::StartStored{});
    if (said >= 7) tick_after(kStartLead);
    if (said >= 8) {
      tick_after(seconds(10));
      finish("pc-1", 3);
    }
    for (int i = 0; i < 8000 && closed_ == 0; ++i) tick_after(milliseconds(100));
    EXPECT_EQ(closed_, 1) << "after " << said << " messages, in stage " << name(run_->stage());
  }
}

TEST(RunShares, AddUpExactlyInEveryEpoch) {
  Plan plan;
  plan.agents = 7;
  plan.phases = {test::phase("a", seconds(1), true, 13), test::phase("b", seconds(1), true, 3901),
                 test::phase("c", seconds(1), true, 3)};
  const auto parts = divide_run("run", plan, *planned_timeline(plan, 0), "types");
  ASSERT_EQ(parts.size(), 7U);
  const std::uint64_t totals[] = {13, 3901, 3};
  for (std::size_t e = 0; e < 3; ++e) {
    std::uint64_t sum = 0;
    for (const auto& part : parts) sum += part.timeline.epochs.at(e).parameters.load.connections;
    EXPECT_EQ(sum, totals[e]);
  }
  std::uint64_t next = 0;
  for (const auto& part : parts) {
    EXPECT_EQ(part.first_connection, next);
    const auto& epochs = part.timeline.epochs;
    const std::uint64_t largest = epochs[1].parameters.load.connections;
    for (const auto& epoch : epochs) EXPECT_LE(epoch.parameters.load.connections, largest);
    next += largest;
  }
  EXPECT_EQ(next, 3901U);
  EXPECT_EQ(parts[0].descriptor_set, "types");
  EXPECT_EQ(parts[0].timeline.segments[2].offset, seconds(2));
  EXPECT_EQ(parts[0].timeline.segments[2].epoch, 3U);
}

TEST(RunId, HoldsThePlanAndTheTime) {
  const std::string id = make_run_id("r1", 1'796'034'379'000, 0x123456789abcdef0);
  EXPECT_THAT(id, testing::MatchesRegex("r1-20261130-[0-9]{6}-[a-z2-7]{4}"));
  EXPECT_NE(id, make_run_id("r1", 1'796'034'379'000, 0x9999999999999999));
}

TEST_F(RunTest, NamesAnAgentThatLeftBeforeTheEnd) {
  make(2);
  start();
  tick_after(seconds(4));
  finish("pc-2", 4, "the agent is shutting down");
  EXPECT_EQ(run_->info().agents[1].lost_at_ns, 4'000'000'000);
  EXPECT_THAT(run_->info().agents[1].lost_reason, HasSubstr("the agent is shutting down"));
  EXPECT_EQ(run_->info().agents[1].last_seq, 4U);
  EXPECT_TRUE(run_->info().agents[0].lost_reason.empty());
}

}  // namespace
}  // namespace spate::controller
