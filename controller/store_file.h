#pragma once

// Opening a store's file for writing: the lock, the checks, the schema. Used by store.cc only;
// throws nothing.

#include <SQLiteCpp/SQLiteCpp.h>

#include <memory>
#include <string>

#include "common/result.h"

namespace spate::controller {

// Held as long as the process may write the store. An advisory lock on FILE.lock: it ends with the
// process.
class StoreLock {
 public:
  static Result<std::unique_ptr<StoreLock>> take(const std::string& store_path);
  ~StoreLock();
  StoreLock(const StoreLock&) = delete;
  StoreLock& operator=(const StoreLock&) = delete;

 private:
  explicit StoreLock(int fd) : fd_(fd) {}
  int fd_;
};

// Small stores are checked whole at every start, larger ones after an unclean stop.
inline constexpr std::uintmax_t kAlwaysCheckedBytes = 64 * 1024 * 1024;

Result<std::unique_ptr<SQLite::Database>> open_store_file(const std::string& path,
                                                          bool check_whole);

}  // namespace spate::controller
