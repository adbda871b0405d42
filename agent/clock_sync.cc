#include "agent/clock_sync.h"

#include <algorithm>

namespace spate::agent {

bool ClockSync::add(const HeartbeatReply& reply) {
  const Duration total = reply.answered - reply.sent;
  const Duration in_controller = reply.replied - reply.received;
  const Duration round_trip = total - in_controller;
  if (total < Duration::zero() || in_controller < Duration::zero() || round_trip < Duration::zero())
    return false;

  // ((t2 - t1) + (t3 - t4)) / 2, kept as a midpoint so that two huge clock readings are never
  // added.
  const Duration out = reply.received.time_since_epoch() - reply.sent.time_since_epoch();
  const Duration back = reply.replied.time_since_epoch() - reply.answered.time_since_epoch();
  const Duration offset = back + (out - back) / 2;

  // Rounded up: half of an odd round trip must still be a bound.
  exchanges_.push_back({reply.answered, offset, (round_trip + Duration(1)) / 2});
  while (exchanges_.size() > 1 &&
         (exchanges_.size() > kMaxExchanges || reply.answered - exchanges_.front().taken > kWindow))
    exchanges_.pop_front();
  return true;
}

Duration ClockSync::widened(const Exchange& e, Instant now) {
  const Duration age = std::max(now - e.taken, Duration::zero());
  return e.half_round_trip + age / 1'000'000 * kDriftPerMillion;
}

std::optional<ClockSync::Estimate> ClockSync::estimate(Instant now) const {
  if (exchanges_.empty()) return std::nullopt;
  const auto best = std::min_element(
      exchanges_.begin(), exchanges_.end(),
      [now](const Exchange& a, const Exchange& b) { return widened(a, now) < widened(b, now); });
  return Estimate{best->offset, widened(*best, now)};
}

std::optional<Instant> ClockSync::to_agent(ControllerInstant at, Instant now) const {
  const auto e = estimate(now);
  if (!e) return std::nullopt;
  return Instant(at.time_since_epoch() - e->offset);
}

std::optional<ControllerInstant> ClockSync::to_controller(Instant at, Instant now) const {
  const auto e = estimate(now);
  if (!e) return std::nullopt;
  return ControllerInstant(at.time_since_epoch() + e->offset);
}

}  // namespace spate::agent
