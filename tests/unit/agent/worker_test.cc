#include "agent/worker.h"

#include <gmock/gmock.h>

#include "agent/target_probe.h"
#include "tests/unit/agent/worker_fixture.h"

namespace spate::agent {
namespace {

using testing::HasSubstr;

using WorkerTest = WorkerFixture;

TEST_F(WorkerTest, CountsExactlyWhatTheServerSaw) {
  FloodServer server;
  run(assignment(server.port(), 8));
  EXPECT_EQ(opening.requested, 8U);
  EXPECT_EQ(opening.established, 8U);
  EXPECT_GT(server.calls(), 8U);
  EXPECT_EQ(total(&Counters::sent), server.calls());
  EXPECT_EQ(total(Outcome::ok), server.calls());
  EXPECT_EQ(total(&Counters::connections_opened), 8U);
  EXPECT_EQ(total(&Counters::connections_closed), 0U);
  EXPECT_GE(first, t0);
  ASSERT_EQ(records.size(), 5U);  // four intervals and the drain
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(records[i].start, 50ms * i);
    EXPECT_EQ(records[i].length, Duration(50ms));
    EXPECT_EQ(records[i].gauges.connections_established, 8U);
    EXPECT_FALSE(records[i].drain);
  }
}

TEST_F(WorkerTest, HoldsWithoutConnections) {
  FloodServer server;
  run(assignment(server.port(), 0));
  EXPECT_EQ(records.size(), 5U);
  EXPECT_EQ(total(&Counters::sent), 0U);
  EXPECT_EQ(server.accepted(), 0U);
}

TEST_F(WorkerTest, PausesAfterEveryLoop) {
  FloodServer server;
  auto a = assignment(server.port(), 2);
  a->epochs[0].parameters.load.calls_per_loop = 3;
  a->epochs[0].parameters.load.pause = 80ms;  // loops begin at 0, 80 and 160 ms
  run(a);
  EXPECT_EQ(total(Outcome::ok), server.calls());
  EXPECT_LE(server.calls(), 18U);
  EXPECT_GE(server.calls(), 6U);
  EXPECT_EQ(server.calls() % 3, 0U);
}

TEST_F(WorkerTest, KeepsToItsOwnersCap) {
  FloodServer server;
  auto a = assignment(server.port(), 8);
  a->segments[0].length = 500ms;
  a->max_rate_per_s = 200;
  run(a);
  EXPECT_EQ(total(&Counters::sent), server.calls());
  EXPECT_EQ(total(Outcome::ok), server.calls());
  EXPECT_LE(server.calls(), 103U);  // 500 ms and the burst
  EXPECT_GT(server.calls(), 10U);
  EXPECT_GT(total(&Counters::held), 0U);
  EXPECT_LT(total(&Counters::held), total(&Counters::sent));
  // A connection waits, or for its answer: the one is not counted in the other.
  Duration length{};
  double busy_ns = static_cast<double>(total(&Counters::held_ns));
  for (const Record& record : records) {
    length += record.length;
    const Histogram& latency = record.series[index(Outcome::ok)].latency;
    busy_ns += latency.mean() * static_cast<double>(latency.count());
  }
  EXPECT_LE(busy_ns, 8.0 * static_cast<double>(length.count()) * 1.01);
}

TEST_F(WorkerTest, GivesEveryConnectionItsTurnUnderACap) {
  FloodServer server({.close_after = 5});  // a place in line outlives the connection that took it
  auto a = assignment(server.port(), 4);
  a->segments[0].length = 1s;
  a->max_rate_per_s = 100;
  run(a);
  EXPECT_LE(server.calls(), 102U);
  EXPECT_GT(server.accepted(), 4U);
  EXPECT_EQ(total(&Counters::sent), server.calls());
  EXPECT_EQ(total(Outcome::ok) + total(Outcome::reset), server.calls());
}

TEST_F(WorkerTest, HoldsBackNothingThatACapAllows) {
  FloodServer server;
  auto a = assignment(server.port(), 2);
  a->epochs[0].parameters.load.calls_per_loop = 1;
  a->epochs[0].parameters.load.pause = 50ms;
  a->max_rate_per_s = 1000;
  run(a);
  EXPECT_GE(server.calls(), 4U);
  EXPECT_EQ(total(&Counters::held), 0U);
}

TEST_F(WorkerTest, ReconnectsAfterALoss) {
  FloodServer server({.close_after = 5});
  auto a = assignment(server.port(), 2);
  a->segments[0].length = 400ms;
  run(a);
  EXPECT_GT(server.accepted(), 2U);
  EXPECT_EQ(total(&Counters::sent), server.calls());
  EXPECT_GT(total(Outcome::reset), 0U);
  EXPECT_EQ(total(Outcome::ok) + total(Outcome::reset), server.calls());
  EXPECT_EQ(total(&Counters::connections_closed), total(Outcome::reset));
  // The end may find connections accepted and not established yet.
  EXPECT_LE(total(&Counters::connections_opened), server.accepted());
  EXPECT_GE(total(&Counters::connections_opened) + 2, server.accepted());
  EXPECT_THAT(errors(), HasSubstr("closed by the target"));
}

TEST_F(WorkerTest, ReconnectsAfterGoawayWithoutLosingACall) {
  FloodServer server({.goaway_after = 5});
  run(assignment(server.port(), 2));
  EXPECT_GT(server.accepted(), 2U);
  EXPECT_EQ(total(Outcome::reset), 0U);
  EXPECT_EQ(total(Outcome::ok), server.calls());
  EXPECT_GT(total(&Counters::connections_closed), 0U);
}

TEST_F(WorkerTest, TimesOutAndKeepsTheConnection) {
  FloodServer server({.silent = true});
  auto a = assignment(server.port(), 2);
  PreparedCall call = call_to(server.port());
  call.timeout = 60ms;
  a->epochs[0].call = prepare(call);
  run(a);
  EXPECT_GE(total(Outcome::timed_out), 4U);
  EXPECT_EQ(total(Outcome::timed_out), server.calls());
  EXPECT_GE(server.resets(), 4U);
  EXPECT_EQ(server.accepted(), 2U);
  EXPECT_EQ(total(&Counters::connections_closed), 0U);
  EXPECT_THAT(errors(), HasSubstr("no answer within 60ms"));
}

TEST_F(WorkerTest, CancelsWhatTheDrainCutsOff) {
  FloodServer server({.silent = true});
  auto a = assignment(server.port(), 3);
  Worker worker(0, a, callbacks());
  worker.set_drain(40ms);
  worker.open();
  worker.start_at(BootClock::now() + 10ms);
  wait_until([&] { return drained; });
  check_laws();
  EXPECT_EQ(total(&Counters::sent), 3U);
  EXPECT_EQ(total(Outcome::cancelled), 3U);
  EXPECT_EQ(records.back().start, Duration(200ms));
  EXPECT_EQ(records.back().length, Duration(40ms));
}

TEST_F(WorkerTest, StopsAtTheGivenInstant) {
  FloodServer server;
  auto a = assignment(server.port(), 3);
  a->segments[0].length = 1h;
  Worker worker(0, a, callbacks());
  worker.open();
  t0 = BootClock::now() + 10ms;
  worker.start_at(t0);
  wait_until([&] { return records.size() >= 2; });
  const Instant at = BootClock::now() + 20ms;
  worker.stop(at, 1s);
  wait_until([&] { return drained; });
  check_laws();
  EXPECT_EQ(t0 + records.back().start, at);
  EXPECT_EQ(total(Outcome::ok), server.calls());
  EXPECT_EQ(total(&Counters::sent), server.calls());
}

TEST_F(WorkerTest, StopsBeforeItsStart) {
  FloodServer server;
  Worker worker(0, assignment(server.port(), 3), callbacks());
  worker.open();
  worker.stop(BootClock::now(), 1s);
  wait_until([&] { return drained; });
  EXPECT_TRUE(records.empty());
}

TEST_F(WorkerTest, GrowsAndShrinksWithTheEpochs) {
  FloodServer server;
  auto a = assignment(server.port(), 2);
  a->epochs.push_back(epoch(2, 6));
  a->epochs.push_back(epoch(3, 1));
  a->segments = {
      {0ms, 120ms, 0, 1, false}, {120ms, 120ms, 1, 2, false}, {240ms, 120ms, 2, 3, false}};
  run(a);
  EXPECT_EQ(total(&Counters::connections_opened), 6U);
  EXPECT_EQ(total(&Counters::connections_closed), 5U);
  EXPECT_EQ(server.accepted(), 6U);
  EXPECT_EQ(total(Outcome::ok), server.calls());
  for (const Record& record : records) {
    EXPECT_EQ(record.epoch, record.phase + 1);
    if (record.start + record.length == 120ms) {
      EXPECT_EQ(record.gauges.connections_established, 2U);
    }
    if (record.start + record.length == 240ms) {
      EXPECT_EQ(record.gauges.connections_established, 6U);
    }
    if (record.start + record.length == 360ms) {
      EXPECT_EQ(record.gauges.connections_established, 1U);
    }
  }
}

TEST_F(WorkerTest, TellsWhyItCannotConnect) {
  std::uint16_t port = 0;
  { port = FloodServer().port(); }
  run(assignment(port, 2));
  EXPECT_EQ(opening.established, 0U);
  EXPECT_GE(opening.failed_attempts, 2U);
  ASSERT_FALSE(opening.errors.empty());
  EXPECT_THAT(opening.errors.classes()[0].text, HasSubstr("ECONNREFUSED"));
  EXPECT_GT(total(&Counters::connect_failed), 2U);
}

TEST_F(WorkerTest, CountsAPeerThatBreaksTheProtocol) {
  FloodServer server({.garbage = true});
  run(assignment(server.port(), 1));
  EXPECT_EQ(opening.established, 0U);
  EXPECT_GT(total(&Counters::connection_protocol_errors), 0U);
  EXPECT_EQ(total(&Counters::sent), 0U);
}

TEST_F(WorkerTest, EndsInTheMiddleWhenDestroyed) {
  FloodServer server;
  auto a = assignment(server.port(), 4);
  a->segments[0].length = 1h;
  Worker worker(0, a, callbacks());
  worker.open();
  worker.start_at(BootClock::now());
  wait_until([&] { return !records.empty(); });
}

TEST_F(WorkerTest, ProbeMakesNoCall) {
  FloodServer server;
  const auto result = probe_target(call_to(server.port()), 5s);
  EXPECT_TRUE(result) << result.error().message;
  EXPECT_EQ(server.calls(), 0U);
}

TEST_F(WorkerTest, ProbeSaysWhatIsWrong) {
  const auto error = [&](Misbehaviour behaviour) {
    FloodServer server(behaviour);
    const auto result = probe_target(call_to(server.port()), 5s);
    return result ? std::string("no error") : result.error().message;
  };
  EXPECT_THAT(error({.garbage = true}), HasSubstr("does not speak HTTP/2"));
  EXPECT_THAT(error({.trailers_only = h2::kStatus200 + h2::header("grpc-status", "12")}),
              HasSubstr("is not known to the target"));
  EXPECT_THAT(error({.trailers_only = "\x8d"}), HasSubstr("not gRPC"));
  std::uint16_t port = 0;
  { port = FloodServer().port(); }
  const auto refused = probe_target(call_to(port), 5s);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("connection refused"));
}

}  // namespace
}  // namespace spate::agent
