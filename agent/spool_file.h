#pragma once

// The spool's disk in earnest: one SQLite file (WAL, synchronous FULL), one connection, one commit
// for each change. After any error the connection is closed and the file opened and checked anew:
// an fsync that failed is never repeated.
//
// The file belongs to whoever holds the state folder's lock (agent/state_folder.h); besides, it is
// locked against other processes by SQLite itself. A file that is damaged, not a spool, or from a
// newer spate is refused with the next step and left as it is; never a silent empty start.

#include <memory>
#include <string>

#include "agent/spool_disk.h"

namespace SQLite {
class Database;
}

namespace spate::agent {

class SpoolFile final : public SpoolDisk {
 public:
  // `shelf`: a file on tmpfs for what the disk refuses; empty: there is none. Its directory exists.
  SpoolFile(std::string path, std::string shelf);
  ~SpoolFile() override;

  Result<SpoolContents> open() override;
  Result<void> commit(const SpoolChange& change) override;
  Result<std::string> read(const AccountKey& account, std::uint64_t seq) override;
  bool shelve(const std::string& bytes) override;
  std::string place() const override { return path_; }

 private:
  Result<void> open_file();
  Error failed(const std::string& doing, const std::string& why) const;

  const std::string path_;
  const std::string shelf_;
  bool checked_ = false;  // once by this process
  std::unique_ptr<SQLite::Database> db_;
};

}  // namespace spate::agent
