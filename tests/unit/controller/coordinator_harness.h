#pragma once

// A coordinator under a manual clock, with what it asked for sorted by kind, and agents that are a
// few lines each.

#include <gmock/gmock.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/version.h"
#include "controller/coordinator.h"
#include "tests/unit/controller/run_data.h"

namespace spate::controller::test {

inline const char* const kScript = R"({
  "name": "script", "target": {"url": "grpc://127.0.0.1:1"},
  "call": {"method": "spate.target.v1.Calls/Call", "message": {}},
  "load": {"model": "closed", "connections": 10}, "agents": {"count": 2},
  "interval": "1s", "phases": [{"name": "flood", "for": "60s"}]})";

class CoordinatorTest : public testing::Test {
 protected:
  void start(Restored restored = {}) {
    restored.cluster = kCluster;
    restored.term = ++term_;
    Coordinator::Config config;
    config.boot_id = boot_id_;
    config.wall_ms = kWallMs + (now_ - from_ns(kBegin)) / std::chrono::milliseconds(1);
    coordinator_ = std::make_unique<Coordinator>(std::move(config), std::move(restored), now_);
  }

  void step(Event event) {
    for (Action& action : coordinator_->step(std::move(event), now_)) {
      if (auto* write = std::get_if<action::Write>(&action)) write_(write->op);
      if (auto* barrier = std::get_if<action::Barrier>(&action)) {
        barrier_ = barrier->barrier;
        barriers_.push_back(barrier_);
      }
      if (auto* log = std::get_if<action::Log>(&action)) log_ += log->text + "\n";
      actions_.push_back(std::move(action));
    }
  }
  void pass_barriers() {
    for (const std::uint64_t barrier : std::exchange(barriers_, {}))
      step(event::BarrierPassed{barrier});
  }
  void tick_after(Duration d) {
    now_ += d;
    step(event::Tick{});
  }
  // In steps that agents with heartbeats survive.
  void pass(Duration d) {
    for (const Instant end = now_ + d; now_ < end;) {
      for (const auto& [name, stream] : streams_)
        step(event::FromAgent{stream, AgentHeartbeat{to_ns(now_), 0, 0, to_ns(now_)}});
      tick_after(std::min<Duration>(end - now_, std::chrono::milliseconds(500)));
    }
  }

  AgentHello hello(const std::string& name, std::uint64_t incarnation) {
    AgentHello h;
    h.protocol = kProtocolVersion;
    h.version = kVersion;
    h.name = name;
    h.incarnation = incarnation;
    h.agent_id = name + "-id";
    h.nonce = incarnation;
    h.host = name + "-host";
    h.peer = name + "-peer";
    return h;
  }
  // Its next process, after one that had a share of `run`.
  AgentHello successor(const std::string& name, std::uint64_t incarnation, const std::string& run) {
    AgentHello h = hello(name, incarnation);
    h.accounts.push_back({run, incarnation - 1, 0, "killed"});
    return h;
  }
  void say_hello(const AgentHello& h) {
    streams_[h.name] = next_stream_++;
    step(event::StreamOpened{streams_[h.name]});
    say(h.name, h);
  }
  void say(const std::string& agent, AgentMessage message) {
    step(event::FromAgent{streams_.at(agent), std::move(message)});
  }
  void cut(const std::string& agent) {
    const StreamId stream = streams_.at(agent);
    streams_.erase(agent);
    step(event::StreamClosed{stream});
  }

  // The last message of this type to an agent; null: none.
  template <class Message>
  const Message* sent(const std::string& agent) const {
    const Message* found = nullptr;
    for (const Action& action : actions_) {
      const auto* send = std::get_if<action::Send>(&action);
      if (send == nullptr || send->stream != streams_.at(agent)) continue;
      if (const auto* m = std::get_if<Message>(&send->message)) found = m;
    }
    return found;
  }
  template <class Kind>
  const Kind* last() const {
    const Kind* found = nullptr;
    for (const Action& action : actions_) {
      if (const auto* one = std::get_if<Kind>(&action)) found = one;
    }
    return found;
  }

  std::string submit(const std::string& plan = kScript) {
    SubmitOrder order;
    order.plan = plan;
    step(event::Submit{++token_, order, kWallMs, 77});
    return last_run();
  }
  std::string last_run() const { return info_.empty() ? "" : info_.rbegin()->first; }
  // Two agents, and the run up to the stage `running`.
  std::string start_run(const std::string& plan = kScript) {
    say_hello(hello("pc-1", 1));
    say_hello(hello("pc-2", 1));
    const std::string run = submit(plan);
    for (const char* agent : {"pc-1", "pc-2"}) {
      say(agent, AgentPrepareReply{run, {}});
      say(agent, AgentArmed{run, 5, 5, {}});
    }
    pass_barriers();
    pass(kStartLead);
    EXPECT_EQ(coordinator_->live_run(run)->run().stage(), RunStage::running);
    return run;
  }
  AgentRecord record(FakeAgent& agent, const std::string& run, Duration start) {
    FakeAgent::Interval interval;
    interval.start = start;
    interval.requests = ok_requests(5);
    AgentRecord r{agent.next(interval), {}};
    r.record.key.run = run;
    r.bytes = std::to_string(r.record.key.seq);
    return r;
  }
  // The store has committed everything it was given.
  void commit() {
    std::vector<Mark> marks;
    for (const auto& [key, seq] : std::exchange(uncommitted_, {}))
      marks.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), seq});
    step(event::Committed{std::move(marks)});
  }

  static constexpr const char* kCluster = "0123456789abcdef0123456789abcdef";
  static constexpr std::int64_t kBegin = 1'000'000'000'000;
  static constexpr std::int64_t kWallMs = 1'796'034'379'000;
  Instant now_ = from_ns(kBegin);
  std::uint64_t term_ = 0;
  std::string boot_id_ = "boot-1";
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<Action> actions_;
  std::string log_;
  std::uint64_t barrier_ = 0;            // the last one
  std::vector<std::uint64_t> barriers_;  // that have not passed
  std::map<std::string, RunInfo> info_;  // as written last
  std::map<std::string, RunOutcome> outcome_;
  std::vector<Record> records_;
  std::string events_;
  std::map<std::string, StreamId> streams_;
  Token token_ = 0;

 private:
  void write_(const StoreOp& op) {
    if (const auto* run = std::get_if<store_op::PutRun>(&op)) {
      info_[run->info.id] = run->info;
      outcome_[run->info.id] = run->outcome;
    } else if (const auto* put = std::get_if<store_op::PutRecord>(&op)) {
      const RecordKey& key = put->record.key;
      uncommitted_[{key.run, key.agent, key.incarnation}] = key.seq;
      records_.push_back(put->record);
    } else if (const auto* event = std::get_if<store_op::PutEvent>(&op)) {
      events_ += event->event.text + "\n";
    }
  }

  StreamId next_stream_ = 1;
  std::map<std::tuple<std::string, std::string, std::uint64_t>, std::uint64_t> uncommitted_;
};

}  // namespace spate::controller::test
