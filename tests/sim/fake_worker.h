#pragma once

// One worker of a FakeCrew: see there. The state of its connections is a few numbers; time passes
// in it only by settle().

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "agent/recorder.h"
#include "common/random.h"
#include "common/timeline.h"
#include "tests/sim/fake_target.h"
#include "tests/sim/world.h"

namespace spate::sim {

class FakeWorker {
 public:
  struct Setting {
    MachineClock& clock;
    World& world;
    FakeTarget& target;
    Client client;
    std::function<bool()> reaches_target;
    std::function<void(Record)> closed;  // an interval
    std::function<void()> drained;
    std::function<void(Instant)> first_request;
    std::function<void(std::uint32_t epoch, Instant at)> changed_over;
    std::shared_ptr<agent::SlotRing> ring;  // null: counts do not outlive the process
    Duration interval{};
    std::uint64_t seed = 1;
  };
  static constexpr Instant kNever = Instant::max();
  static constexpr Duration kCallTimeout = std::chrono::seconds(10);

  FakeWorker(Setting setting, ShareTimeline timeline);

  void open();
  // T, and when this agent begins its part: then, or later.
  void start_at(Instant t0, Instant begin, Duration drain);
  // From `at` on, the segments of `next`; changes that were to come then or later are forgotten.
  void change(ShareTimeline next, std::uint32_t epoch, Instant at);
  // No request leaves from `end` on.
  void lease(Instant end);
  void stop(Instant at, Duration drain);
  // The process was stopped until now: nothing was done since the last settle().
  void slept() { asleep_until_ = now(); }
  // Everything up to now, borders included.
  void settle();
  void target_broke();
  void target_is_back();

  std::uint64_t established() const { return established_; }
  // Connections that may send now, and those of them that are there.
  std::uint64_t leased() const {
    return may_call() && now() < lease_end_ ? parameters().load.connections : 0;
  }
  std::uint64_t calling() const { return std::min(leased(), established_); }
  // When settle() must be called; kNever: not needed.
  Instant wake_at() const {
    const bool holds_later = may_call() && now() < lease_end_;
    return holds_later ? std::min(next_border_, lease_end_) : next_border_;
  }

 private:
  enum class State { created, opening, running, draining, done };

  const Parameters& parameters() const;
  bool may_call() const { return state_ == State::running && !parameters().paused; }
  agent::IntervalLabel label() const;
  struct Change {
    ShareTimeline timeline;
    std::uint32_t epoch = 0;
    Instant at;
  };

  void pass(Instant until);  // counts; no border is in between
  void call(Instant from, Instant until);
  void be_quiet(Instant until);
  void begin();
  bool make_changes(Instant border);
  void cross(Instant border);
  void begin_drain(Instant at);
  void end(Instant at);
  void set_next_border(Instant from);
  Instant cut_at(Instant at) const;
  void fit_connections(Instant now);
  void lose_connections(Outcome outcome, Instant now);
  void send(Instant now);
  void finish(Outcome outcome, Instant now);
  Outcome draw_outcome();
  Instant now() const { return setting_.clock.boottime(setting_.world.now()); }

  Setting setting_;
  FakeTarget::Account& account_;
  ShareTimeline timeline_;
  agent::Recorder recorder_;
  Random random_;
  State state_ = State::created;
  std::size_t segment_ = 0;
  Instant t0_ = kNever;
  Instant next_border_ = kNever;
  Instant interval_begin_ = kNever;
  Instant begin_ = kNever;
  Instant lease_end_ = kNever;
  std::deque<Change> changes_;  // ascending
  Instant stop_at_ = kNever;
  Instant drain_deadline_ = kNever;
  Duration drain_{};
  Instant passed_;                // everything up to here is counted
  Instant next_answer_ = kNever;  // of all connections together
  Instant asleep_until_ = Instant::min();
  Instant quiet_since_;           // no new request since then
  Instant stuck_since_ = kNever;  // the target cannot be reached
  Duration latency_;
  std::uint64_t established_ = 0;
  std::uint64_t in_flight_ = 0;
  std::uint64_t unheard_ = 0;  // of those in flight: the target has not got them
  bool first_request_said_ = false;
};

}  // namespace spate::sim
