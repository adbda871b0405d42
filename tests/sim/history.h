#pragma once

// One history: a cluster, what its operator wants, what the nemesis does to it, and the laws that
// must hold all the time and at the end. Everything is drawn from the seed.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "tests/sim/world.h"

namespace spate::sim {

// One durable operation of an otherwise undisturbed history, and what happens to it.
struct CrashPoint {
  enum class What { nothing, kill_before, kill_after, io_error, disk_full };
  bool is_of_store = false;     // of the controller's store; else of any agent's spool
  std::uint64_t operation = 0;  // from 1, in the order in which they happen
  What what = What::nothing;
};
std::string text(const CrashPoint& point);

struct HistoryOptions {
  std::uint64_t seed = 1;
  Tracing tracing = Tracing::off;
  std::optional<CrashPoint> crash;  // instead of the nemesis
  std::string only;                 // kinds of faults whose name contains it; empty: all
};

struct HistoryResult {
  std::vector<std::string> violations;  // empty: all laws held
  std::vector<std::string> story;       // if it was kept
  std::uint64_t faults = 0;
  std::uint64_t power_cuts = 0;
  std::uint64_t events = 0;
  std::uint64_t records = 0;
  std::uint64_t spool_commits = 0;
  std::uint64_t store_commits = 0;
  Duration simulated{};
};

HistoryResult run_history(const HistoryOptions& options);

}  // namespace spate::sim
