#include "target-server/pool.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <string>

#include "common/units.h"

namespace spate::target_server {
namespace {

std::uint64_t min_stack_bytes() {
  return std::max(kMinStackBytes, static_cast<std::uint64_t>(sysconf(_SC_THREAD_STACK_MIN)));
}

std::uint64_t whole_pages(std::uint64_t bytes) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

}  // namespace

Result<std::unique_ptr<Pool>> Pool::create(const Options& options) {
  if (options.threads < 1 || options.threads > kMaxPoolThreads) {
    return invalid("a pool of " + std::to_string(options.threads) + " threads: give 1 to " +
                   std::to_string(kMaxPoolThreads));
  }
  if (options.stack_bytes < min_stack_bytes() || options.stack_bytes > kMaxStackBytes) {
    return invalid("a stack of " + format_size(options.stack_bytes) + " per pool thread: give " +
                   format_size(min_stack_bytes()) + " to " + format_size(kMaxStackBytes));
  }
  if (options.queue < 1) return invalid("a queue of 0 requests: give 1 or more");
  Options rounded = options;
  rounded.stack_bytes = whole_pages(options.stack_bytes);
  return std::unique_ptr<Pool>(new Pool(rounded));
}

Pool::~Pool() { shutdown(); }

Pool::Submitted Pool::submit(Job& job) {
  std::unique_lock lock(mutex_);
  if (stopped_) return Submitted::stopped;
  if (queued_ >= options_.queue) return Submitted::queue_full;
  // Idle threads that are already woken still count as idle, and their jobs as queued, so this is
  // exact.
  if (queued_ + 1 > idle_ && threads_.size() < options_.threads && !start_thread() &&
      threads_.empty()) {
    return Submitted::no_threads;
  }
  job.next_ = nullptr;
  (last_ == nullptr ? first_ : last_->next_) = &job;
  last_ = &job;
  ++queued_;
  const bool wake = idle_ > 0;
  lock.unlock();
  if (wake) work_waits_.notify_one();
  return Submitted::yes;
}

void Pool::shutdown() {
  std::vector<pthread_t> ending;
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    ending.swap(threads_);
  }
  work_waits_.notify_all();
  for (const pthread_t thread : ending) pthread_join(thread, nullptr);
}

std::uint32_t Pool::threads() const {
  std::lock_guard lock(mutex_);
  return static_cast<std::uint32_t>(threads_.size());
}

bool Pool::start_thread() {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_t thread{};
  const bool started = pthread_attr_setstacksize(&attributes, options_.stack_bytes) == 0 &&
                       pthread_create(&thread, &attributes, &Pool::thread_main, this) == 0;
  pthread_attr_destroy(&attributes);
  if (started) threads_.push_back(thread);
  return started;
}

void* Pool::thread_main(void* pool) {
  pthread_setname_np(pthread_self(), "pool");
  static_cast<Pool*>(pool)->work();
  return nullptr;
}

void Pool::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    while (first_ == nullptr) {
      if (stopped_) return;
      ++idle_;
      work_waits_.wait(lock);
      --idle_;
    }
    Job* job = first_;
    first_ = job->next_;
    if (first_ == nullptr) last_ = nullptr;
    --queued_;
    lock.unlock();
    job->run();
    lock.lock();
  }
}

}  // namespace spate::target_server
