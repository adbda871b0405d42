#pragma once

// Drives a Session under a manual clock, and keeps what it asked for.

#include <gtest/gtest.h>

#include "agent/session.h"
#include "tests/unit/agent/model_disk.h"
#include "tests/unit/agent/record_fixture.h"

namespace spate::agent {

using namespace std::chrono_literals;

inline Hello test_hello() {
  Hello h;
  h.protocol = 1;
  h.version = "0.1.0";
  h.name = "pc-1";
  h.incarnation = 77;
  return h;
}

class SessionHarness {
 public:
  static constexpr Duration kControllerAhead = 5h;  // of the agent's clock

  explicit SessionHarness(Spool::Limits limits = {}) : spool(begun(disk, limits)) {}

  static std::unique_ptr<Spool> begun(ModelDisk& disk, const Spool::Limits& limits) {
    auto opened = Spool::open(disk, limits);
    CHECK(opened && (*opened)->begin(77, "killed", {}), "a model disk does not fail by itself");
    return *std::move(opened);
  }

  const Actions& feed(Event event, std::uint64_t term = 0) {
    actions = session.step(std::move(event), now, term);
    for (const Action& a : actions) {
      if (const auto* s = std::get_if<Send>(&a)) sent.push_back(s->message);
      if (const auto* s = std::get_if<Say>(&a)) story.push_back(s->text);
    }
    return actions;
  }

  // Lets time pass, ticking whenever a tick is due; the controller answers heartbeats unless it is
  // `mute`.
  void pass(Duration time) {
    const Instant end = now + time;
    while (true) {
      const auto at = session.wake_at();
      if (!at || *at > end) break;
      now = std::max(now, *at);
      const std::size_t before = sent.size();
      feed(Tick{});
      const auto again = session.wake_at();
      ASSERT_TRUE(!again || *again > now || sent.size() > before || !actions.empty())
          << "a tick that does nothing";
      if (!mute) answer_heartbeats();
    }
    now = end;
  }

  void answer_heartbeats() {
    if (session.link() != Session::Link::up) return;
    while (answered < sent.size()) {
      const auto* h = std::get_if<Heartbeat>(&sent[answered++]);
      if (!h || h->sent < up_since) continue;
      const Instant t1 = h->sent;
      now += 200us;
      feed(HeartbeatReply{t1, at_controller(t1 + 100us), at_controller(t1 + 100us), t1 + 200us,
                          lease > 0s ? "run-1" : "", lease});
    }
  }

  static ControllerInstant at_controller(Instant t) {
    return ControllerInstant(t.time_since_epoch() + kControllerAhead);
  }

  void connect() {
    up_since = now;
    feed(StreamUp{});
    feed(Welcome{"pc-1", 1s});
    answer_heartbeats();
  }

  Prepare plan(const std::string& run = "run-1") const {
    Prepare p;
    p.run = run;
    Parameters parameters;
    parameters.target_url = "grpc://127.0.0.1:7000";
    parameters.call.method = "a.B/C";
    parameters.threads = 2;
    parameters.load.connections = 10;
    p.interval = 1s;
    p.timeline.epochs = {{1, parameters}};
    p.timeline.segments = {{0s, 10s, 0, 1, false}};
    p.drain = 5s;
    return p;
  }

  // From `from` on, 20 connections.
  EpochPrepare change(std::uint32_t epoch, Duration from, const std::string& run = "run-1") const {
    EpochPrepare c;
    c.run = run;
    c.epoch = epoch;
    c.from = from;
    Parameters parameters = plan().timeline.epochs[0].parameters;
    parameters.load.connections = 20;
    c.timeline.epochs = {{epoch, parameters}};
    c.timeline.segments = {{from, 10s - from, 0, epoch, false}};
    return c;
  }

  WorkersOpening opened(std::uint64_t established = 10, bool settled = true) const {
    WorkersOpening o;
    o.established = established;
    o.requested = 10;
    o.settled = settled;
    return o;
  }

  void go_to(Session::State state) {
    using S = Session::State;
    if (session.link() == Session::Link::down) connect();
    if (state == S::idle) return;
    feed(plan());
    if (state == S::checking) return;
    feed(PreflightDone{"run-1", {}});
    if (state == S::opening) return;
    feed(opened());
    if (state == S::armed) return;
    feed(Start{"run-1", at_controller(now + 1s)});
    t0 = now + 1s;
    if (state == S::running) return;
    pass(1s);
    feed(FirstRequest{t0 + 3ms});
    feed(FirstRequest{t0 + 2ms});
    close_interval();
    if (state == S::draining) {
      feed(Stop{"run-1", 2s, "user"});
      return;
    }
    if (state == S::delivering) {
      feed(WorkersDrained{});
      return;
    }
    feed(ShutdownRequested{});
    feed(WorkersDrained{});
    feed(RecordAck{"run-1", 77, intervals});
  }

  void close_interval() {
    feed(IntervalClosed{
        lawful(static_cast<std::int64_t>(intervals) * 1s, 1s, intervals == 0 ? 0 : 4, 4, 10)});
    ++intervals;
  }

  template <class T>
  std::vector<T> sent_of() const {
    std::vector<T> out;
    for (const AgentMessage& m : sent)
      if (const auto* t = std::get_if<T>(&m)) out.push_back(*t);
    return out;
  }

  template <class T>
  const T* did() const {
    for (const Action& a : actions)
      if (const auto* t = std::get_if<T>(&a)) return t;
    return nullptr;
  }

  ModelDisk disk;
  ModelTerms terms;
  std::unique_ptr<Spool> spool;
  Session session{test_hello(), *spool, terms};
  Instant now = from_ns(1'000'000'000'000);
  Instant up_since;
  Instant t0;
  bool mute = false;
  Duration lease{};  // granted with every answer; 0: none
  Actions actions;   // of the last step
  std::vector<AgentMessage> sent;
  std::vector<std::string> story;
  std::size_t answered = 0;
  std::uint64_t intervals = 0;
};

}  // namespace spate::agent
