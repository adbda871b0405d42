#pragma once

// The workers of one run, seen from the control thread: made, started, stopped and released
// together; what they report comes out as the session's events, for the agent as a whole.
//
// Control thread. Workers' callbacks come on their threads and are posted to `loop`, which must
// outlive the crew; what was posted and not yet run when the crew is destroyed is dropped.
// Destroying it joins the workers' threads.

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "agent/assignment.h"
#include "agent/interval_merger.h"
#include "agent/session.h"
#include "agent/worker.h"

namespace spate::agent {

class Crew : public std::enable_shared_from_this<Crew> {
 public:
  using Report = std::function<void(Event)>;

  // Held by a shared_ptr: callbacks on their way keep only a weak one.
  Crew(boost::asio::io_context& loop, std::shared_ptr<const Assignment> assignment, Report report);
  ~Crew();

  // Makes the workers and opens the connections of the first epoch.
  void open();
  void start_at(Instant t0, Duration drain);
  void stop(Instant at, Duration drain);
  // Nothing is reported any more; threads are joined.
  void release();

 private:
  WorkerCallbacks callbacks();
  void opening(std::uint32_t worker, OpenStatus status);
  void closed(std::uint32_t worker, Record record);
  void worker_drained(std::uint32_t worker);
  void report_records();
  void tell(Event event);

  boost::asio::io_context& loop_;
  const std::shared_ptr<const Assignment> assignment_;
  Report report_;  // empty: released
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<OpenStatus> open_status_;
  IntervalMerger merger_;
  std::uint64_t cpu_ns_seen_ = 0;
};

}  // namespace spate::agent
