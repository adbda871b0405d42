#pragma once

// Keeps a long run small: merges its older records into coarser ones, exactly (counters add,
// histograms merge bucket for bucket), and thins its target samples and events. On the store's
// writer thread, with its connection, between its commits.
//
// Records move from `records` to `rollup_1`, `rollup_2`, `rollup_3` as they age, so that each table
// is appended to at one end and emptied at the other, and its pages are used again. What is merged
// into one lies in one slot of the step's width, of one (agent, incarnation), and does not mix
// phases, epochs, drain, guard bands, or what a dead process left. All of it is below the mark:
// only stored records are touched. Of the connections established, the fewest are kept.
//
// Samples: of a slot stay the last one, those with the largest memory, and the first and the last
// of each boot.

#include <SQLiteCpp/SQLiteCpp.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "controller/rollup_policy.h"

namespace spate::controller {

// One step's work: small, so that a commit that waits for it waits little.
inline constexpr std::size_t kRecordsPerRollup = 100;

inline constexpr std::size_t kRememberedRuns = 64;

class Rollup {
 public:
  Rollup(SQLite::Database& db, const RollupPolicy& policy);
  ~Rollup();
  Rollup(const Rollup&) = delete;
  Rollup& operator=(const Rollup&) = delete;

  // Does one small piece of work, within the transaction that the caller has begun. False: there
  // was none, ask again after `policy.every`. Throws SQLite::Exception.
  bool step();

 private:
  struct Tables;
  struct Job {
    std::string run;
    Duration newest{};
    std::string agent;  // empty: the run's samples and events
    std::int64_t incarnation = 0;
  };
  void find_runs();
  void add_jobs(const std::string& run);
  bool work_on(const Job& job);
  bool merge_slot(const Job& job, std::size_t step, std::size_t& records);
  bool thin_samples(const Job& job);
  void thin_events(const Job& job);

  SQLite::Database& db_;
  const RollupPolicy policy_;
  std::unique_ptr<Tables> tables_;
  std::deque<std::string> runs_;             // to be looked at
  std::deque<Job> jobs_;                     // of the run that is looked at
  std::map<std::string, Duration> thinned_;  // newest record when a run's samples were thin enough
  std::int64_t seen_record_ = -1;            // highest id at the last look; -1: none yet
};

}  // namespace spate::controller
