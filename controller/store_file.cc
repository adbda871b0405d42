#include "controller/store_file.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "controller/store_schema.h"
#include "service/durable_rename.h"

namespace spate::controller {
namespace {

namespace fs = std::filesystem;

Error damaged(const std::string& path, const std::string& what) {
  return {ErrorCode::io,
          "the store " + path + " is damaged (" + what +
              "); it was left as it is. Restore a copy, or move it away to start with an empty "
              "one; `sqlite3 " +
              path + " .recover` shows what can be saved"};
}

Error not_ours(const std::string& path, const std::string& what) {
  return {ErrorCode::conflict, "the file " + path + " is not a store of spate (" + what +
                                   "); give another one with --store"};
}

// Before SQLite may touch it.
Result<void> check_header(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return {};
  if (!fs::is_regular_file(path, error)) return not_ours(path, "it is not a regular file");
  if (fs::file_size(path, error) == 0) {
    return damaged(path, "it is empty: it was cut off");
  }
  std::array<char, 16> header{};
  std::ifstream file(path, std::ios::binary);
  file.read(header.data(), header.size());
  if (!file.is_open()) {
    return Error{ErrorCode::io, "cannot read the store " + path + ": " + std::strerror(errno)};
  }
  if (std::memcmp(header.data(), "SQLite format 3", 16) != 0)
    return not_ours(path, "it is not an SQLite file");
  return {};
}

Result<void> check_whole_file(SQLite::Database& db, const std::string& path) {
  SQLite::Statement check(db, "PRAGMA quick_check(1)");
  if (!check.executeStep()) return damaged(path, "quick_check gave no answer");
  const std::string verdict = check.getColumn(0).getString();
  if (verdict != "ok") return damaged(path, verdict);
  return {};
}

Result<void> check_identity(SQLite::Database& db, const std::string& path) {
  const int id = db.execAndGet("PRAGMA application_id").getInt();
  const int version = db.execAndGet("PRAGMA user_version").getInt();
  if (id != kApplicationId) return not_ours(path, "it belongs to another program");
  if (version > kSchemaVersion) {
    return Error{ErrorCode::conflict, "the store " + path +
                                          " was written by a newer spate (schema " +
                                          std::to_string(version) + ", this one knows " +
                                          std::to_string(kSchemaVersion) +
                                          "): install that version, or give "
                                          "another file with --store"};
  }
  // What every version has.
  const int tables =
      db.execAndGet(
            "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN "
            "('runs','plans','epochs','agents','records','marks','target_samples','events')")
          .getInt();
  if (tables != 8)
    return damaged(path, "only " + std::to_string(tables) + " of its 8 tables are there");
  return {};
}

void create_record_tables(SQLite::Database& db) {
  // One that is there already was brought up to date before.
  for (const char* table : kRecordTables)
    db.exec(std::string("CREATE TABLE IF NOT EXISTS ") + table + kRecordColumns);
  db.exec(kAllRecords);
}

void bring_up_to_date(SQLite::Database& db) {
  const int version = db.execAndGet("PRAGMA user_version").getInt();
  if (version == kSchemaVersion) return;
  SQLite::Transaction transaction(db);
  if (version == 0) db.exec(kSchema);
  for (int v = version; v > 0 && v < kSchemaVersion; ++v)
    db.exec(kMigrations[static_cast<std::size_t>(v - 1)]);
  create_record_tables(db);
  db.exec("PRAGMA application_id = " + std::to_string(kApplicationId));
  db.exec("PRAGMA user_version = " + std::to_string(kSchemaVersion));
  transaction.commit();
}

// Made aside, and renamed when it is whole: whenever this is cut off, the next process makes it
// anew.
Result<void> create_file(const std::string& path) {
  const std::string next = path + ".new";
  std::error_code error;
  for (const char* left : {"", "-journal"}) fs::remove(next + left, error);
  // Of a file that somebody moved away; SQLite would take it for a part of the new one.
  for (const char* left : {"-wal", "-shm", "-journal"}) fs::remove(path + left, error);
  {
    SQLite::Database db(next, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    // Plans may hold secrets in their metadata. SQLite gives the log the same permissions.
    fs::permissions(next, fs::perms::owner_read | fs::perms::owner_write, error);
    db.exec(kPageSize);
    bring_up_to_date(db);
  }
  return durable_rename(next, path);
}

std::string holder(const std::string& lock_path) {
  std::ifstream file(lock_path);
  std::string pid;
  return std::getline(file, pid) && !pid.empty() ? " (pid " + pid + ")" : "";
}

}  // namespace

Result<std::unique_ptr<StoreLock>> StoreLock::take(const std::string& store_path) {
  std::error_code error;
  const fs::path parent = fs::path(store_path).parent_path();
  if (!parent.empty()) fs::create_directories(parent, error);
  if (error) {
    return Error{ErrorCode::io, "cannot make the directory " + parent.string() +
                                    " for the store: " + error.message()};
  }
  const std::string path = store_path + ".lock";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) {
    return Error{ErrorCode::io, "cannot open " + path + ": " + std::strerror(errno)};
  }
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int why = errno;
    ::close(fd);
    if (why == EWOULDBLOCK) {
      return Error{ErrorCode::conflict, "the store " + store_path +
                                            " is in use by another spate-controller" +
                                            holder(path) +
                                            ": stop it, "
                                            "or give this one a store of its own with --store"};
    }
    return Error{ErrorCode::io, "cannot lock " + path + ": " + std::strerror(why)};
  }
  // For the message above; nothing depends on it.
  const std::string pid = std::to_string(::getpid()) + "\n";
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, pid.data(), pid.size(), 0) < 0) {
    // Then the message does not name us.
  }
  return std::unique_ptr<StoreLock>(new StoreLock(fd));
}

StoreLock::~StoreLock() { ::close(fd_); }

Result<std::unique_ptr<SQLite::Database>> open_store_file(const std::string& path,
                                                          bool check_whole) {
  if (auto header = check_header(path); !header) return header.error();
  std::error_code error;
  // SQLite removes the log when the last connection closes: one that is left means an unclean stop.
  const bool was_unclean =
      fs::exists(path + "-wal", error) && fs::file_size(path + "-wal", error) > 0;
  const bool is_small =
      fs::exists(path, error) && fs::file_size(path, error) <= kAlwaysCheckedBytes;
  try {
    if (!fs::exists(path, error)) {
      if (auto created = create_file(path); !created) return created.error();
    }
    auto db = std::make_unique<SQLite::Database>(path, SQLite::OPEN_READWRITE, 5000);
    if (auto identity = check_identity(*db, path); !identity) return identity.error();
    if (check_whole || was_unclean || is_small) {
      if (auto whole = check_whole_file(*db, path); !whole) return whole.error();
    }
    db->exec(kPragmas);
    bring_up_to_date(*db);
    return db;
  } catch (const SQLite::Exception& e) {
    if (e.getErrorCode() == SQLITE_CORRUPT || e.getErrorCode() == SQLITE_NOTADB)
      return damaged(path, e.what());
    return Error{ErrorCode::io, "cannot open the store " + path + ": " + e.what()};
  }
}

}  // namespace spate::controller
