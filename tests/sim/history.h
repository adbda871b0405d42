#pragma once

// One history: a cluster, what its operator wants, what the nemesis does to it, and the laws that
// must hold all the time and at the end. Everything is drawn from the seed.

#include <cstdint>
#include <string>
#include <vector>

#include "common/clock.h"

namespace spate::sim {

struct HistoryOptions {
  std::uint64_t seed = 1;
  bool is_traced = false;
  std::string only;  // kinds of faults whose name contains it; empty: all
};

struct HistoryResult {
  std::vector<std::string> violations;  // empty: all laws held
  std::vector<std::string> story;       // if traced
  std::uint64_t faults = 0;
  std::uint64_t power_cuts = 0;
  std::uint64_t events = 0;
  std::uint64_t records = 0;
  Duration simulated{};
};

HistoryResult run_history(const HistoryOptions& options);

}  // namespace spate::sim
