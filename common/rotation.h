#pragma once

// When a rotation changes over, and who holds which set. Pure.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/plan.h"
#include "common/result.h"

namespace spate {

// The change-overs of a run that lasts `length` from T on, as offsets from T: ascending, each after
// T and before the end. Period k ends with the k-th of them (from 0).
//
// By elapsed time: `every`, twice `every` … By wall clock: when the clocks of the zone show `at`,
// and every `every` from it, by what they show: a period of 24h is 23 or 25 hours long on a day
// when they are changed. A time that is skipped on that day counts when it is skipped; one that is
// shown twice counts the first time. T's wall time is looked at once; setting a clock later moves
// nothing.
// Errors: more than kMaxSegments; the rules of the zone are not there.
Result<std::vector<Duration>> change_overs(const Rotation& rotation, Duration length,
                                           std::int64_t start_wall_ms);

// The set that an agent holds in a period: (agent + period) mod n, a Latin square; or, across the
// run, period mod n.
std::size_t set_in_period(const Rotation& rotation, std::size_t agent, std::size_t period);

// Why `every` cannot go by wall clock; "" if it can: it divides a day, or is whole days.
const char* objection_to_wall_clock(Duration every);

// Minutes after midnight of "HH:MM". Errors: anything else.
Result<int> minutes_of(const std::string& at);

}  // namespace spate
