#include "common/clock.h"

namespace spate {

std::int64_t wall_clock_ms() {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<std::int64_t>(t.tv_sec) * 1000 + t.tv_nsec / 1'000'000;
}

Duration wall_clock_offset() {
  return std::chrono::milliseconds(wall_clock_ms()) - BootClock::now().time_since_epoch();
}

std::string rfc3339(std::int64_t wall_ms) {
  // Rounds towards the past, also before 1970.
  std::int64_t seconds = wall_ms / 1000;
  if (wall_ms % 1000 < 0) --seconds;
  const auto when = static_cast<time_t>(seconds);
  tm parts{};
  if (gmtime_r(&when, &parts) == nullptr) return "0000-00-00T00:00:00Z";
  char text[40];
  const std::size_t length = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return std::string(text, length);
}

}  // namespace spate
