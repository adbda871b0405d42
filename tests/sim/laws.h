#pragma once

// What must hold at the end of a history, by the product's own checks (common/record.h's laws,
// Aggregate and its balance, as `spate verify` uses them) and by the simulation's own truth, which
// no code of the product has touched.

#include "tests/sim/cluster.h"

namespace spate::sim {

// The latest that agents are at work again, and have delivered what had to wait, after everything
// is healed.
inline constexpr Duration kLoadBackWithin = std::chrono::seconds(10);
inline constexpr Duration kDrainedWithin = std::chrono::seconds(60);

// At that time, for a run that is still live.
void check_load_back(Cluster& cluster);
void check_drained(Cluster& cluster);

// When everything has come to its end, or had the time to. `healed`: when the last fault ended.
void check_laws(Cluster& cluster, bool is_undisturbed, Moment healed);

}  // namespace spate::sim
