#include "tests/sim/world.h"

#include <algorithm>
#include <cstdio>

namespace spate::sim {
namespace {

constexpr std::int64_t kWallOrigin = 1'796'000'000'000;  // ms since 1970 of the history's begin
constexpr std::int64_t kBillion = 1'000'000'000;
// A law that is broken once is broken often: the first ones tell the story.
constexpr std::size_t kMaxViolations = 20;

// d * ppb / 10^9 without overflow for d of years.
Duration scaled(Duration d, std::int64_t ppb) {
  const std::int64_t whole = d.count() / kBillion;
  const std::int64_t rest = d.count() % kBillion;
  return Duration(whole * ppb + rest * ppb / kBillion);
}

}  // namespace

void World::at(Moment moment, std::function<void()> what) {
  queue_.push({std::max(moment, now_), order_++, std::move(what)});
}

bool World::step(Moment end) {
  if (queue_.empty() || queue_.top().moment > end) {
    now_ = std::max(now_, end);
    return false;
  }
  // top() is const only because its order must not change; it is popped at once.
  Due due = std::move(const_cast<Due&>(queue_.top()));
  queue_.pop();
  now_ = due.moment;
  ++events_;
  due.what();
  return true;
}

void World::tell(const std::string& who, const std::string& what) {
  if (!is_traced()) return;
  std::string line = seconds_text(elapsed()) + " " + who + ": " + what;
  if (tracing_ == Tracing::printed)
    std::printf("%s\n", line.c_str());
  else
    story_.push_back(std::move(line));
}

void World::violated(const std::string& law, const std::string& text) {
  tell("LAW", law + ": " + text);
  if (violations_.size() < kMaxViolations)
    violations_.push_back(seconds_text(elapsed()) + " " + law + ": " + text);
}

Instant MachineClock::boottime(Moment now) const {
  const Duration up = now - booted_;
  return Instant(origin_ + up + scaled(up, drift_ppb_));
}

Moment MachineClock::when(Instant instant, Moment now) const {
  const Duration left = instant - boottime(now);
  if (left <= Duration::zero()) return now;
  // One division would do but for its rounding: step on until the clock really shows it.
  Moment moment = now + left - scaled(left, drift_ppb_);
  moment = std::max(moment, now);
  while (boottime(moment) < instant) moment += std::max(instant - boottime(moment), Duration(1));
  return moment;
}

std::int64_t MachineClock::wall_ms(Moment now) const {
  return kWallOrigin + (now.time_since_epoch() + wall_step_) / std::chrono::milliseconds(1);
}

void MachineClock::reboot(Moment now) {
  booted_ = now;
  origin_ = std::chrono::seconds(15);
  ++boots_;
}

std::string seconds_text(Duration d) {
  char text[32];
  std::snprintf(text, sizeof text, "%10.3f", std::chrono::duration<double>(d).count());
  return text;
}

}  // namespace spate::sim
