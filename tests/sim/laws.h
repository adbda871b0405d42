#pragma once

// What must hold at the end of a history, by the product's own checks (common/record.h's laws,
// Aggregate and its balance, as `spate verify` uses them) and by the simulation's own truth, which
// no code of the product has touched.

#include "tests/sim/cluster.h"

namespace spate::sim {

// Every violation is told to the world. `is_undisturbed`: no fault was injected, so nothing may be
// missing or merely explained. `healed`: when the last fault had ended.
void check_laws(Cluster& cluster, bool is_undisturbed, Moment healed);

}  // namespace spate::sim
