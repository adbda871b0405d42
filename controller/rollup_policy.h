#pragma once

// How long a run's records keep which resolution. Age counts within the run: from a record's end to
// the newest record of that run, so a run shorter than the first step keeps every interval for
// ever. With these numbers 30 days of 20 agents fit into 500 MB (bench/month.cc).

#include <array>
#include <cstddef>

#include "common/clock.h"

namespace spate::controller {

struct RollupStep {
  Duration older_than{};
  Duration width{};  // a multiple of the width before
};

inline constexpr std::size_t kRollupSteps = 3;

struct RollupPolicy {
  std::array<RollupStep, kRollupSteps> steps{};
  Duration every{};  // how often is looked for work
};

inline constexpr RollupPolicy kRollupPolicy = {
    {{{std::chrono::hours(1), std::chrono::seconds(10)},
      {std::chrono::hours(6), std::chrono::minutes(1)},
      {std::chrono::hours(24), std::chrono::minutes(10)}}},
    std::chrono::seconds(10)};

// Of one run. The oldest infos after the first kKeptFirstEvents go first, then warnings.
inline constexpr std::size_t kMaxStoredEvents = 10'000;
inline constexpr std::size_t kKeptFirstEvents = 1'000;

}  // namespace spate::controller
