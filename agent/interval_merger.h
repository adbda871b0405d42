#pragma once

// Makes the agent's record of an interval out of its workers' records of the same interval. Pure;
// control thread.
//
// Sums, exact histogram merges, error tallies. A record of the agent is ready when every worker has
// delivered its next one or has drained. Workers' borders are the same by contract
// (agent/worker.h); but a worker may have closed an interval just before it heard of a stop or a
// change, drains end at different instants, and one that is short of memory skips borders. So rows
// are matched by what they are about (drain, phase, epoch, guard), and take from each worker all
// that ends within the longest of its kind. A worker that has nothing to say about a row counts
// with the requests it has in flight: every law and the chain hold for the merged records, whatever
// the borders did.

#include <cstdint>
#include <deque>
#include <vector>

#include "common/record.h"

namespace spate::agent {

class IntervalMerger {
 public:
  explicit IntervalMerger(std::size_t workers) : workers_(workers) {}

  // There is another worker, or will be: its records begin at `at` since the run's start. Asked
  // again with an earlier instant if that changes.
  void join(std::size_t worker, Duration at);
  void add(std::size_t worker, Record record);
  // The worker will deliver nothing more.
  void drained(std::size_t worker) { workers_[worker].drained = true; }

  struct Row {
    Record record;                     // everything but key, rss and CPU time
    std::vector<std::uint64_t> taken;  // of each worker, the records that are in it or before it
  };
  // Those that became complete, in order.
  std::vector<Row> take();
  bool all_drained() const;  // and nothing is left to take

 private:
  struct WorkerQueue {
    std::deque<Record> waiting;
    std::uint64_t taken = 0;      // records
    std::uint64_t in_flight = 0;  // after the last one taken
    Gauges gauges;                // of the last one taken
    Duration joins_at = Duration::min();
    bool drained = false;
  };
  // The earliest of those that are about the earliest subject.
  const Record* first_waiting() const;
  Duration end_of_row(const Record& first) const;
  bool row_is_complete() const;
  Row take_row();

  std::vector<WorkerQueue> workers_;
  Duration end_{};  // of the last record taken
  bool begun_ = false;
};

}  // namespace spate::agent
