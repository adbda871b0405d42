#include "target-server/memory_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace spate::target_server {
namespace {

Error io_error(const std::string& path, const char* what, int error) {
  return {ErrorCode::io, path + ": cannot " + what + ": " + std::strerror(error)};
}

// Devices and pipes are written as they are.
Result<void> keep_old_file(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0)
    return {};
  for (int n = 1;; ++n) {
    const std::string kept = path + "." + std::to_string(n);
    // Linking fails if the name is taken, so an older log is never overwritten, whoever else is
    // renaming.
    if (link(path.c_str(), kept.c_str()) == 0) break;
    if (errno != EEXIST) return io_error(path, ("be kept as " + kept).c_str(), errno);
  }
  if (unlink(path.c_str()) != 0) return io_error(path, "be renamed", errno);
  return {};
}

}  // namespace

Result<std::unique_ptr<MemoryLog>> MemoryLog::open(const Options& options) {
  if (options.every == 0) return invalid("a log row for every 0 requests: give 1 or more");
  if (const auto kept = keep_old_file(options.path); !kept) return kept.error();
  const int fd = ::open(options.path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return io_error(options.path, "open for writing", errno);
  std::unique_ptr<MemoryLog> log(new MemoryLog(options, fd));
  log->flush();
  if (log->write_error_ != 0) return io_error(options.path, "write", log->write_error_);
  log->thread_ = std::thread([raw = log.get()] { raw->run(); });
  return log;
}

MemoryLog::MemoryLog(const Options& options, int fd)
    : options_(options),
      fd_(fd),
      writer_(wall_clock_ms(), to_ns(BootClock::now()), options.decimal),
      last_(BootClock::now()),
      last_total_(0),
      unwritten_(writer_.header()) {}

MemoryLog::~MemoryLog() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  ::close(fd_);
}

void MemoryLog::note(std::uint64_t total) {
  const Instant now = BootClock::now();
  {
    std::unique_lock lock(mutex_);
    // A number below one that waits is always let in: the writer may be waiting for just that one.
    changed_.wait(lock, [&] {
      return pending_.size() < kMaxPendingRows || total < pending_.rbegin()->first;
    });
    pending_.emplace(total, now);
  }
  changed_.notify_all();
}

void MemoryLog::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    // The next row is known by its number: a later one that was noted earlier waits for it.
    const std::uint64_t next = last_total_ + options_.every;
    const auto row = pending_.begin();
    if (row != pending_.end() && row->first == next) {
      const Instant when = row->second;
      pending_.erase(row);
      lock.unlock();
      changed_.notify_all();
      write_row(next, when);
      flush();
      lock.lock();
    } else if (closing_) {
      return;
    } else {
      changed_.wait(lock);
    }
  }
}

Result<void> MemoryLog::close(std::uint64_t total) {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (total != last_total_ || total == 0) write_row(total, BootClock::now());
  flush();
  if (write_error_ != 0) {
    const std::string what = "write the last " + std::to_string(unwritten_.size()) + " bytes";
    return io_error(options_.path, what.c_str(), write_error_);
  }
  if (lost_rows_ == 0) return {};
  return Error{ErrorCode::io, options_.path + ": " + std::to_string(lost_rows_) +
                                  " rows are missing, the file could not be written for too long"};
}

void MemoryLog::write_row(std::uint64_t total, Instant when) {
  // Two threads may read the clock in the other order than they counted.
  last_ = std::max(last_, when);
  last_total_ = total;
  if (unwritten_.size() >= kMaxUnwrittenBytes) {
    ++lost_rows_;
    return;
  }
  unwritten_ += writer_.row(to_ns(last_), total, options_.memory_bytes());
}

void MemoryLog::flush() {
  write_error_ = 0;
  while (!unwritten_.empty()) {
    const ssize_t written = ::write(fd_, unwritten_.data(), unwritten_.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      write_error_ = errno;
      return;
    }
    unwritten_.erase(0, static_cast<std::size_t>(written));
  }
}

}  // namespace spate::target_server
