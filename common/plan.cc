#include "common/plan.h"

#include <algorithm>

#include "common/shares.h"

namespace spate {

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
  for (const Phase& p : phases) most = std::max(most, p.load.connections);
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

PhaseSchedule schedule(const Plan& plan) {
  PhaseSchedule result;
  for (const Phase& p : plan.phases) {
    if (result.epochs.empty() || !(result.epochs.back().load == p.load)) {
      result.epochs.push_back({static_cast<std::uint32_t>(result.epochs.size() + 1), p.load});
    }
    result.epoch_of_phase.push_back(result.epochs.back().number);
  }
  return result;
}

}  // namespace spate
