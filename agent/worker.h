#pragma once

// A worker: ONE thread, ONE loop, its own connections, recorder and random generator. Nothing is
// shared with other workers. Start reading the agent here.
//
// The life of a worker: open() connects its part of the first epoch and reports progress;
// start_at(t0) begins the first phase at that instant; the phases then follow by themselves, each
// interval closed at its border and reported; at the end of the last phase, or after stop(),
// nothing new is sent, answers are awaited until the drain's deadline, the rest is counted as
// cancelled, a last record is reported, and then `drained`.
//
// Public functions may be called from any thread; they post. Callbacks run on the worker's thread
// and must only post. The destructor stops the loop and joins.

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "agent/assignment.h"
#include "common/record.h"

namespace spate::agent {

// Where the connections of a worker are, while they are being opened.
struct OpenStatus {
  std::uint64_t requested = 0;
  std::uint64_t established = 0;
  std::uint64_t failed_attempts = 0;
  ErrorTally errors;
  bool settled = false;  // all established, or every connection has been tried at least once
};

struct WorkerCallbacks {
  std::function<void(std::uint32_t worker, OpenStatus)> opening;  // at least once, when settled
  std::function<void(std::uint32_t worker, Instant)> first_request;
  // A closed interval: everything but key and the process-wide gauges (rss, cpu). Borders are the
  // same for all workers: interval borders and phase borders counted from t0; after stop() the last
  // interval is cut at the stop, which is the same instant for all workers of the agent.
  std::function<void(std::uint32_t worker, Record)> interval;
  std::function<void(std::uint32_t worker)> drained;
};

class WorkerLoop;  // worker_loop.h: everything that runs on the thread

class Worker {
 public:
  Worker(std::uint32_t index, std::shared_ptr<const Assignment> assignment,
         WorkerCallbacks callbacks);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void open();
  void start_at(Instant t0);
  // No new requests from `at` on; answers are awaited until `at + drain`. Later calls may only
  // shorten the drain.
  void stop(Instant at, Duration drain);
  // How long to wait for answers after the last phase if stop() is never called.
  void set_drain(Duration drain);

 private:
  std::unique_ptr<WorkerLoop> loop_;
  std::jthread thread_;
};

}  // namespace spate::agent
