#include "common/plan.h"

#include <algorithm>

#include "common/shares.h"

namespace spate {

std::string name(OnControllerLoss loss) {
  switch (loss) {
    case OnControllerLoss::go_on:
      return "continue";
    case OnControllerLoss::drain:
      return "drain";
    case OnControllerLoss::stop:
      return "stop";
  }
  return "?";
}

Duration Plan::length() const {
  Duration sum{};
  for (const Phase& p : phases) sum += p.length;
  return sum;
}

Duration Plan::measured_length() const {
  Duration sum{};
  for (const Phase& p : phases) sum += p.measured ? p.length : Duration::zero();
  return sum;
}

std::uint64_t Plan::max_connections() const {
  std::uint64_t most = 0;
  for (const Phase& p : phases) {
    bool everywhere = rotation.has_value();  // whether every set says its own
    if (rotation) {
      for (const Rotation::Set& set : rotation->sets) {
        everywhere = everywhere && set.patch.connections;
        most = std::max(most, set.patch.connections.value_or(0));
      }
    }
    if (!everywhere) most = std::max(most, p.load.connections);
  }
  return most;
}

void Plan::set_measured_length(Duration total) {
  if (total <= Duration::zero() || measured_length() <= Duration::zero()) return;
  std::vector<std::uint64_t> weights;
  for (const Phase& p : phases)
    weights.push_back(p.measured ? static_cast<std::uint64_t>(p.length.count()) : 0);
  const auto parts = divide(static_cast<std::uint64_t>(total.count()), weights);
  for (std::size_t i = 0; i < phases.size(); ++i) {
    if (phases[i].measured) phases[i].length = Duration(static_cast<std::int64_t>(parts[i]));
  }
}

}  // namespace spate
