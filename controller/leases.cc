#include "controller/leases.h"

#include <algorithm>

namespace spate::controller {

void Leases::renew(std::size_t agent, Duration length, Instant now) {
  One& one = agents_.at(agent);
  one.until = std::max(one.until, now + length + kLeaseMargin);
}

void Leases::shorten(std::size_t agent, Instant until) {
  One& one = agents_.at(agent);
  one.until = std::min(one.until, until);
}

void Leases::hold(std::size_t agent, std::uint64_t connections) {
  agents_.at(agent).connections = connections;
}

void Leases::release(std::size_t agent) { agents_.at(agent) = {}; }

std::uint64_t Leases::held(std::size_t agent, Instant now) const {
  return ended(agent, now) ? 0 : agents_.at(agent).connections;
}

std::uint64_t Leases::sum(Instant now) const {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < agents_.size(); ++i) sum += held(i, now);
  return sum;
}

bool Leases::may_hold(std::size_t agent, std::uint64_t connections, std::uint64_t limit,
                      Instant now) const {
  return sum(now) - held(agent, now) + connections <= limit;
}

}  // namespace spate::controller
