#pragma once

// A worker: ONE thread, ONE loop, its own connections, recorder and random generator. Nothing is
// shared with other workers. Start reading the agent here.
//
// The life of a worker: open() connects its part of the first epoch and reports progress;
// start_at() begins the run at that instant; segments and epochs then follow by themselves, each
// interval closed at its border and reported; at the end of the last one, or after stop(), nothing
// new is sent, answers are awaited until the drain's deadline, the rest is counted as cancelled, a
// last record is reported, and then `drained`.
//
// change() puts another timeline in the place of the rest of this one. A new epoch keeps the
// connections it can use: it opens those that are missing, closes the surplus after their answers,
// and replaces those that lead elsewhere. While an epoch is paused, or the lease has ended, the
// connections stay and no request is sent.
//
// Public functions may be called from any thread; they post. Callbacks run on the worker's thread
// and must only post. The destructor stops the loop and joins.

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "agent/assignment.h"
#include "agent/open_interval.h"
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
  // same for all workers: interval and segment borders counted from t0; change() and stop() cut the
  // open interval, both at the same instant for all workers of the agent.
  std::function<void(std::uint32_t worker, Record)> interval;
  // A change() is in effect; after the last interval before it.
  std::function<void(std::uint32_t worker, std::uint32_t epoch, Instant at)> changed_over;
  std::function<void(std::uint32_t worker)> drained;
};

class WorkerLoop;  // worker_loop.h: everything that runs on the thread

class Worker {
 public:
  // `ring`: where it counts, so that a kill loses nothing; null: in memory of its own.
  Worker(std::uint32_t index, std::shared_ptr<const Assignment> assignment,
         WorkerCallbacks callbacks, std::shared_ptr<SlotRing> ring = nullptr);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void open();
  // The run's common start is t0, intervals and segments count from there; this agent's part of it
  // begins at `begin`: t0, or later if it joins in the middle.
  void start_at(Instant t0, Instant begin);
  void start_at(Instant t0) { start_at(t0, t0); }
  // Instead of both, for a worker that the agent did not have before: nothing is opened until it
  // begins.
  void join(std::shared_ptr<const Assignment> assignment, Instant t0, Instant begin);
  // From `at` on, `next` instead; it has the segments from there to the run's end. An earlier
  // change that was to come at `at` or later is forgotten. Needs start_at() or join() before. An
  // `at` in the past cuts the open interval at once.
  void change(std::shared_ptr<const Assignment> next, Instant at);
  // No request leaves from `end` on until a later end is given. Without a call: no end. Cheap, and
  // heeded even if the whole process sleeps past `end`: before the next request the clock is read.
  void lease(Instant end);
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
