#pragma once

// The ledgers of runs that are over, so that what their agents deliver late is still stored exactly
// once. Pure; on the control loop. Remembers the latest kMaxClosedRuns runs of this process, and
// those of the process before that it had to close as crashed.

#include <deque>
#include <string>

#include "controller/agent_events.h"
#include "controller/ledger.h"
#include "controller/store_op.h"

namespace spate::controller {

inline constexpr std::size_t kMaxClosedRuns = 64;

class ClosedRuns {
 public:
  enum class Ruling {
    store,        // acknowledged when it is committed
    acknowledge,  // a duplicate, or out of order: tell the agent the mark
    unknown_run,  // no such run in this store
  };

  void add(const std::string& run, Ledger ledger);
  void restore(const Mark& mark);
  Ruling offer(const AgentRecord& record);
  void committed(const Mark& mark);
  std::uint64_t committed_mark(const std::string& run, const std::string& agent,
                               std::uint64_t incarnation) const;
  bool has(const std::string& run) const;

 private:
  struct One {
    std::string run;
    Ledger ledger;
  };
  One* find(const std::string& run);
  std::deque<One> runs_;  // oldest first
};

}  // namespace spate::controller
