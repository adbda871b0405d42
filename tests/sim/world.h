#pragma once

// The simulated world's time, order and chance. One thread. Everything that happens in a history is
// an event of one queue, ordered by (moment, order of scheduling), and every draw comes from one
// seeded generator: the same seed is the same history, bit for bit.

#include <chrono>
#include <cstdint>
#include <functional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/random.h"

namespace spate::sim {

// True time: what no machine in the world can read. A type of its own, because every machine has
// its own CLOCK_BOOTTIME (an Instant) and they must not be mixed.
struct WorldClock {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<WorldClock>;
  static constexpr bool is_steady = true;
};
using Moment = WorldClock::time_point;

// What becomes of a history's story.
enum class Tracing {
  off,
  kept,     // for its end
  printed,  // as it happens: a history that a CHECK ends has one, too
};

class World {
 public:
  World(std::uint64_t seed, Tracing tracing) : random_(seed), tracing_(tracing) {}
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  Moment now() const { return now_; }
  Duration elapsed() const { return now_.time_since_epoch(); }
  void at(Moment moment, std::function<void()> what);
  void after(Duration delay, std::function<void()> what) { at(now_ + delay, std::move(what)); }
  // Runs the next event. False: there is none before `end`; now() is `end` then.
  bool step(Moment end);
  std::uint64_t events() const { return events_; }

  Random& random() { return random_; }
  Duration between(Duration low, Duration high) {
    return Duration(random_.between(low.count(), high.count()));
  }
  bool chance(double probability) { return random_.unit() < probability; }
  std::size_t pick(std::size_t count) {
    return static_cast<std::size_t>(random_.between(0, static_cast<std::int64_t>(count) - 1));
  }

  bool is_traced() const { return tracing_ != Tracing::off; }
  // One line of the story: who, and verb key=value.
  void tell(const std::string& who, const std::string& what);
  const std::vector<std::string>& story() const { return story_; }

  // A law of the product is broken. The history goes on, so that all of them are seen.
  void violated(const std::string& law, const std::string& text);
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  struct Due {
    Moment moment;
    std::uint64_t order;
    std::function<void()> what;
    bool operator<(const Due& other) const {  // the queue's top is the largest
      return std::pair(moment, order) > std::pair(other.moment, other.order);
    }
  };

  Moment now_;
  std::uint64_t order_ = 0;
  std::uint64_t events_ = 0;
  std::priority_queue<Due> queue_;
  Random random_;
  const Tracing tracing_;
  std::vector<std::string> story_;
  std::vector<std::string> violations_;
};

// The clocks of one machine: CLOCK_BOOTTIME, with its own origin and the drift of its crystal, and
// a wall clock that anybody may step.
class MachineClock {
 public:
  MachineClock(Duration uptime, std::int64_t drift_ppb) : origin_(uptime), drift_ppb_(drift_ppb) {}

  Instant boottime(Moment now) const;
  // The first moment at which boottime() has reached `instant`; never before `now`.
  Moment when(Instant instant, Moment now) const;
  std::int64_t wall_ms(Moment now) const;

  void reboot(Moment now);
  void step_wall(Duration by) { wall_step_ += by; }
  std::uint64_t boots() const { return boots_; }

 private:
  Moment booted_;
  Duration origin_;
  std::int64_t drift_ppb_;
  Duration wall_step_{};
  std::uint64_t boots_ = 1;
};

std::string seconds_text(Duration d);  // "12.345"

}  // namespace spate::sim
