#include "common/rotation.h"

#include <algorithm>

#include "common/time_zone.h"
#include "common/timeline.h"

namespace spate {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kDayS = 86'400;
constexpr Duration kDay = 24h;

Error too_many() {
  return invalid("the rotation changes over more than " + std::to_string(kMaxSegments) +
                 " times; make `every` longer");
}

Result<TimeZone> zone_of(const Rotation& rotation) {
  if (!rotation.zone_rules.empty()) return TimeZone::from_rules(rotation.zone_rules);
  if (rotation.zone == "UTC") return TimeZone::utc();
  return invalid("the rules of the time zone " + rotation.zone + " are not in the plan");
}

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

// What the clocks show at each change-over of a day, in nanoseconds since its midnight.
std::vector<Duration> times_of_day(const Rotation& rotation, Duration at) {
  if (rotation.every >= kDay) return {at};
  std::vector<Duration> times;
  for (Duration t = at % rotation.every; t < kDay; t += rotation.every) times.push_back(t);
  return times;
}

Result<std::vector<Duration>> by_wall_clock(const Rotation& rotation, Duration length,
                                            std::int64_t start_wall_ms) {
  const auto zone = zone_of(rotation);
  if (!zone) return zone.error();
  const auto at = minutes_of(rotation.at);
  if (!at) return at.error();
  if (const char* objection = objection_to_wall_clock(rotation.every); *objection != '\0')
    return invalid(objection);
  const auto times = times_of_day(rotation, std::chrono::minutes(*at));
  const std::int64_t days_each = std::max<std::int64_t>(rotation.every / kDay, 1);
  const Duration start = std::chrono::milliseconds(start_wall_ms);
  const std::int64_t start_s = floor_div(start_wall_ms, 1'000);

  std::vector<Duration> offsets;
  // The first change-over is the first one after T; the next ones are whole periods from it.
  std::int64_t step = 1;
  for (std::int64_t day = floor_div(start_s + zone->offset_at(start_s), kDayS) - 1;; day += step) {
    for (const Duration time : times) {
      const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
      const std::int64_t instant = zone->instant_of(day * kDayS + seconds.count());
      const Duration offset = std::chrono::seconds(instant) + (time - seconds) - start;
      if (offset >= length) return offsets;
      if (offset <= Duration::zero()) continue;
      if (!offsets.empty() && offset <= offsets.back()) continue;  // skipped by the clocks
      if (offsets.size() >= kMaxSegments) return too_many();
      offsets.push_back(offset);
      step = days_each;
    }
  }
}

}  // namespace

Result<std::vector<Duration>> change_overs(const Rotation& rotation, Duration length,
                                           std::int64_t start_wall_ms) {
  if (rotation.every <= Duration::zero()) return invalid("a rotation needs `every`");
  if (rotation.goes_by_wall_clock()) return by_wall_clock(rotation, length, start_wall_ms);
  if (length / rotation.every > static_cast<std::int64_t>(kMaxSegments)) return too_many();
  std::vector<Duration> offsets;
  for (Duration at = rotation.every; at < length; at += rotation.every) offsets.push_back(at);
  return offsets;
}

std::size_t set_in_period(const Rotation& rotation, std::size_t agent, std::size_t period) {
  const std::size_t first = rotation.across == Rotation::Across::agents ? agent : 0;
  return (first + period) % rotation.sets.size();
}

const char* objection_to_wall_clock(Duration every) {
  const bool fits =
      every > Duration::zero() && (every < kDay ? kDay % every : every % kDay) == Duration::zero();
  return fits ? "" : "with `at`, must divide a day (6h, 15m …) or be whole days (24h, 7d)";
}

Result<int> minutes_of(const std::string& at) {
  const auto digit = [&](std::size_t i) { return at[i] >= '0' && at[i] <= '9' ? at[i] - '0' : 99; };
  if (at.size() == 5 && at[2] == ':') {
    const int hours = digit(0) * 10 + digit(1);
    const int minutes = digit(3) * 10 + digit(4);
    if (hours < 24 && minutes < 60) return hours * 60 + minutes;
  }
  return invalid("\"" + at + "\" is not a time of day; write for example \"00:00\" or \"18:30\"");
}

}  // namespace spate
