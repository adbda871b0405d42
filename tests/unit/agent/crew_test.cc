#include "agent/crew.h"

#include <gmock/gmock.h>

#include <boost/asio/executor_work_guard.hpp>

#include "agent/message_template.h"
#include "tests/unit/agent/flood_server.h"

namespace spate::agent {
namespace {

using namespace std::chrono_literals;
using testing::IsEmpty;

constexpr Duration kLength = 400ms;

// A crew, its control loop run by the test, and the agent's records.
class CrewTest : public testing::Test {
 protected:
  AssignedEpoch epoch(std::uint32_t number, std::uint64_t connections, std::uint32_t threads) {
    AssignedEpoch e{number, {}, call};
    e.parameters.load.connections = connections;
    e.parameters.threads = threads;
    return e;
  }
  std::shared_ptr<const Assignment> assignment(std::uint32_t number, std::uint64_t connections,
                                               std::uint32_t threads, Duration from = 0ms) {
    Assignment a;
    a.run = "r";
    a.agent = "a";
    a.interval = 50ms;
    a.workers = workers;
    a.numbered_connections = 8;
    a.epochs = {epoch(number, connections, threads)};
    a.segments = {{from, kLength - from, 0, number, false}};
    return std::make_shared<const Assignment>(a);
  }

  void make(std::uint64_t connections) {
    PreparedCall c;
    c.route = std::make_shared<Route>(
        Route{*IpAddress::parse("127.0.0.1"), {"127.0.0.1", server.port()}, nullptr});
    c.method_path = "/spate.target.v1.Calls/Call";
    c.message = *MessageTemplate::compile("spate.target.v1.Calls/Call", "",
                                          R"({"call":{"text":"{{connection}}"}})");
    c.timeout = 10s;
    call = prepare(c);
    first = assignment(1, connections, workers);
    crew = std::make_shared<Crew>(loop, first, [this](Event e) { note(std::move(e)); });
    ASSERT_TRUE(crew->prepare(*first));
    crew->open();
    run_until([&] { return opening.settled; });
    t0 = BootClock::now() + 10ms;
    crew->start_at(t0, t0, 5s);
  }
  void change(Duration at, std::uint32_t number, std::uint64_t connections, std::uint32_t threads) {
    const auto next = assignment(number, connections, threads, at);
    ASSERT_TRUE(crew->prepare(*next));
    crew->change(next, number, t0 + at);
  }
  void note(Event e) {
    if (auto* o = std::get_if<WorkersOpening>(&e)) opening = *o;
    if (auto* r = std::get_if<IntervalClosed>(&e)) records.push_back(std::move(r->record));
    if (auto* c = std::get_if<ChangedOver>(&e)) changes.push_back(*c);
    if (std::get_if<WorkersDrained>(&e)) drained = true;
  }
  template <class F>
  void run_until(F&& condition) {
    const Instant deadline = BootClock::now() + 20s;
    while (!condition() && BootClock::now() < deadline) loop.run_for(10ms);
    ASSERT_TRUE(condition());
  }
  void finish() {
    run_until([&] { return drained; });
    std::uint64_t seq = 0;
    std::uint64_t ok = 0;
    for (Record& r : records) {
      r.key = {"r", "a", 1, ++seq};
      EXPECT_THAT(broken_laws(r), IsEmpty());
      ok += r.count(Outcome::ok);
    }
    for (std::size_t i = 1; i < records.size(); ++i) {
      EXPECT_THAT(broken_chain(records[i - 1], records[i]), IsEmpty());
      EXPECT_GE(records[i].epoch, records[i - 1].epoch);
    }
    EXPECT_EQ(records.back().counters.in_flight_end, 0U);
    EXPECT_EQ(ok, server.calls());
    crew->release();
  }
  const Record& last_of(std::uint32_t number) const {
    const Record* last = nullptr;
    for (const Record& r : records)
      if (r.epoch == number && !r.drain) last = &r;
    return last ? *last : records.front();
  }

  FloodServer server;
  boost::asio::io_context loop{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{
      loop.get_executor()};
  std::shared_ptr<const PreparedCall> call;
  std::shared_ptr<const Assignment> first;
  std::uint32_t workers = 2;
  std::shared_ptr<Crew> crew;
  Instant t0;
  WorkersOpening opening;
  std::vector<Record> records;
  std::vector<ChangedOver> changes;
  bool drained = false;
};

TEST_F(CrewTest, TakesOnWorkersAndLetsThemIdle) {
  make(8);
  change(115ms, 2, 8, 4);
  run_until([&] { return changes.size() == 1; });
  EXPECT_EQ(changes[0].epoch, 2U);
  EXPECT_EQ(changes[0].at, t0 + 115ms);
  change(265ms, 3, 8, 1);
  finish();
  ASSERT_EQ(changes.size(), 2U);
  EXPECT_EQ(last_of(1).start + last_of(1).length, Duration(115ms)) << "one instant for all";
  EXPECT_EQ(last_of(2).start + last_of(2).length, Duration(265ms));
  for (std::uint32_t e = 1; e <= 3; ++e) {
    EXPECT_EQ(last_of(e).gauges.connections_established, 8U) << "epoch " << e;
    EXPECT_EQ(last_of(e).gauges.connections_requested, 8U);
    EXPECT_GT(last_of(e).counters.sent, 0U);
  }
  EXPECT_EQ(server.accepted(), 8U + 4U + 6U) << "what stays on its worker stays open";
  EXPECT_EQ(server.messages().size(), 8U + 4U + 4U) << "two connections came back with theirs";
}

TEST_F(CrewTest, LeavesNobodyBehindWhenAChangeForMoreWorkersIsReplaced) {
  make(4);
  change(300ms, 2, 8, 4);
  change(120ms, 3, 6, 2);
  finish();
  EXPECT_EQ(last_of(3).gauges.connections_established, 6U);
  EXPECT_EQ(last_of(3).start + last_of(3).length, kLength);
  for (const Record& r : records) EXPECT_NE(r.epoch, 2U);
  EXPECT_EQ(changes.back().epoch, 3U);
}

TEST_F(CrewTest, StopsWhileWorkersWaitToJoin) {
  make(4);
  change(300ms, 2, 8, 4);
  run_until([&] { return records.size() >= 2; });
  crew->stop(BootClock::now() + 20ms, 5s);
  finish();
  EXPECT_LT(records.back().start, Duration(300ms));
}

TEST_F(CrewTest, HoldsAllWorkersWhenTheLeaseEnds) {
  make(4);
  crew->lease(t0 + 100ms);
  run_until([&] { return records.size() >= 4; });
  change(BootClock::now() - t0 + 20ms, 2, 8, 4);  // those that join have no lease either
  run_until([&] { return changes.size() == 1; });
  const std::uint64_t held = server.calls();
  run_until([&] { return records.size() >= 7; });
  EXPECT_EQ(server.calls(), held);
  crew->lease(BootClock::now() + 10s);
  finish();
  EXPECT_GT(server.calls(), held);
}

}  // namespace
}  // namespace spate::agent
