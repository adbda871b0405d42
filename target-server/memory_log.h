#pragma once

// Writes the reference log (common/reference_log.h) while the target works: the header at the
// start, a row for every N completed requests, a last row with the exact total at the end.
//
// completed() may be called from any thread; all but every Nth call only divide. Rows are written
// in order by a thread of its own. A row's time is when its request completed, also if the writer
// comes late; its memory is what is in use when it is written. At most kMaxPendingRows wait; then
// completed() waits for the writer, because a row is never lost. On a full disk kMaxUnwrittenBytes
// of rows wait for room, later ones are counted as missing.

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "common/clock.h"
#include "common/reference_log.h"
#include "common/result.h"

namespace spate::target_server {

inline constexpr std::size_t kMaxPendingRows = 100'000;
inline constexpr std::size_t kMaxUnwrittenBytes = 16 * 1024 * 1024;

class MemoryLog {
 public:
  struct Options {
    std::string path;
    std::uint64_t every = 5000;  // > 0
    char decimal = ',';
    std::uint64_t (*memory_bytes)() = nullptr;  // address space in use
  };

  // Creates the file and writes the header. A file that is there already is kept: it is renamed to
  // the first free of PATH.1, PATH.2, ... Errors: the file cannot be created or written.
  static Result<std::unique_ptr<MemoryLog>> open(const Options& options);
  ~MemoryLog();  // close() must have been called if the last row matters
  MemoryLog(const MemoryLog&) = delete;
  MemoryLog& operator=(const MemoryLog&) = delete;

  // `total` requests have completed since the start. Every number must be told once, in any order.
  void completed(std::uint64_t total) {
    if (total % options_.every == 0) [[unlikely]]
      note(total);
  }
  // Writes what waits and the last row, unless a row for `total` is there, and ends the thread. No
  // completed() may run or follow. An error says what could not be written.
  Result<void> close(std::uint64_t total);

 private:
  MemoryLog(const Options& options, int fd);
  void note(std::uint64_t total);
  void run();
  void write_row(std::uint64_t total, Instant when);
  void flush();

  const Options options_;
  const int fd_;
  // Writer's thread only, until it is joined.
  ReferenceLogWriter writer_;
  Instant last_;
  std::uint64_t last_total_;
  std::string unwritten_;  // kept for the next attempt if the disk is full
  int write_error_ = 0;    // errno of the last attempt
  std::uint64_t lost_rows_ = 0;

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::map<std::uint64_t, Instant> pending_;  // ordered: threads may note 10000 before 5000
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace spate::target_server
