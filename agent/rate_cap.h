#pragma once

// How many requests per second the owner of this agent allows, as far as one worker is concerned:
// the same part of them as it has of the agent's connections. Nothing is shared between workers;
// the parts add up to the whole. Pure; one thread; told the time.
//
// In any stretch of time t, at most (t + kBurst) x the worker's rate + 1 requests are let through,
// however late the thread was: what was not used is lost, but for kBurst of it.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "agent/timer_queue.h"
#include "common/clock.h"

namespace spate::agent {

class RateCap {
 public:
  // What a worker that woke up late may make up for.
  static constexpr Duration kBurst = std::chrono::milliseconds(10);

  // From now on. The wait that what was let through has cost is as much of the new rate as it was
  // of the old one. `per_second` 0: no cap.
  void set(double per_second, std::uint64_t connections, std::uint64_t of_agent, Instant now) {
    const double before = period_ns_;
    const double rate = of_agent == 0 ? 0
                                      : per_second * static_cast<double>(connections) /
                                            static_cast<double>(of_agent);
    is_set_ = per_second > 0;
    period_ns_ = rate > 0 ? std::max(1.0, std::ceil(1e9 / rate)) : 0;
    if (period_ns_ > 0 && before > 0 && next_ > now)
      next_ = now + ns(static_cast<double>((next_ - now).count()) * (period_ns_ / before));
  }

  bool is_set() const { return is_set_; }
  // The next request may leave from here on.
  Instant opens() const { return period_ns_ > 0 ? next_ - kBurst : kNever; }
  void let_through(Instant now) { next_ = std::max(next_, now) + ns(period_ns_); }

 private:
  // Not beyond a year: nothing waits for longer, and instants do not overflow.
  static Duration ns(double count) { return Duration(std::llround(std::min(count, 3.2e16))); }

  bool is_set_ = false;
  double period_ns_ = 0;  // 0: nothing is let through
  Instant next_{};        // when there would be room without a burst
};

}  // namespace spate::agent
