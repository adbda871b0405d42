#pragma once

// Time inside spate is monotonic: CLOCK_BOOTTIME, which also counts suspend. Wall time is a label
// only. Core code never reads a clock; it is told `now`.

#include <time.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace spate {

using Duration = std::chrono::nanoseconds;

struct BootClock {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<BootClock>;
  static constexpr bool is_steady = true;

  static time_point now() noexcept {
    timespec t{};
    clock_gettime(CLOCK_BOOTTIME, &t);
    return time_point(std::chrono::seconds(t.tv_sec) + Duration(t.tv_nsec));
  }
};

using Instant = BootClock::time_point;

inline std::int64_t to_ns(Instant t) { return t.time_since_epoch().count(); }
inline Instant from_ns(std::int64_t ns) { return Instant(Duration(ns)); }

// Wall time in milliseconds since 1970, for labels.
std::int64_t wall_clock_ms();
// By how much it is ahead of BootClock; jumps when somebody sets it.
Duration wall_clock_offset();
// "2026-11-30T10:26:19Z"
std::string rfc3339(std::int64_t wall_ms);

}  // namespace spate
