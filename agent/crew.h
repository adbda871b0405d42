#pragma once

// The workers of one run, seen from the control thread: made, started, changed, stopped and
// released together; what they report comes out as the session's events, for the agent as a whole.
//
// Control thread. Workers' callbacks come on their threads and are posted to `loop`, which must
// outlive the crew; what was posted and not yet run when the crew is destroyed is dropped.
// Destroying it joins the workers' threads.

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "agent/assignment.h"
#include "agent/interval_merger.h"
#include "agent/session.h"
#include "agent/worker.h"
#include "common/result.h"

namespace spate::agent {

class Crew : public std::enable_shared_from_this<Crew> {
 public:
  using Report = std::function<void(Event)>;

  // Held by a shared_ptr: callbacks on their way keep only a weak one.
  // `memory`: a folder on tmpfs for the workers' open intervals; empty: there is none.
  Crew(boost::asio::io_context& loop, std::shared_ptr<const Assignment> assignment, Report report,
       std::string memory = {});
  ~Crew();

  // Makes the workers that `assignment` has beyond those there are; they wait. Errors: too few
  // descriptors or threads for them.
  Result<void> prepare(const Assignment& assignment);
  // Opens the connections of the first epoch. Needs prepare(), as change() does.
  void open();
  void start_at(Instant t0, Instant begin, Duration drain);
  // All workers go on with `next` from `at` on, which none of them has passed yet; ChangedOver
  // says when all have. Needs start_at().
  void change(std::shared_ptr<const Assignment> next, std::uint32_t epoch, Instant at);
  void lease(Instant end);
  void stop(Instant at, Duration drain);
  // The spool has the closed intervals up to these of each worker.
  void release_intervals(const std::vector<std::uint64_t>& taken);
  // Nothing is reported any more; threads are joined.
  void release();
  // Why what is open would not outlive a kill; empty: it would.
  const std::string& complaint() const { return complaint_; }

 private:
  // A change that not all workers have made yet.
  struct Changing {
    std::uint32_t epoch = 0;
    Instant at;
    std::set<std::uint32_t> missing;  // workers
  };

  WorkerCallbacks callbacks();
  void changed_over(std::uint32_t worker, Instant at);
  std::shared_ptr<SlotRing> make_ring();
  void opening(std::uint32_t worker, OpenStatus status);
  void closed(std::uint32_t worker, Record record);
  void worker_drained(std::uint32_t worker);
  void report_records();
  void tell(Event event);

  boost::asio::io_context& loop_;
  const std::shared_ptr<const Assignment> assignment_;
  Report report_;  // empty: released
  const std::string memory_;
  std::string complaint_;
  std::vector<std::shared_ptr<SlotRing>> rings_;  // of each worker, or null
  std::vector<std::unique_ptr<Worker>> workers_;  // those from joined_ on have no part yet
  std::uint32_t joined_ = 0;
  Instant t0_;
  Instant lease_end_ = Instant::max();
  Duration drain_{};
  std::deque<Changing> changing_;  // ascending
  std::vector<OpenStatus> open_status_;
  IntervalMerger merger_;
  std::uint64_t cpu_ns_seen_ = 0;
};

}  // namespace spate::agent
