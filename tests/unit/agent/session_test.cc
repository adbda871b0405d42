#include <map>

#include "tests/unit/agent/session_harness.h"

namespace spate::agent {
namespace {

using State = Session::State;

constexpr std::array kStates = {State::idle,    State::checking, State::opening,    State::armed,
                                State::running, State::draining, State::delivering, State::left};

// --- the table: where each event leads from each state, with the link up

struct Row {
  const char* event;
  std::function<Event(SessionHarness&)> make;
  std::array<State, kStates.size()> to;  // in the order of kStates
};

constexpr State I = State::idle, C = State::checking, O = State::opening, A = State::armed,
                R = State::running, D = State::draining, V = State::delivering, L = State::left;

const std::vector<Row>& table() {
  static const std::vector<Row> rows = {
      {"stream up", [](auto&) { return StreamUp{}; }, {I, C, O, A, R, D, V, L}},
      {"stream down", [](auto&) { return StreamDown{}; }, {I, C, O, A, R, D, V, L}},
      {"second welcome",
       [](auto&) {
         return Welcome{"x", 1s};
       },
       {I, C, O, A, R, D, V, L}},
      {"rejected", [](auto&) { return Rejected{"no"}; }, {I, C, O, A, R, D, V, L}},
      {"heartbeat answered",
       [](SessionHarness& h) {
         return HeartbeatReply{h.now, {}, {}, h.now};
       },
       {I, C, O, A, R, D, V, L}},
      {"prepare of this run", [](SessionHarness& h) { return h.plan(); }, {C, C, O, A, R, D, V, L}},
      {"prepare of another",
       [](SessionHarness& h) { return h.plan("run-2"); },
       {C, C, O, A, R, D, C, L}},
      {"start",
       [](SessionHarness& h) {
         return Start{"run-1", h.at_controller(h.now + 1s)};
       },
       {I, C, R, R, R, D, V, L}},
      {"start of another",
       [](SessionHarness& h) {
         return Start{"run-2", h.at_controller(h.now)};
       },
       {I, C, O, A, R, D, V, L}},
      {"ack of nothing",
       [](auto&) {
         return RecordAck{"run-1", 77, 0};
       },
       {I, C, O, A, R, D, V, L}},
      {"ack of all",
       [](auto&) {
         return RecordAck{"run-1", 77, 1};
       },
       {I, C, O, A, R, D, I, L}},
      {"ack of another incarnation",
       [](auto&) {
         return RecordAck{"run-1", 76, 1};
       },
       {I, C, O, A, R, D, V, L}},
      // The run has not begun yet in go_to(running): it ends without a drain.
      {"stop",
       [](auto&) {
         return Stop{"run-1", 1s, "user"};
       },
       {I, I, I, I, D, D, V, L}},
      {"stop of another",
       [](auto&) {
         return Stop{"run-2", 1s, "user"};
       },
       {I, C, O, A, R, D, V, L}},
      {"pre-flight passed",
       [](auto&) {
         return PreflightDone{"run-1", {}};
       },
       {I, O, O, A, R, D, V, L}},
      {"pre-flight failed",
       [](auto&) {
         return PreflightDone{"run-1", {{"ports", "no"}}};
       },
       {I, I, O, A, R, D, V, L}},
      {"pre-flight of another",
       [](auto&) {
         return PreflightDone{"run-0", {}};
       },
       {I, C, O, A, R, D, V, L}},
      {"workers settled", [](SessionHarness& h) { return h.opened(); }, {I, C, A, A, R, D, V, L}},
      {"workers not settled",
       [](SessionHarness& h) { return h.opened(3, false); },
       {I, C, O, A, R, D, V, L}},
      {"first request",
       [](SessionHarness& h) { return FirstRequest{h.now}; },
       {I, C, O, A, R, D, V, L}},
      {"interval",
       [](auto&) { return IntervalClosed{lawful(1s, 1s, 4, 4, 1)}; },
       {I, C, O, A, R, D, V, L}},
      {"prepare of a change",
       [](SessionHarness& h) { return h.change(2, 5s); },
       {I, C, O, A, R, D, V, L}},
      {"change checked",
       [](auto&) {
         return ChangeChecked{"run-1", 2, {}};
       },
       {I, C, O, A, R, D, V, L}},
      {"commit of a change",
       [](auto&) {
         return EpochCommit{"run-1", 2};
       },
       {I, C, O, A, R, D, V, L}},
      {"changed over",
       [](SessionHarness& h) {
         return ChangedOver{2, h.now};
       },
       {I, C, O, A, R, D, V, L}},
      // In go_to(running) without a record: nothing to deliver.
      {"drained", [](auto&) { return WorkersDrained{}; }, {I, C, O, A, I, V, V, L}},
      {"shutdown", [](auto&) { return ShutdownRequested{}; }, {L, L, L, L, D, D, V, L}},
      {"tick", [](auto&) { return Tick{}; }, {I, C, O, A, R, D, V, L}},
  };
  return rows;
}

TEST(Session, HasAnAnswerToEveryEventInEveryState) {
  for (const Row& row : table()) {
    for (std::size_t i = 0; i < kStates.size(); ++i) {
      SCOPED_TRACE(std::string(row.event) + " in " + std::string(name(kStates[i])));
      SessionHarness h;
      h.go_to(kStates[i]);
      if (kStates[i] == State::running) h.pass(1500ms);  // under load
      ASSERT_EQ(h.session.state(), kStates[i]);
      h.feed(row.make(h));
      EXPECT_EQ(h.session.state(), row.to[i]) << name(h.session.state());
    }
  }
}

TEST(Session, SurvivesEveryEventInEveryStateWithTheLinkDown) {
  for (const Row& row : table()) {
    for (const State state : kStates) {
      SCOPED_TRACE(std::string(row.event) + " in " + std::string(name(state)));
      SessionHarness h;
      h.go_to(state);
      h.feed(StreamDown{});
      const std::size_t before = h.sent.size();
      h.feed(row.make(h));
      h.mute = true;
      h.pass(200s);
      for (std::size_t i = before; i < h.sent.size(); ++i)
        EXPECT_TRUE(std::holds_alternative<Hello>(h.sent[i]))
            << "nothing else is said before a welcome";
      EXPECT_NE(h.session.state(), State::running) << "nobody has been in charge for minutes";
    }
  }
}

// --- the link

TEST(Session, SaysHelloFirstOnEachStream) {
  SessionHarness h;
  h.feed(StreamUp{});
  ASSERT_EQ(h.sent.size(), 1U);
  EXPECT_EQ(h.sent_of<Hello>().at(0), test_hello());
  h.feed(StreamDown{});
  h.feed(StreamUp{});
  EXPECT_EQ(h.sent_of<Hello>().size(), 2U);
  EXPECT_EQ(h.sent.size(), 2U);
}

TEST(Session, TakesTheNameTheControllerGives) {
  SessionHarness h;
  h.feed(StreamUp{});
  h.feed(Welcome{"pc-1 (2)", 1s});
  EXPECT_EQ(h.session.name(), "pc-1 (2)");
  h.feed(h.plan());
  ASSERT_TRUE(h.did<RunPreflight>());
  EXPECT_EQ(h.did<RunPreflight>()->agent, "pc-1 (2)");
}

TEST(Session, KnowsTheClockWithinMillisecondsOfTheWelcome) {
  SessionHarness h;
  h.connect();
  EXPECT_EQ(h.sent_of<Heartbeat>().size(), 1U + Session::kBurst);
  const auto e = h.session.clock().estimate(h.now);
  ASSERT_TRUE(e);
  EXPECT_EQ(e->offset, SessionHarness::kControllerAhead);
  EXPECT_LE(e->bound, 110us);
  EXPECT_LT(h.now - h.up_since, 10ms);
  EXPECT_LT(h.sent_of<Heartbeat>().front().bound, 0s) << "no estimate yet";
}

TEST(Session, KeepsTheCadenceOfHeartbeats) {
  SessionHarness h;
  h.connect();
  const std::size_t before = h.sent_of<Heartbeat>().size();
  h.pass(10s);
  EXPECT_NEAR(static_cast<double>(h.sent_of<Heartbeat>().size() - before), 10, 1);
}

TEST(Session, DialsAgainWhenTheControllerIsSilent) {
  SessionHarness h;
  h.connect();
  h.mute = true;
  h.pass(Session::kLinkSilentFor + 1s);
  EXPECT_EQ(h.session.link(), Session::Link::down);
}

TEST(Session, DialsAgainWhenNoWelcomeComes) {
  SessionHarness h;
  h.feed(StreamUp{});
  h.now += Session::kLinkSilentFor;
  h.feed(Tick{});
  ASSERT_TRUE(h.did<Disconnect>());
  EXPECT_EQ(h.did<Disconnect>()->reason, "no welcome within 5s");
  EXPECT_FALSE(h.did<Disconnect>()->is_refused);
}

TEST(Session, DialsAgainWhenRejectedAndKeepsTheReason) {
  SessionHarness h;
  h.feed(StreamUp{});
  h.feed(Rejected{"protocol 2 is needed"});
  ASSERT_TRUE(h.did<Disconnect>());
  EXPECT_EQ(h.did<Disconnect>()->reason, "rejected: protocol 2 is needed");
  EXPECT_TRUE(h.did<Disconnect>()->is_refused);
}

// --- a run

// The stamps of the stream before may be of a clock that has begun anew since.
TEST(Session, BeginsWhenTheClockOfThisStreamIsKnown) {
  SessionHarness h;
  h.go_to(State::armed);
  h.feed(StreamDown{});
  h.up_since = h.now;
  h.feed(StreamUp{});
  h.feed(Welcome{"pc-1", 1s});
  h.feed(Start{"run-1", h.at_controller(h.now + 500ms)});
  EXPECT_FALSE(h.did<StartWorkersAt>());
  const Instant t0 = h.now + 500ms;
  h.feed(HeartbeatReply{h.now - 200us, h.at_controller(h.now - 100us),
                        h.at_controller(h.now - 100us), h.now, "", 0s});
  ASSERT_TRUE(h.did<StartWorkersAt>());
  EXPECT_EQ(h.did<StartWorkersAt>()->at, t0);
}

TEST(Session, GoesThroughARunInOrder) {
  SessionHarness h;
  h.connect();
  h.feed(h.plan());
  ASSERT_TRUE(h.did<RunPreflight>());
  h.feed(PreflightDone{"run-1", {}, 500});
  EXPECT_EQ(h.sent_of<PrepareReply>().at(0), (PrepareReply{"run-1", {}, 500}));
  ASSERT_TRUE(h.did<OpenWorkers>());
  h.feed(h.opened(4, false));
  EXPECT_TRUE(h.sent_of<Armed>().empty());
  h.feed(h.opened(10));
  EXPECT_EQ(h.sent_of<Armed>().at(0).established, 10U);
  h.feed(Start{"run-1", h.at_controller(h.now + 500ms)});
  ASSERT_TRUE(h.did<StartWorkersAt>());
  EXPECT_EQ(h.did<StartWorkersAt>()->at, h.now + 500ms);
  EXPECT_EQ(h.did<StartWorkersAt>()->drain, 5s);
  const Instant t0 = h.now + 500ms;
  h.pass(600ms);
  h.feed(FirstRequest{t0 + 90us});
  EXPECT_TRUE(h.sent_of<Started>().empty()) << "the other worker may have been earlier";
  h.feed(FirstRequest{t0 + 50us});
  EXPECT_EQ(h.sent_of<Started>().at(0).at, h.at_controller(t0 + 50us));
  EXPECT_GT(h.sent_of<Started>().at(0).bound, 0s);
  for (int i = 0; i < 10; ++i) {
    h.close_interval();
    h.pass(1s);
    h.feed(RecordAck{"run-1", 77, h.intervals});
  }
  EXPECT_EQ(h.sent_of<Record>().size(), 10U);
  EXPECT_EQ(h.sent_of<Record>().back().key, (RecordKey{"run-1", "pc-1", 77, 10}));
  h.close_interval();
  h.feed(WorkersDrained{});
  EXPECT_TRUE(h.did<ReleaseWorkers>());
  EXPECT_EQ(h.sent_of<Finished>().at(0), (Finished{"run-1", 11, "completed"}));
  EXPECT_EQ(h.session.state(), State::delivering);
  h.feed(RecordAck{"run-1", 77, 11});
  EXPECT_EQ(h.session.state(), State::idle);
  EXPECT_LT(h.story.size(), 20U);
}

TEST(Session, RefusesWhatThePreflightRefuses) {
  SessionHarness h;
  h.connect();
  h.feed(h.plan());
  h.feed(PreflightDone{"run-1", {{"ports", "too few", 100, 10}}});
  EXPECT_EQ(h.sent_of<PrepareReply>().at(0).problems.at(0).what, "ports");
  EXPECT_EQ(h.session.state(), State::idle);
  EXPECT_FALSE(h.did<OpenWorkers>());
}

TEST(Session, RefusesASecondRunAndNamesTheFirst) {
  SessionHarness h;
  h.go_to(State::running);
  h.feed(h.plan("run-2"));
  const auto reply = h.sent_of<PrepareReply>().back();
  EXPECT_EQ(reply.run, "run-2");
  ASSERT_EQ(reply.problems.size(), 1U);
  EXPECT_EQ(reply.problems[0].what, "busy");
  EXPECT_NE(reply.problems[0].text.find("run-1"), std::string::npos);
  EXPECT_EQ(h.session.run(), "run-1");
}

TEST(Session, ArmsWithWhatThereIsAfterHalfAMinute) {
  SessionHarness h;
  h.go_to(State::opening);
  h.feed(h.opened(7, false));
  h.pass(29s);
  EXPECT_TRUE(h.sent_of<Armed>().empty());
  h.pass(2s);
  EXPECT_EQ(h.sent_of<Armed>().at(0).established, 7U);
  EXPECT_EQ(h.session.state(), State::armed);
}

TEST(Session, JoinsInTheMiddleWhenTheStartIsPast) {
  SessionHarness h;
  h.go_to(State::armed);
  h.feed(Start{"run-1", h.at_controller(h.now - 3s)});
  ASSERT_TRUE(h.did<StartWorkersAt>());
  EXPECT_EQ(h.did<StartWorkersAt>()->at, h.now - 3s) << "time counts from there";
  EXPECT_EQ(h.did<StartWorkersAt>()->begin, h.now + Session::kJoinLead);
}

TEST(Session, DoesNotJoinARunThatIsOver) {
  SessionHarness h;
  h.go_to(State::armed);
  h.feed(Start{"run-1", h.at_controller(h.now - 10s)});
  EXPECT_TRUE(h.did<ReleaseWorkers>());
  EXPECT_EQ(h.sent_of<Finished>().at(0).last_seq, 0U);
  EXPECT_EQ(h.session.state(), State::idle);
}

TEST(Session, SaysStartedWithoutAWorkerThatHasNothingToSend) {
  SessionHarness h;
  h.go_to(State::running);
  h.pass(1100ms);
  h.feed(FirstRequest{h.t0 + 1ms});
  h.pass(1s);
  ASSERT_EQ(h.sent_of<Started>().size(), 1U);
  EXPECT_EQ(h.sent_of<Started>()[0].at, h.at_controller(h.t0 + 1ms));
}

TEST(Session, StopsAllWorkersAtOneInstantALittleAhead) {
  SessionHarness h;
  h.go_to(State::running);
  h.pass(3s);
  h.feed(Stop{"run-1", 2s, "user"});
  ASSERT_TRUE(h.did<StopWorkers>());
  EXPECT_EQ(h.did<StopWorkers>()->at, h.now + Session::kStopLead);
  EXPECT_EQ(h.did<StopWorkers>()->drain, 2s);
  h.feed(Stop{"run-1", 4s, "user"});
  EXPECT_FALSE(h.did<StopWorkers>()) << "a drain only gets shorter";
  h.feed(Stop{"run-1", 0s, "user, again"});
  ASSERT_TRUE(h.did<StopWorkers>());
  EXPECT_EQ(h.did<StopWorkers>()->at, h.now);
  h.close_interval();
  h.feed(WorkersDrained{});
  EXPECT_EQ(h.sent_of<Finished>().at(0), (Finished{"run-1", 1, "stopped"}));
}

TEST(Session, EndsARunThatIsStoppedBeforeItsStartWithoutRecords) {
  for (const State state : {State::checking, State::opening, State::armed, State::running}) {
    SessionHarness h;
    h.go_to(state);
    h.feed(Stop{"run-1", 1s, "user"});
    EXPECT_EQ(h.sent_of<Finished>().at(0), (Finished{"run-1", 0, "stopped"})) << name(state);
    EXPECT_EQ(h.did<ReleaseWorkers>() != nullptr, state != State::checking);
    EXPECT_EQ(h.session.state(), State::idle);
  }
}

TEST(Session, IgnoresAPreflightThatComesAfterItsRunWasStopped) {
  SessionHarness h;
  h.go_to(State::checking);
  h.feed(Stop{"run-1", 0s, "user"});
  h.feed(h.plan("run-2"));
  h.feed(PreflightDone{"run-1", {}});
  EXPECT_FALSE(h.did<OpenWorkers>());
  h.feed(PreflightDone{"run-2", {}});
  EXPECT_TRUE(h.did<OpenWorkers>());
}

TEST(Session, AnswersAStopForARunItDoesNotHave) {
  SessionHarness h;
  h.connect();
  h.feed(Stop{"run-0", 1s, "crashed"});
  EXPECT_EQ(h.sent_of<Finished>().at(0), (Finished{"run-0", 0, "not running on agent pc-1"}));
  h.feed(Start{"run-0", {}});
  EXPECT_EQ(h.sent_of<Finished>().size(), 2U);
}

TEST(Session, AnswersALateStopWithHowTheRunEnded) {
  SessionHarness h;
  h.go_to(State::delivering);
  h.feed(RecordAck{"run-1", 77, 1});
  h.feed(Stop{"run-1", 1s, "user"});
  ASSERT_EQ(h.sent_of<Finished>().size(), 2U);
  EXPECT_EQ(h.sent_of<Finished>()[0], h.sent_of<Finished>()[1]);
}

TEST(Session, CutsADrainThatDoesNotEnd) {
  SessionHarness h;
  h.go_to(State::draining);
  h.pass(14s);
  EXPECT_EQ(h.session.state(), State::delivering);
  EXPECT_NE(h.sent_of<Finished>().at(0).reason.find("did not end"), std::string::npos);
}

TEST(Session, GivesWorkersTimeToEndThatWereStoppedWithIt) {
  SessionHarness h;
  h.go_to(State::draining);
  h.now += 60s;  // SIGSTOP, SIGCONT
  h.feed(Tick{});
  EXPECT_EQ(h.session.state(), State::draining);
  h.close_interval();
  h.feed(WorkersDrained{});
  EXPECT_EQ(h.session.state(), State::delivering);
  EXPECT_EQ(h.session.spool().last_seq(), h.intervals);
}

// --- breaks

TEST(Session, GoesOnWhileTheStreamIsDownAndDeliversLater) {
  SessionHarness h;
  h.go_to(State::running);
  h.pass(1s);
  h.feed(FirstRequest{h.t0});
  h.feed(FirstRequest{h.t0});
  h.close_interval();
  h.close_interval();
  h.feed(RecordAck{"run-1", 77, 1});
  h.feed(StreamDown{});
  h.pass(2s);
  h.close_interval();
  h.close_interval();
  EXPECT_EQ(h.sent_of<Record>().size(), 2U);
  EXPECT_EQ(h.session.state(), State::running);

  h.up_since = h.now;
  h.feed(StreamUp{});
  EXPECT_EQ(h.sent_of<Hello>().back().running, "run-1");
  EXPECT_EQ(h.sent_of<Hello>().back().incarnation, 77U);
  h.feed(Welcome{"pc-1", 1s});
  EXPECT_EQ(h.sent_of<Record>().size(), 2U) << "until the controller has named its mark";
  EXPECT_EQ(h.sent_of<Started>().size(), 1U) << "until this controller's clock is known";
  h.feed(RecordAck{"run-1", 77, 2});
  ASSERT_EQ(h.sent_of<Record>().size(), 4U) << "it had the second all along";
  EXPECT_EQ(h.sent_of<Record>()[2].key.seq, 3U);
  EXPECT_EQ(h.sent_of<Record>()[3].key.seq, 4U);
}

TEST(Session, ResendsTheSameRecordsWhenTheControllerDoesNotHaveThem) {
  SessionHarness h;
  h.go_to(State::delivering);
  h.feed(StreamDown{});
  h.connect();
  h.feed(RecordAck{"run-1", 77, 0});
  ASSERT_EQ(h.sent_of<Record>().size(), 2U);
  EXPECT_EQ(h.sent_of<Record>()[0], h.sent_of<Record>()[1]);
  ASSERT_EQ(h.sent_of<Finished>().size(), 2U);
  h.feed(RecordAck{"run-1", 77, 1});
  EXPECT_EQ(h.session.state(), State::idle);
}

TEST(Session, ResendsAfterAWhileWhenNoMarkIsNamed) {
  SessionHarness h;
  h.go_to(State::delivering);
  h.feed(StreamDown{});
  h.connect();
  EXPECT_EQ(h.sent_of<Record>().size(), 1U);
  h.pass(3s);
  EXPECT_EQ(h.sent_of<Record>().size(), 2U);
}

TEST(Session, RepeatsWhatTheControllerMayNotHaveHeardBeforeTheStart) {
  SessionHarness h;
  h.go_to(State::armed);
  h.feed(StreamDown{});
  h.connect();
  EXPECT_EQ(h.sent_of<PrepareReply>().size(), 2U);
  EXPECT_EQ(h.sent_of<Armed>().size(), 2U);
}

TEST(Session, TellsLaterHowARunEndedWhileTheStreamWasDown) {
  SessionHarness h;
  h.go_to(State::armed);
  h.feed(StreamDown{});
  h.pass(61s);
  EXPECT_EQ(h.session.state(), State::idle);
  EXPECT_TRUE(h.sent_of<Finished>().empty());
  h.connect();
  ASSERT_EQ(h.sent_of<Finished>().size(), 1U);
  EXPECT_EQ(h.sent_of<Finished>()[0].run, "run-1");
  h.feed(StreamDown{});
  h.connect();
  EXPECT_EQ(h.sent_of<Finished>().size(), 1U);
}

TEST(Session, KeepsAWindowOfRecordsOnTheWire) {
  SessionHarness h({.bytes = 64 << 20, .window = 3});
  h.go_to(State::running);
  h.pass(1s);
  for (int i = 0; i < 5; ++i) h.close_interval();
  EXPECT_EQ(h.sent_of<Record>().size(), 3U);
  h.feed(WorkersDrained{});
  EXPECT_TRUE(h.sent_of<Finished>().empty()) << "the last record first";
  h.feed(RecordAck{"run-1", 77, 2});
  EXPECT_EQ(h.sent_of<Record>().size(), 5U);
  EXPECT_EQ(h.sent_of<Finished>().at(0).last_seq, 5U);
}

TEST(Session, TheNextRunNeedNotWaitForTheRecordsOfTheOneBefore) {
  SessionHarness h;
  h.go_to(State::delivering);
  h.feed(h.plan("run-2"));
  EXPECT_EQ(h.session.state(), State::checking);
  EXPECT_EQ(h.session.run(), "run-2");
  EXPECT_EQ(h.sent_of<Finished>().at(0), (Finished{"run-1", 1, "completed"}));
  EXPECT_EQ(h.spool->size(), 1U) << "it stays in the spool";
  h.feed(RecordAck{"run-1", 77, 1});
  EXPECT_TRUE(h.spool->empty());
  EXPECT_EQ(h.session.state(), State::checking);
}

TEST(Session, RefusesARunThatItCouldNotKeepTheRecordsOf) {
  SessionHarness h;
  h.go_to(State::delivering);
  h.disk.is_broken = true;
  h.feed(RecordAck{"run-1", 77, 1});
  h.feed(h.plan("run-2"));
  EXPECT_EQ(h.sent_of<PrepareReply>().back().problems.at(0).what, "spool");
}

// --- the spool

TEST(Session, SaysOnceThatTheDiskRefusesAndHealsByItself) {
  SessionHarness h;
  h.go_to(State::running);
  h.pass(1s);
  h.disk.is_broken = true;
  for (int i = 0; i < 5; ++i) {
    h.close_interval();
    h.pass(1s);
  }
  EXPECT_TRUE(h.sent_of<Record>().empty());
  h.disk.is_broken = false;
  h.pass(2s);
  EXPECT_FALSE(h.sent_of<Record>().empty());
  std::uint64_t sent = 0;
  for (const Record& r : h.sent_of<Record>()) sent += r.counters.sent;
  EXPECT_EQ(sent, 5 * 11U + 4);
  const auto said = [&](const std::string& text) {
    return std::count_if(h.story.begin(), h.story.end(),
                         [&](const std::string& line) { return line.find(text) == 0; });
  };
  EXPECT_EQ(said("spool in trouble"), 1);
  EXPECT_EQ(said("spool works again"), 1);
}

TEST(Session, DeliversWhatAnEarlierLifeLeft) {
  ModelDisk disk;
  ModelTerms terms;
  {
    auto before = SessionHarness::begun(disk, {});
    before->open_account({"run-0", 77}, "pc-1", "");
    before->add(lawful(0s, 1s, 0, 4, 10), {1});
  }
  auto spool = *Spool::open(disk, {});
  ASSERT_TRUE(spool->begin(78, "power loss or reboot", {}));
  Hello self = test_hello();
  self.incarnation = 78;
  Session session(self, *spool, terms);
  const Instant now = from_ns(1'000'000);
  const Actions up = session.step(StreamUp{}, now);
  const Hello hello = std::get<Hello>(std::get<Send>(up.at(0)).message);
  ASSERT_EQ(hello.accounts.size(), 1U);
  EXPECT_EQ(hello.accounts[0], (Account{"run-0", 77, 1, "power loss or reboot", true}));
  EXPECT_TRUE(hello.running.empty());
  std::vector<Record> records;
  for (const Action& a : session.step(Welcome{"pc-1", 1s}, now))
    if (const auto* s = std::get_if<Send>(&a))
      if (const auto* r = std::get_if<Record>(&s->message)) records.push_back(*r);
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].key, (RecordKey{"run-0", "pc-1", 77, 1}));
  session.step(RecordAck{"run-0", 77, 1}, now);
  EXPECT_TRUE(spool->empty());
}

TEST(Session, TellsHowAProcessDiedThatHadDeliveredEverything) {
  ModelDisk disk;
  ModelTerms terms;
  {
    auto before = SessionHarness::begun(disk, {});
    before->open_account({"run-0", 77}, "pc-1", "");
    before->stream_up("");
    before->add(lawful(0s, 1s, 0, 4, 10), {1});
    before->next();
    before->acknowledge({"run-0", 77}, 1);
  }
  auto spool = *Spool::open(disk, {});
  ASSERT_TRUE(spool->begin(78, "power loss or reboot", {}));
  Session session(test_hello(), *spool, terms);
  const Instant now = from_ns(1'000'000);
  const auto accounts = [&] {
    session.step(StreamDown{}, now);
    const Actions up = session.step(StreamUp{}, now);
    return std::get<Hello>(std::get<Send>(up.at(0)).message).accounts;
  };
  const std::vector<Account> expected = {{"run-0", 77, 1, "power loss or reboot", false}};
  EXPECT_EQ(accounts(), expected);
  session.step(Welcome{"pc-1", 1s}, now);
  EXPECT_EQ(accounts(), expected) << "the controller may have died before it stored that";
}

TEST(Session, SetsAsideWhatNobodyAcknowledges) {
  SessionHarness h;
  h.go_to(State::delivering);
  h.feed(h.plan("run-2"));
  h.feed(StreamDown{});
  h.connect();
  h.pass(3s);
  EXPECT_EQ(h.sent_of<Record>().size(), 2U) << "again, as no mark was named";
  h.pass(40s);
  EXPECT_EQ(h.sent_of<Record>().size(), 2U);
  EXPECT_EQ(h.spool->ended_on_wire(), 0U);
  EXPECT_EQ(h.spool->size(), 1U);
}

// --- terms

TEST(Session, RefusesAControllerThatHasBeenSuperseded) {
  SessionHarness h;
  h.terms.keep("c1", 9);
  h.feed(StreamUp{});
  EXPECT_EQ(h.sent_of<Hello>().at(0).cluster, "c1");
  EXPECT_EQ(h.sent_of<Hello>().at(0).term, 9U);
  h.feed(Welcome{"pc-1", 1s, "c1"}, 8);
  ASSERT_TRUE(h.did<Disconnect>());
  EXPECT_EQ(h.did<Disconnect>()->reason.find("term 8 superseded by 9"), 0U);
  EXPECT_EQ(h.session.link(), Session::Link::down);

  h.feed(StreamUp{});
  h.feed(Welcome{"pc-1", 1s, "c1"}, 10);
  EXPECT_EQ(h.session.link(), Session::Link::up);
  EXPECT_EQ(h.terms.highest("c1"), 10U);
  h.feed(h.plan(), 9);
  EXPECT_EQ(h.session.state(), State::idle) << "nothing it says is acted upon";
  EXPECT_EQ(h.session.link(), Session::Link::down);
}

TEST(Session, KeepsATermBeforeItActsOnIt) {
  SessionHarness h;
  h.terms.is_broken = true;
  h.feed(StreamUp{});
  h.feed(Welcome{"pc-1", 1s, "c1"}, 1);
  EXPECT_TRUE(h.did<Disconnect>());
  EXPECT_EQ(h.session.link(), Session::Link::down);
  h.terms.is_broken = false;
  h.feed(StreamUp{});
  h.feed(Welcome{"pc-1", 1s, "c1"}, 1);
  EXPECT_EQ(h.session.link(), Session::Link::up);
}

TEST(Session, TermsOfDifferentClustersHaveNothingToDoWithEachOther) {
  SessionHarness h;
  h.terms.keep("c1", 9);
  h.feed(StreamUp{});
  h.feed(Welcome{"pc-1", 1s, "c2"}, 1);
  EXPECT_EQ(h.session.link(), Session::Link::up);
  EXPECT_EQ(h.terms.highest("c1"), 9U);
  EXPECT_EQ(h.terms.highest("c2"), 1U);
}

// --- shutdown

TEST(Session, ShutsDownAfterTheDrainAndTheDelivery) {
  SessionHarness h;
  h.go_to(State::running);
  h.pass(2s);
  h.feed(ShutdownRequested{});
  ASSERT_TRUE(h.did<StopWorkers>());
  EXPECT_EQ(h.did<StopWorkers>()->drain, Session::kShutdownDrain);
  h.close_interval();
  h.feed(WorkersDrained{});
  EXPECT_EQ(h.sent_of<Finished>().at(0), (Finished{"run-1", 1, "agent is shutting down"}));
  h.feed(RecordAck{"run-1", 77, 1});
  ASSERT_TRUE(h.did<Leave>());
  EXPECT_EQ(h.did<Leave>()->undelivered, 0U);
}

TEST(Session, LeavesWithTheNumberOfRecordsNobodyTook) {
  SessionHarness h;
  h.go_to(State::running);
  h.pass(2s);
  h.feed(StreamDown{});
  h.feed(ShutdownRequested{});
  h.close_interval();
  h.close_interval();
  h.feed(WorkersDrained{});
  h.pass(29s);
  EXPECT_EQ(h.session.state(), State::delivering);
  h.pass(2s);
  EXPECT_EQ(h.session.state(), State::left);
  ASSERT_TRUE(h.did<Leave>());
  EXPECT_EQ(h.did<Leave>()->undelivered, 2U);
}

TEST(Session, RefusesRunsWhileItShutsDown) {
  SessionHarness h;
  h.go_to(State::delivering);
  h.feed(ShutdownRequested{});
  h.feed(h.plan("run-2"));
  EXPECT_EQ(h.sent_of<PrepareReply>().back().problems.at(0).what, "busy");
}

}  // namespace
}  // namespace spate::agent
