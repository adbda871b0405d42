#pragma once

// A worker, what it reported, and whether that keeps the laws.

#include <gmock/gmock.h>

#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "agent/message_template.h"
#include "agent/worker.h"
#include "tests/unit/agent/flood_server.h"

namespace spate::agent {

using namespace std::chrono_literals;

class WorkerFixture : public testing::Test {
 protected:
  AssignedEpoch epoch(std::uint32_t number, std::uint64_t connections) const {
    AssignedEpoch e{number, {}, calls};
    e.parameters.load.connections = connections;
    return e;
  }

  PreparedCall call_to(std::uint16_t port) const {
    PreparedCall c;
    c.route = std::make_shared<Route>(
        Route{*IpAddress::parse("127.0.0.1"), {"127.0.0.1", port}, nullptr});
    c.method_path = "/spate.target.v1.Calls/Call";
    c.message = message(R"({"call":{"add":["{{random 0 9}}",1]}})");
    c.timeout = 10s;
    return c;
  }
  static std::shared_ptr<const MessageTemplate> message(const char* json) {
    return *MessageTemplate::compile("spate.target.v1.Calls/Call", "", json);
  }

  std::shared_ptr<Assignment> assignment(std::uint16_t port, std::uint64_t connections) {
    auto a = std::make_shared<Assignment>();
    a->run = "r";
    a->agent = "a";
    a->interval = 50ms;
    a->numbered_connections = connections;
    calls = prepare(call_to(port));
    a->epochs = {epoch(1, connections)};
    a->segments = {{.offset = {}, .length = 200ms, .phase = 0, .epoch = 1}};
    return a;
  }

  WorkerCallbacks callbacks() {
    return {
        .opening = [this](auto, OpenStatus status) { note([&] { opening = status; }); },
        .first_request = [this](auto, Instant at) { note([&] { first = at; }); },
        .interval = [this](auto,
                           Record record) { note([&] { records.push_back(std::move(record)); }); },
        .changed_over = [this](auto, std::uint32_t number,
                               Instant at) { note([&] { changes.emplace_back(number, at); }); },
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
      EXPECT_THAT(broken_laws(record), testing::IsEmpty());
    }
    for (std::size_t i = 1; i < records.size(); ++i)
      EXPECT_THAT(broken_chain(records[i - 1], records[i]), testing::IsEmpty());
    EXPECT_TRUE(records.back().drain);
    EXPECT_EQ(records.back().counters.in_flight_end, 0U);
    EXPECT_EQ(records.front().start, begins_at);
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

  std::shared_ptr<const PreparedCall> calls;
  std::mutex mutex;
  std::condition_variable changed;
  OpenStatus opening;
  Instant first{};
  std::vector<Record> records;
  std::vector<std::pair<std::uint32_t, Instant>> changes;
  bool drained = false;
  Instant t0{};
  Duration begins_at{};  // of the first record
};

}  // namespace spate::agent
