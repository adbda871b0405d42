#include "agent/worker.h"

#include <gmock/gmock.h>

#include <condition_variable>
#include <mutex>

#include "agent/message_template.h"
#include "agent/target_probe.h"
#include "tests/unit/agent/flood_server.h"

namespace spate::agent {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::IsEmpty;

class WorkerTest : public testing::Test {
 protected:
  static EpochShare epoch(std::uint32_t number, std::uint64_t connections) {
    EpochShare share;
    share.epoch = number;
    share.parameters.load.connections = connections;
    return share;
  }

  std::shared_ptr<Assignment> assignment(std::uint16_t port, std::uint64_t connections) {
    auto a = std::make_shared<Assignment>();
    a->run = "r";
    a->agent = "a";
    a->address = *IpAddress::parse("127.0.0.1");
    a->target = {"127.0.0.1", port};
    a->method_path = "/spate.target.v1.Calls/Call";
    a->message = *MessageTemplate::compile("spate.target.v1.Calls/Call", "",
                                           R"({"call":{"add":["{{random 0 9}}",1]}})");
    a->timeout = 10s;
    a->interval = 50ms;
    a->timeline.epochs = {epoch(1, connections)};
    a->timeline.segments = {{.offset = {}, .length = 200ms, .phase = 0, .epoch = 1}};
    return a;
  }

  WorkerCallbacks callbacks() {
    return {
        .opening = [this](auto, OpenStatus status) { note([&] { opening = status; }); },
        .first_request = [this](auto, Instant at) { note([&] { first = at; }); },
        .interval = [this](auto,
                           Record record) { note([&] { records.push_back(std::move(record)); }); },
        .drained = [this](auto) { note([&] { drained = true; }); }};
  }
  template <class F>
  void note(F&& change) {
    const std::lock_guard lock(mutex);
    change();
    changed.notify_all();
  }
  template <class F>
  void wait_until(F&& condition) {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, 20s, condition));
  }

  // Opens, starts, and waits for the end.
  void run(const std::shared_ptr<Assignment>& a) {
    Worker worker(0, a, callbacks());
    worker.open();
    wait_until([&] { return opening.settled; });
    t0 = BootClock::now() + 10ms;
    worker.start_at(t0);
    wait_until([&] { return drained; });
    check_laws();
  }
  void check_laws() {
    ASSERT_FALSE(records.empty());
    std::uint64_t seq = 0;
    for (Record& record : records) {
      record.key = {"r", "a", 1, ++seq};
      EXPECT_THAT(broken_laws(record), IsEmpty());
    }
    for (std::size_t i = 1; i < records.size(); ++i)
      EXPECT_THAT(broken_chain(records[i - 1], records[i]), IsEmpty());
    EXPECT_TRUE(records.back().drain);
    EXPECT_EQ(records.back().counters.in_flight_end, 0U);
    EXPECT_EQ(records.front().start, Duration(0));
  }
  std::uint64_t total(Outcome outcome) const {
    std::uint64_t n = 0;
    for (const Record& record : records) n += record.count(outcome);
    return n;
  }
  template <class T>
  std::uint64_t total(T Counters::*counter) const {
    std::uint64_t n = 0;
    for (const Record& record : records) n += record.counters.*counter;
    return n;
  }
  std::string errors() const {
    std::string text;
    for (const Record& record : records)
      for (const ErrorClass& error : record.errors.classes()) text += error.text + "\n";
    return text;
  }

  std::mutex mutex;
  std::condition_variable changed;
  OpenStatus opening;
  Instant first{};
  std::vector<Record> records;
  bool drained = false;
  Instant t0{};
};

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
  a->timeline.epochs[0].parameters.load.calls_per_loop = 3;
  a->timeline.epochs[0].parameters.load.pause = 80ms;  // loops begin at 0, 80 and 160 ms
  run(a);
  EXPECT_EQ(total(Outcome::ok), server.calls());
  EXPECT_LE(server.calls(), 18U);
  EXPECT_GE(server.calls(), 6U);
  EXPECT_EQ(server.calls() % 3, 0U);
}

TEST_F(WorkerTest, ReconnectsAfterALoss) {
  FloodServer server({.close_after = 5});
  auto a = assignment(server.port(), 2);
  a->timeline.segments[0].length = 400ms;
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
  a->timeout = 60ms;
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
  a->timeline.segments[0].length = 1h;
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
  a->timeline.epochs.push_back(epoch(2, 6));
  a->timeline.epochs.push_back(epoch(3, 1));
  a->timeline.segments = {
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
  a->timeline.segments[0].length = 1h;
  Worker worker(0, a, callbacks());
  worker.open();
  worker.start_at(BootClock::now());
  wait_until([&] { return !records.empty(); });
}

TEST_F(WorkerTest, ProbeMakesNoCall) {
  FloodServer server;
  const auto a = assignment(server.port(), 1);
  const auto result = probe_target(*a, 5s);
  EXPECT_TRUE(result) << result.error().message;
  EXPECT_EQ(server.calls(), 0U);
}

TEST_F(WorkerTest, ProbeSaysWhatIsWrong) {
  const auto error = [&](Misbehaviour behaviour) {
    FloodServer server(behaviour);
    const auto result = probe_target(*assignment(server.port(), 1), 5s);
    return result ? std::string("no error") : result.error().message;
  };
  EXPECT_THAT(error({.garbage = true}), HasSubstr("does not speak HTTP/2"));
  EXPECT_THAT(error({.trailers_only = h2::kStatus200 + h2::header("grpc-status", "12")}),
              HasSubstr("is not known to the target"));
  EXPECT_THAT(error({.trailers_only = "\x8d"}), HasSubstr("not gRPC"));
  std::uint16_t port = 0;
  { port = FloodServer().port(); }
  const auto refused = probe_target(*assignment(port, 1), 5s);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("connection refused"));
}

}  // namespace
}  // namespace spate::agent
