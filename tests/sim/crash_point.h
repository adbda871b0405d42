#pragma once

// Counts the durable operations of a history, and makes one of them go wrong: the process dies
// before it or after it, or the disk refuses it once.

#include <cstdint>
#include <optional>

#include "tests/sim/cluster.h"
#include "tests/sim/history.h"

namespace spate::sim {

class CrashPoints {
 public:
  // Hooks every disk of the cluster; outlived by it.
  CrashPoints(Cluster& cluster, const std::optional<CrashPoint>& point);
  ~CrashPoints();

  std::uint64_t spool_commits() const { return spool_commits_; }
  std::uint64_t store_commits() const { return store_commits_; }

 private:
  void at_spool_commit(AgentHost& agent, bool is_after);
  void at_store_commit(bool is_after);
  bool is_here(bool is_of_store, std::uint64_t operation) const {
    return point_ && point_->is_of_store == is_of_store && point_->operation == operation;
  }

  Cluster& cluster_;
  const std::optional<CrashPoint> point_;
  std::uint64_t spool_commits_ = 0;
  std::uint64_t store_commits_ = 0;
};

}  // namespace spate::sim
