#pragma once

// The ledgers of runs that are over, so that what their agents deliver late is still stored exactly
// once. Pure; on the control loop. Remembers the latest kMaxClosedRuns runs, of this process and of
// those before it: the marks, and of the latest kMaxRunsWithContents also what records said, so
// that another one under the same key is known for that. What comes for an older run is dropped,
// and the log says so: an agent must not keep it for ever.

#include <deque>
#include <map>
#include <optional>
#include <string>

#include "controller/agent_events.h"
#include "controller/ledger.h"
#include "controller/store_op.h"

namespace spate::controller {

inline constexpr std::size_t kMaxClosedRuns = 1'024;     // 150 bytes for each of a run's agents
inline constexpr std::size_t kMaxRunsWithContents = 64;  // 4 KB

class ClosedRuns {
 public:
  enum class Ruling {
    store,        // acknowledged when it is committed
    acknowledge,  // a duplicate, or out of order: tell the agent the mark
    unknown_run,  // not among these
    not_its_own,  // another agent has that name in that run
  };

  // `agents`: by the name that the run knows them by.
  void add(const std::string& run, std::map<std::string, ShareHolder> agents, Ledger ledger);
  void restore(const Mark& mark);
  // `agent_id`: of who delivers it.
  Ruling offer(const AgentRecord& record, const std::string& agent_id);
  void committed(const Mark& mark);
  // A process had a share that a controller gave it that did not live to store that, and is dead:
  // to be stored. `account`: of an agent in such a run.
  std::optional<store_op::PutDead> bury(const AgentAccount& account, const std::string& agent_id);
  std::uint64_t committed_mark(const std::string& run, const std::string& agent,
                               std::uint64_t incarnation) const;
  bool has(const std::string& run) const;
  // Who is called `name` in that run; empty: nobody, or not remembered.
  std::string owner(const std::string& run, const std::string& name) const;
  // What that agent is called in that run.
  std::string name_of(const std::string& run, const std::string& agent_id) const;

 private:
  struct One {
    std::string run;
    std::map<std::string, ShareHolder> agents;
    Ledger ledger;
  };
  One* find(const std::string& run);
  std::deque<One> runs_;  // oldest first
};

}  // namespace spate::controller
