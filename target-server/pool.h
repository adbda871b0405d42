#pragma once

// A thread pool that grows on demand: a thread is started only when a job waits and nobody is idle,
// up to a limit; threads stay until the end. Each has a stack of a given size, which is what makes
// 512 of them cheap or dear. The queue is bounded, first in, first out.
//
// submit() may be called from any thread. This is one of the few places with a mutex: many threads
// take from one queue, which is what a target with a thread pool is.

#include <pthread.h>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "common/result.h"

namespace spate::target_server {

// The gRPC library finishes calls on these threads and runs whatever its transport has to do (TLS
// too); the deepest stack seen under a TLS flood was below half of this.
inline constexpr std::uint64_t kMinStackBytes = 64 * 1024;
inline constexpr std::uint64_t kMaxStackBytes = std::uint64_t{1} << 30;
inline constexpr std::uint32_t kMaxPoolThreads = 10'000;

class Pool {
 public:
  // Queued by pointer, so that queueing allocates nothing. A job owns itself: run() may delete it.
  class Job {
   public:
    virtual void run() noexcept = 0;  // on a pool thread

   protected:
    ~Job() = default;

   private:
    friend class Pool;
    Job* next_ = nullptr;
  };

  struct Options {
    std::uint32_t threads = 16;
    std::uint64_t stack_bytes = 256 * 1024;  // rounded up to whole pages
    std::uint64_t queue = 10'000;            // jobs that wait; those being run do not count
  };
  enum class Submitted { yes, queue_full, no_threads, stopped };

  // Starts no thread yet. Options out of range are refused with the number that would do.
  static Result<std::unique_ptr<Pool>> create(const Options& options);
  ~Pool();  // as shutdown()
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // The job is run if and only if the answer is yes. no_threads: the system would not start the
  // first one.
  Submitted submit(Job& job);
  // Takes no more jobs, runs those that are queued, ends the threads. Not from a pool thread.
  void shutdown();

  std::uint32_t threads() const;  // now
  const Options& options() const { return options_; }

 private:
  explicit Pool(const Options& options) : options_(options) {}
  static void* thread_main(void* pool);
  void work();
  bool start_thread();  // with mutex_ held

  const Options options_;
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable work_waits_;
  Job* first_ = nullptr;
  Job* last_ = nullptr;
  std::uint64_t queued_ = 0;
  std::uint64_t idle_ = 0;
  bool stopped_ = false;
  std::vector<pthread_t> threads_;
};

}  // namespace spate::target_server
