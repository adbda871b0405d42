#pragma once

// The records that the controller has not yet acknowledged, on disk. Logic only: the disk is behind
// agent/spool_disk.h. Control thread; every function that changes something blocks until it is
// durable.
//
//   add()          the record of a closed interval is committed together with its seq
//   next()         gives it out to be sent, after the mark `frozen` that covers it is durable
//   acknowledge()  deletes what the controller has committed
//
// From `frozen` down a record must never come again with other numbers in it. Above it, when more
// than half of the limit is used, neighbours of one account are merged, the finest and oldest
// first, never across a phase, epoch, guard band or drain: resolution in time degrades, totals
// never. What cannot be merged is kept, also beyond the limit.
//
// Records of several accounts (runs, incarnations) wait side by side. Those of incarnations and
// runs that have ended go out oldest first, within a window of their own, so that an account that
// nobody acknowledges never holds up the living one.
//
// When the disk refuses, closed intervals are merged in memory (and on the disk's shelf, which
// outlives the process) into one for each phase, epoch and guard band, nothing is given out that is
// not stored, and retry() heals it. A record whose commit failed may be stored all the same; it is
// kept apart until the disk, opened again, tells.
//
// In memory: about 100 bytes for each record on disk.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/spool_disk.h"
#include "agent/spool_shelf.h"
#include "common/record.h"

namespace spate::agent {

// What a process that died left in its open intervals, as records of its account; their seqs are
// given when they are stored.
struct LeftBehind {
  AccountKey account;
  std::string agent;
  std::vector<Record> records;
  std::vector<std::uint64_t> taken;
};

// The cause of an account whose incarnation ended in good order.
inline constexpr std::string_view kCleanStop = "clean stop";

class Spool {
 public:
  struct Limits {
    std::size_t bytes = std::size_t{256} << 20;
    std::size_t window =
        64;  // records out unacknowledged: of the living account, and of all others
  };
  // Accounts without a record, beside the living one, that are still kept.
  static constexpr std::size_t kEmptyAccounts = 32;

  // Opens the disk and reads its index.
  static Result<std::unique_ptr<Spool>> open(SpoolDisk& disk, const Limits& limits);

  // A process begins: `incarnation` lives from now on. Accounts of earlier ones end, those without
  // a cause with `cause`, and what they left behind is stored; all in one transaction.
  Result<void> begin(std::uint64_t incarnation, const std::string& cause,
                     const std::vector<LeftBehind>& left_behind);

  // The account that add() is about from now on: of the living incarnation. It is on the disk
  // before its first record, so that a process that leaves none is known all the same; a disk that
  // refuses is in trouble.
  void open_account(const AccountKey& key, const std::string& agent, const std::string& cluster);
  // A closed interval of it, in order; the record's key is made here. `taken` as in SpoolAccount.
  // True: it outlives this process, whatever happens.
  bool add(Record record, const std::vector<std::uint64_t>& taken);

  // The next record to put on the wire, or nothing: a window is full, or all that is here is out.
  std::optional<Record> next();
  // Everything of the account up to and including `seq` is committed. False: no such account, or a
  // seq that this process has never sent. Of earlier ones more may be committed than was sent from
  // here: by a copy of this disk.
  bool acknowledge(const AccountKey& key, std::uint64_t seq);

  // A stream to the controller of `cluster` began: everything unacknowledged is given out again,
  // oldest first, with the same seqs; but not that of other clusters' runs. What may have been sent
  // before waits until acknowledge() has named the account's mark, or release_held().
  void stream_up(const std::string& cluster);
  void stream_down();
  void release_held();
  bool holds_back() const;
  // Accounts that have ended, and whose records went out, make way for the next ones until they are
  // acknowledged or a stream begins. For a controller that does not answer about them.
  void set_aside_ended();

  // True while the disk refuses. The text is for the user.
  bool in_trouble() const { return !trouble_.empty(); }
  const std::string& trouble() const { return trouble_; }
  // Opens the disk again, stores what waits in memory. True: healed.
  bool retry();

  std::uint64_t last_seq() const;  // of the living account; 0: none
  std::size_t living() const;      // of the living account: all that is not acknowledged
  std::size_t waiting() const;     // of the living account: not on the wire
  std::size_t ended_on_wire() const;
  std::size_t size() const;  // of all accounts
  std::size_t bytes() const { return bytes_; }
  bool empty() const { return size() == 0; }
  // Accounts with records.
  std::vector<SpoolAccount> accounts() const;
  // Those without: all was acknowledged, or there never was one.
  std::vector<SpoolAccount> empty_accounts() const;
  std::string place() const { return disk_.place(); }
  // An account with all that is in memory counted as stored; nothing: no such account.
  std::optional<SpoolAccount> find(const AccountKey& key) const;

 private:
  struct Chain {
    SpoolAccount account;
    std::deque<SpoolEntry> entries;
    std::uint64_t acknowledged = 0;
    std::uint64_t sent = 0;  // highest seq given out on this stream
    bool held = false;
    bool aside = false;
  };

  Spool(SpoolDisk& disk, const Limits& limits) : disk_(disk), limits_(limits) {}

  Chain* chain_of(const AccountKey& key);
  const Chain* chain_of(const AccountKey& key) const;
  bool is_living(const Chain& c) const { return c.account.key == living_; }
  bool is_served(const Chain& c) const;
  Chain* next_chain();
  bool freeze(Chain& chain, std::size_t from);
  std::optional<Record> stored(const AccountKey& account, std::uint64_t seq);

  SpoolAccount& staged_account(SpoolChange& change, const PendingInterval& p) const;
  void stage(SpoolChange& change, PendingInterval& p) const;
  bool goes_out_at_once(const SpoolAccount& account) const;
  bool stage_merge(SpoolChange& change);
  void stage_begin(SpoolChange& change, const std::string& cause) const;
  void stage_forget(SpoolChange& change) const;
  bool commit(const SpoolChange& change);
  void apply(const SpoolChange& change);
  void shrink();

  void keep(PendingInterval p);
  bool shelve();
  void adopt(const SpoolContents& contents);
  void resolve_doubts();
  bool store_pending(SpoolChange change);
  void fail(const Error& error);

  SpoolDisk& disk_;
  const Limits limits_;
  std::vector<Chain> chains_;
  AccountKey living_;
  std::string living_agent_;
  std::string living_cluster_;
  std::string cluster_;  // at the other end of the stream
  bool stream_ = false;
  std::uint64_t incarnation_ = 0;
  std::size_t bytes_ = 0;
  std::deque<PendingInterval> pending_;
  bool shelf_is_used_ = false;
  std::optional<std::pair<AccountKey, std::uint64_t>> unreadable_;
  std::string trouble_;
};

}  // namespace spate::agent
