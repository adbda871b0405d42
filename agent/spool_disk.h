#pragma once

// What the spool needs of a disk. One process and one thread use it; calls block until they are
// durable. The real one is spool_file.h (SQLite); simulations and tests have their own.
//
// The contract that exactly-once rests on: commit() is one transaction. When it returns, it is on
// the disk. When it returns an error, it may have happened or not; open() must be called before
// anything else, and what it returns is the truth.

#include <cstdint>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/result.h"

namespace spate::agent {

// The records of one incarnation of one run: a chain of seqs.
struct AccountKey {
  std::string run;
  std::uint64_t incarnation = 0;
  auto operator<=>(const AccountKey&) const = default;
};

struct SpoolAccount {
  AccountKey key;
  std::string agent;            // the name the run knows this agent by
  std::string cluster;          // whose run it is; empty: not known
  std::string cause;            // why the incarnation ended; empty: it lives, as far as is known
  std::uint64_t last_seq = 0;   // highest given
  std::uint64_t frozen = 0;     // highest that may have been sent
  Duration end{};               // of the last record, since the run's common start
  std::uint64_t in_flight = 0;  // at that end
  // Of each worker: how many of its closed intervals are in here (agent/open_interval.h).
  std::vector<std::uint64_t> taken;
  bool operator==(const SpoolAccount&) const = default;
};

// All of a stored record but its bytes.
struct SpoolEntry {
  std::uint64_t first_seq = 0;
  std::uint64_t seq = 0;
  std::uint32_t epoch = 0;
  std::uint32_t phase = 0;
  bool drain = false;
  bool guard = false;
  std::uint64_t intervals = 1;  // merged into it
  std::uint64_t bytes = 0;      // of its payload
  bool operator==(const SpoolEntry&) const = default;
};

struct SpoolContents {
  struct Chain {
    SpoolAccount account;
    std::vector<SpoolEntry> entries;  // by seq
    bool operator==(const Chain&) const = default;
  };
  std::vector<Chain> chains;  // in the order their accounts were made
  std::string shelved;
};

// Carried out in the order of the fields, whole or not at all.
struct SpoolChange {
  struct Erase {  // records with from <= seq <= to
    AccountKey account;
    std::uint64_t from = 0;
    std::uint64_t to = 0;
  };
  struct Put {
    AccountKey account;
    SpoolEntry entry;
    std::string payload;
  };
  std::vector<AccountKey> forget;      // accounts, with all their records
  std::vector<SpoolAccount> accounts;  // made, or written over
  std::vector<Erase> erase;
  std::vector<Put> put;
};

class SpoolDisk {
 public:
  virtual ~SpoolDisk() = default;
  // Everything but payloads. Also after an error: closes what is open first.
  virtual Result<SpoolContents> open() = 0;
  virtual Result<void> commit(const SpoolChange& change) = 0;
  virtual Result<std::string> read(const AccountKey& account, std::uint64_t seq) = 0;
  // Keeps `bytes` in the place of what was shelved before: they outlive this process, not this
  // machine. For what the disk refuses. False: they would not.
  virtual bool shelve(const std::string& bytes) = 0;
  // For people.
  virtual std::string place() const = 0;
};

}  // namespace spate::agent
