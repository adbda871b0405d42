#include "agent/spool_file.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "service/durable_rename.h"

namespace spate::agent {
namespace {

namespace fs = std::filesystem;

constexpr std::int32_t kApplicationId = 0x53505350;  // "SPSP"
constexpr int kVersion = 1;
constexpr int kTables = 3;

constexpr const char* kPragmas = R"(
  PRAGMA locking_mode = EXCLUSIVE;
  PRAGMA journal_mode = WAL;
  PRAGMA synchronous = FULL;
  PRAGMA foreign_keys = ON;
  PRAGMA trusted_schema = OFF;
  PRAGMA cell_size_check = ON;
  PRAGMA journal_size_limit = 4194304;
)";

// 64-bit counts are stored as SQLite's signed integers, bit for bit.
constexpr const char* kSchema = R"(
CREATE TABLE accounts (
  id INTEGER PRIMARY KEY,
  run TEXT NOT NULL,
  incarnation INTEGER NOT NULL,
  agent TEXT NOT NULL,
  cluster TEXT NOT NULL,
  cause TEXT NOT NULL,        -- why the incarnation ended; empty: not known to have
  last_seq INTEGER NOT NULL,  -- highest given
  frozen INTEGER NOT NULL,    -- highest that may have been sent: up to it nothing changes any more
  end_ns INTEGER NOT NULL,
  in_flight INTEGER NOT NULL,
  taken TEXT NOT NULL,        -- closed intervals of each worker that are in here: "12 12 11"
  UNIQUE (run, incarnation)
) STRICT;
CREATE TABLE records (
  account INTEGER NOT NULL REFERENCES accounts(id) ON DELETE CASCADE,
  seq INTEGER NOT NULL,
  first_seq INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  phase INTEGER NOT NULL,
  drain INTEGER NOT NULL,
  guard INTEGER NOT NULL,
  intervals INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  wire BLOB NOT NULL,         -- spate.record.v1.Record
  PRIMARY KEY (account, seq)
) STRICT;
CREATE TABLE commits (n INTEGER NOT NULL) STRICT;  -- so that every change writes something
INSERT INTO commits VALUES (0);
)";

std::int64_t db(std::uint64_t n) { return static_cast<std::int64_t>(n); }
std::uint64_t number(const SQLite::Column& c) { return static_cast<std::uint64_t>(c.getInt64()); }

std::string text_of(const std::vector<std::uint64_t>& numbers) {
  std::string out;
  for (const std::uint64_t n : numbers) out += (out.empty() ? "" : " ") + std::to_string(n);
  return out;
}

std::vector<std::uint64_t> numbers_in(const std::string& text) {
  std::vector<std::uint64_t> out;
  std::istringstream in(text);
  for (std::uint64_t n = 0; in >> n;) out.push_back(n);
  return out;
}

Error refused(const std::string& path, const std::string& what) {
  return {ErrorCode::conflict,
          "the spool " + path + " " + what +
              "; it was left as it is. Give this agent another state folder "
              "with --state, or move the file away to start with an empty one"};
}

Error damaged(const std::string& path, const std::string& what) {
  return {ErrorCode::io, "the spool " + path + " is damaged (" + what +
                             "); it was left as it is. `sqlite3 " + path +
                             " .recover` shows what can be saved; move the file away to start with "
                             "an empty one: the records in it are then lost"};
}

// Before SQLite may touch it.
Result<void> check_header(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return {};
  if (!fs::is_regular_file(path, error)) return refused(path, "is not a regular file");
  if (fs::file_size(path, error) == 0) return damaged(path, "it is empty: it was cut off");
  std::array<char, 16> header{};
  std::ifstream file(path, std::ios::binary);
  file.read(header.data(), header.size());
  if (!file.is_open())
    return Error{ErrorCode::io, "cannot read the spool " + path + ": " + std::strerror(errno)};
  if (std::memcmp(header.data(), "SQLite format 3", 16) != 0)
    return refused(path, "is not an SQLite file");
  return {};
}

Result<void> check_contents(SQLite::Database& db, const std::string& path) {
  const int id = db.execAndGet("PRAGMA application_id").getInt();
  const int version = db.execAndGet("PRAGMA user_version").getInt();
  if (id != kApplicationId) return refused(path, "belongs to another program");
  if (version > kVersion)
    return refused(path, "was written by a newer spate (version " + std::to_string(version) +
                             ", this one knows " + std::to_string(kVersion) + ")");
  const int tables = db.execAndGet(
                           "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN "
                           "('accounts', 'records', 'commits')")
                         .getInt();
  if (tables != kTables) return damaged(path, "a table is missing");
  return {};
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
    SQLite::Database db(next, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE, 0);
    // Records name targets and runs. SQLite gives its log the same permissions.
    ::chmod(next.c_str(), S_IRUSR | S_IWUSR);
    SQLite::Transaction transaction(db);
    db.exec(kSchema);
    db.exec("PRAGMA application_id = " + std::to_string(kApplicationId));
    db.exec("PRAGMA user_version = " + std::to_string(kVersion));
    transaction.commit();
  }
  return durable_rename(next, path);
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

std::string whole_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

std::int64_t account_id(SQLite::Database& database, const AccountKey& key) {
  SQLite::Statement q(database, "SELECT id FROM accounts WHERE run = ? AND incarnation = ?");
  q.bind(1, key.run);
  q.bind(2, db(key.incarnation));
  if (!q.executeStep()) throw SQLite::Exception("there is no account of run " + key.run);
  return q.getColumn(0).getInt64();
}

void put(SQLite::Database& database, const SpoolAccount& a) {
  SQLite::Statement q(
      database,
      "INSERT INTO accounts (run, incarnation, agent, cluster, cause, last_seq, frozen, end_ns, "
      "in_flight, taken) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run, incarnation) DO "
      "UPDATE SET agent = excluded.agent, cluster = excluded.cluster, cause = excluded.cause, "
      "last_seq = excluded.last_seq, frozen = excluded.frozen, end_ns = excluded.end_ns, "
      "in_flight = excluded.in_flight, taken = excluded.taken");
  q.bind(1, a.key.run);
  q.bind(2, db(a.key.incarnation));
  q.bind(3, a.agent);
  q.bind(4, a.cluster);
  q.bind(5, a.cause);
  q.bind(6, db(a.last_seq));
  q.bind(7, db(a.frozen));
  q.bind(8, a.end.count());
  q.bind(9, db(a.in_flight));
  q.bind(10, text_of(a.taken));
  q.exec();
}

void put(SQLite::Database& database, const SpoolChange::Put& p) {
  SQLite::Statement q(database,
                      "INSERT INTO records (account, seq, first_seq, epoch, phase, drain, guard, "
                      "intervals, bytes, wire) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  q.bind(1, account_id(database, p.account));
  q.bind(2, db(p.entry.seq));
  q.bind(3, db(p.entry.first_seq));
  q.bind(4, p.entry.epoch);
  q.bind(5, p.entry.phase);
  q.bind(6, p.entry.drain ? 1 : 0);
  q.bind(7, p.entry.guard ? 1 : 0);
  q.bind(8, db(p.entry.intervals));
  q.bind(9, db(p.entry.bytes));
  q.bind(10, p.payload.data(), static_cast<int>(p.payload.size()));
  q.exec();
}

SpoolContents contents_of(SQLite::Database& database) {
  SpoolContents out;
  std::map<std::int64_t, std::size_t> places;
  SQLite::Statement accounts(
      database,
      "SELECT id, run, incarnation, agent, cluster, cause, last_seq, frozen, end_ns, in_flight, "
      "taken FROM accounts ORDER BY id");
  while (accounts.executeStep()) {
    places[accounts.getColumn(0).getInt64()] = out.chains.size();
    SpoolContents::Chain chain;
    SpoolAccount& a = chain.account;
    a.key = {accounts.getColumn(1).getString(), number(accounts.getColumn(2))};
    a.agent = accounts.getColumn(3).getString();
    a.cluster = accounts.getColumn(4).getString();
    a.cause = accounts.getColumn(5).getString();
    a.last_seq = number(accounts.getColumn(6));
    a.frozen = number(accounts.getColumn(7));
    a.end = Duration(accounts.getColumn(8).getInt64());
    a.in_flight = number(accounts.getColumn(9));
    a.taken = numbers_in(accounts.getColumn(10).getString());
    out.chains.push_back(std::move(chain));
  }
  SQLite::Statement records(database,
                            "SELECT account, first_seq, seq, epoch, phase, drain, guard, "
                            "intervals, bytes FROM records ORDER BY account, seq");
  while (records.executeStep()) {
    SpoolEntry e;
    e.first_seq = number(records.getColumn(1));
    e.seq = number(records.getColumn(2));
    e.epoch = records.getColumn(3).getUInt();
    e.phase = records.getColumn(4).getUInt();
    e.drain = records.getColumn(5).getInt() != 0;
    e.guard = records.getColumn(6).getInt() != 0;
    e.intervals = number(records.getColumn(7));
    e.bytes = number(records.getColumn(8));
    out.chains.at(places.at(records.getColumn(0).getInt64())).entries.push_back(e);
  }
  return out;
}

// The seqs of an account are one unbroken row up to its last: what else is in a file whose pages
// are whole was put there by somebody else.
Result<void> check_chains(const SpoolContents& contents, const std::string& path) {
  for (const auto& [account, entries] : contents.chains) {
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const std::uint64_t end =
          i + 1 < entries.size() ? entries[i + 1].first_seq - 1 : account.last_seq;
      if (entries[i].first_seq == 0 || entries[i].first_seq > entries[i].seq ||
          entries[i].seq != end)
        return damaged(path, "after seq " + std::to_string(entries[i].seq) + " of run " +
                                 account.key.run + " a record is missing");
    }
  }
  return {};
}

}  // namespace

SpoolFile::SpoolFile(std::string path, std::string shelf)
    : path_(std::move(path)), shelf_(std::move(shelf)) {}
SpoolFile::~SpoolFile() = default;

Error SpoolFile::failed(const std::string& doing, const std::string& why) const {
  return {ErrorCode::io, "cannot " + doing + " the spool " + path_ + ": " + why};
}

Result<void> SpoolFile::open_file() {
  if (auto header = check_header(path_); !header) return header;
  std::error_code ignored;
  if (!fs::exists(path_, ignored)) {
    if (auto created = create_file(path_); !created) return created;
  }
  db_ = std::make_unique<SQLite::Database>(path_, SQLite::OPEN_READWRITE, 0);
  if (auto known = check_contents(*db_, path_); !known) return known;
  if (!checked_) {
    SQLite::Statement check(*db_, "PRAGMA quick_check(1)");
    const std::string verdict = check.executeStep() ? check.getColumn(0).getString() : "no answer";
    if (verdict != "ok") return damaged(path_, verdict);
    checked_ = true;
  }
  db_->exec(kPragmas);
  return {};
}

Result<SpoolContents> SpoolFile::open() {
  db_.reset();
  try {
    if (auto opened = open_file(); !opened) {
      db_.reset();
      return opened.error();
    }
    SpoolContents contents = contents_of(*db_);
    if (auto whole = check_chains(contents, path_); !whole) {
      db_.reset();
      return whole.error();
    }
    if (!shelf_.empty()) contents.shelved = whole_file(shelf_);
    return contents;
  } catch (const SQLite::Exception& e) {
    db_.reset();
    if (e.getErrorCode() == SQLITE_CORRUPT || e.getErrorCode() == SQLITE_NOTADB)
      return damaged(path_, e.what());
    if (e.getErrorCode() == SQLITE_BUSY) return refused(path_, "is in use by another process");
    return failed("open", e.what());
  }
}

Result<void> SpoolFile::commit(const SpoolChange& change) {
  if (!db_) return failed("write", "it is not open");
  try {
    SQLite::Transaction transaction(*db_);
    db_->exec("UPDATE commits SET n = n + 1");
    for (const AccountKey& key : change.forget) {
      SQLite::Statement q(*db_, "DELETE FROM accounts WHERE run = ? AND incarnation = ?");
      q.bind(1, key.run);
      q.bind(2, db(key.incarnation));
      q.exec();
    }
    for (const SpoolAccount& a : change.accounts) put(*db_, a);
    for (const SpoolChange::Erase& e : change.erase) {
      SQLite::Statement q(*db_, "DELETE FROM records WHERE account = ? AND seq BETWEEN ? AND ?");
      q.bind(1, account_id(*db_, e.account));
      q.bind(2, db(e.from));
      q.bind(3, db(e.to));
      q.exec();
    }
    for (const SpoolChange::Put& p : change.put) put(*db_, p);
    transaction.commit();
    return {};
  } catch (const SQLite::Exception& e) {
    db_.reset();
    return failed("write", e.what());
  }
}

Result<std::string> SpoolFile::read(const AccountKey& account, std::uint64_t seq) {
  if (!db_) return failed("read", "it is not open");
  try {
    SQLite::Statement q(*db_, "SELECT wire FROM records WHERE account = ? AND seq = ?");
    q.bind(1, account_id(*db_, account));
    q.bind(2, db(seq));
    if (!q.executeStep()) return failed("read", "seq " + std::to_string(seq) + " is not there");
    const SQLite::Column c = q.getColumn(0);
    return std::string(static_cast<const char*>(c.getBlob()), static_cast<std::size_t>(c.size()));
  } catch (const SQLite::Exception& e) {
    return failed("read", e.what());
  }
}

bool SpoolFile::shelve(const std::string& bytes) {
  if (shelf_.empty()) return false;
  if (bytes.empty()) return ::unlink(shelf_.c_str()) == 0 || errno == ENOENT;
  const std::string next = shelf_ + ".new";
  const int fd = ::open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  const bool whole = write_all(fd, bytes);
  ::close(fd);
  return whole && ::rename(next.c_str(), shelf_.c_str()) == 0;
}

}  // namespace spate::agent
