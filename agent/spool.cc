// Reading order: begin and add, the way out, merging, then what happens when the disk refuses.

#include "agent/spool.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/record_sum.h"
#include "proto/wire.h"

namespace spate::agent {

namespace {

constexpr std::size_t kEntryOverhead = 160;  // of a row, and of its place in the index
constexpr int kMergesAtOnce = 16;            // a shrunk limit is reached over several intervals

bool same_label(const SpoolEntry& a, const SpoolEntry& b) {
  return a.phase == b.phase && a.epoch == b.epoch && a.drain == b.drain && a.guard == b.guard;
}

auto after(const std::deque<SpoolEntry>& entries, std::uint64_t seq) {
  return std::upper_bound(entries.begin(), entries.end(), seq,
                          [](std::uint64_t s, const SpoolEntry& e) { return s < e.seq; });
}

std::size_t count_through(const std::deque<SpoolEntry>& entries, std::uint64_t seq) {
  return static_cast<std::size_t>(after(entries, seq) - entries.begin());
}

}  // namespace

Result<std::unique_ptr<Spool>> Spool::open(SpoolDisk& disk, const Limits& limits) {
  std::unique_ptr<Spool> spool(new Spool(disk, limits));
  Result<SpoolContents> contents = disk.open();
  if (!contents) return contents.error();
  auto pending = decode_shelf(contents->shelved);
  if (!pending)
    return Error{ErrorCode::io,
                 "what the spool " + disk.place() +
                     " had put aside in memory when its disk was full is damaged (" +
                     pending.error().message +
                     "); remove its file `shelf` to go on without the requests counted there"};
  spool->adopt(*contents);
  spool->pending_ = *std::move(pending);
  spool->shelf_is_used_ = !spool->pending_.empty();
  spool->resolve_doubts();
  return spool;
}

Result<void> Spool::begin(std::uint64_t incarnation, const std::string& cause,
                          const std::vector<LeftBehind>& left_behind) {
  incarnation_ = incarnation;
  SpoolChange change;
  stage_begin(change, cause);
  for (const LeftBehind& left : left_behind) {
    const SpoolAccount* known = chain_of(left.account) ? &chain_of(left.account)->account : nullptr;
    for (const Record& record : left.records)
      pending_.push_back(
          {left.account, left.agent, known ? known->cluster : "", record, left.taken, 1, 0});
  }
  // Accounts made by the shelf or by what was left behind have ended too.
  for (PendingInterval& p : pending_) {
    SpoolAccount& account = staged_account(change, p);
    if (account.cause.empty()) account.cause = cause;
  }
  if (store_pending(std::move(change))) return {};
  return Error{ErrorCode::io, trouble_};
}

// The causes of those that have ended with the process before this one.
void Spool::stage_begin(SpoolChange& change, const std::string& cause) const {
  stage_forget(change);
  for (const Chain& c : chains_) {
    if (c.account.key.incarnation >= incarnation_ || !c.account.cause.empty()) continue;
    if (std::ranges::find(change.forget, c.account.key) != change.forget.end()) continue;
    change.accounts.push_back(c.account);
    change.accounts.back().cause = cause;
  }
}

// The end of the list of accounts without a record.
void Spool::stage_forget(SpoolChange& change) const {
  std::size_t empty = 0;
  for (auto c = chains_.rbegin(); c != chains_.rend(); ++c)
    if (c->entries.empty() && !is_living(*c) && ++empty > kEmptyAccounts)
      change.forget.push_back(c->account.key);
}

void Spool::open_account(const AccountKey& key, const std::string& agent,
                         const std::string& cluster) {
  CHECK(key.incarnation >= incarnation_, "an account of a process that has ended");
  living_ = key;
  living_agent_ = agent;
  living_cluster_ = cluster;
  if (in_trouble() || chain_of(key)) return;
  SpoolChange change;
  stage_forget(change);
  change.accounts.push_back({key, agent, cluster, {}, 0, 0, {}, 0, {}});
  commit(change);
}

bool Spool::add(Record record, const std::vector<std::uint64_t>& taken) {
  record.key = {living_.run, living_agent_, living_.incarnation, 0};
  record.first_seq = 0;
  PendingInterval p{living_, living_agent_, living_cluster_, std::move(record), taken, 1, 0};
  if (in_trouble()) {
    keep(std::move(p));
    return shelve();
  }
  SpoolChange change;
  if (bytes_ > limits_.bytes / 2) stage_merge(change);
  if (!in_trouble()) {
    stage(change, p);
    if (commit(change)) {
      shrink();
      return true;
    }
  }
  keep(std::move(p));
  return shelve();
}

// --- the way out

bool Spool::is_served(const Chain& c) const {
  return cluster_.empty() || c.account.cluster.empty() || c.account.cluster == cluster_;
}

Spool::Chain* Spool::next_chain() {
  const auto can_go = [this](const Chain& c) {
    return is_served(c) && !c.held && !c.aside && !c.entries.empty() &&
           c.entries.back().seq > c.sent;
  };
  if (ended_on_wire() < limits_.window)
    for (Chain& c : chains_)
      if (!is_living(c) && can_go(c)) return &c;
  Chain* const living = chain_of(living_);
  const bool is_due =
      living && can_go(*living) && count_through(living->entries, living->sent) < limits_.window;
  return is_due ? living : nullptr;
}

std::optional<Record> Spool::next() {
  if (!stream_ || in_trouble()) return std::nullopt;
  Chain* const chain = next_chain();
  if (!chain) return std::nullopt;
  const std::size_t index = count_through(chain->entries, chain->sent);
  const std::uint64_t seq = chain->entries[index].seq;
  if (seq > chain->account.frozen && !freeze(*chain, index)) return std::nullopt;
  std::optional<Record> record = stored(chain->account.key, seq);
  if (record) chain->sent = seq;
  return record;
}

// In steps of the window, so that a backlog does not cost a commit for each record.
bool Spool::freeze(Chain& chain, std::size_t from) {
  SpoolChange change;
  change.accounts.push_back(chain.account);
  const std::size_t last = std::min(from + limits_.window, chain.entries.size()) - 1;
  change.accounts.back().frozen = chain.entries[last].seq;
  return commit(change);
}

std::optional<Record> Spool::stored(const AccountKey& account, std::uint64_t seq) {
  const auto bytes = disk_.read(account, seq);
  Result<Record> record = bytes ? wire::from_bytes(*bytes) : Result<Record>(bytes.error());
  if (record) return *std::move(record);
  unreadable_.emplace(account, seq);
  fail(record.error().with_context("record " + std::to_string(seq) + " of run " + account.run));
  return std::nullopt;
}

bool Spool::acknowledge(const AccountKey& key, std::uint64_t seq) {
  Chain* const chain = chain_of(key);
  if (!chain || (seq > chain->account.frozen && key.incarnation == incarnation_)) return false;
  chain->held = false;
  if (seq <= chain->acknowledged) return true;
  chain->acknowledged = seq;
  chain->aside = false;
  chain->sent = std::max(chain->sent, seq);
  if (chain->entries.empty() || chain->entries.front().seq > seq) return true;
  SpoolChange change;
  change.erase.push_back({key, 0, seq});
  // Refused or not, they are of no more use; retry() deletes them then.
  if (in_trouble() || !commit(change)) apply(change);
  return true;
}

void Spool::stream_up(const std::string& cluster) {
  stream_ = true;
  cluster_ = cluster;
  for (Chain& c : chains_) {
    c.sent = c.acknowledged;
    c.held = c.account.frozen > c.acknowledged && !c.entries.empty();
    c.aside = false;
  }
}

void Spool::stream_down() {
  stream_ = false;
  for (Chain& c : chains_) c.sent = c.acknowledged;
}

void Spool::release_held() {
  for (Chain& c : chains_) c.held = false;
}

bool Spool::holds_back() const {
  return std::any_of(chains_.begin(), chains_.end(), [](const Chain& c) { return c.held; });
}

void Spool::set_aside_ended() {
  for (Chain& c : chains_)
    if (!is_living(c) && c.sent > c.acknowledged) c.aside = true;
}

// --- what is here

Spool::Chain* Spool::chain_of(const AccountKey& key) {
  return const_cast<Chain*>(std::as_const(*this).chain_of(key));
}

const Spool::Chain* Spool::chain_of(const AccountKey& key) const {
  const auto c = std::find_if(chains_.begin(), chains_.end(),
                              [&](const Chain& x) { return x.account.key == key; });
  return c == chains_.end() ? nullptr : &*c;
}

std::uint64_t Spool::last_seq() const {
  const Chain* c = chain_of(living_);
  return c ? c->account.last_seq : 0;
}

std::size_t Spool::living() const {
  const Chain* c = chain_of(living_);
  const auto in_memory =
      std::count_if(pending_.begin(), pending_.end(),
                    [this](const PendingInterval& p) { return p.account == living_; });
  return (c ? c->entries.size() : 0) + static_cast<std::size_t>(in_memory);
}

std::size_t Spool::waiting() const {
  const Chain* c = chain_of(living_);
  return living() - (c ? count_through(c->entries, c->sent) : 0);
}

std::size_t Spool::ended_on_wire() const {
  std::size_t n = 0;
  for (const Chain& c : chains_)
    if (!is_living(c) && !c.aside) n += count_through(c.entries, c.sent);
  return n;
}

std::size_t Spool::size() const {
  std::size_t n = pending_.size();
  for (const Chain& c : chains_) n += c.entries.size();
  return n;
}

std::vector<SpoolAccount> Spool::accounts() const {
  std::vector<SpoolAccount> out;
  for (const Chain& c : chains_)
    if (!c.entries.empty()) out.push_back(c.account);
  return out;
}

std::vector<SpoolAccount> Spool::empty_accounts() const {
  std::vector<SpoolAccount> out;
  for (const Chain& c : chains_) {
    if (c.entries.empty()) out.push_back(c.account);
  }
  return out;
}

std::optional<SpoolAccount> Spool::find(const AccountKey& key) const {
  std::optional<SpoolAccount> found;
  if (const Chain* c = chain_of(key)) found = c->account;
  for (const PendingInterval& p : pending_) {
    if (p.account != key) continue;
    if (!found) found = SpoolAccount{key, p.agent, p.cluster, {}, 0, 0, {}, 0, {}};
    found->taken = p.taken;
    found->end = p.record.start + p.record.length;
    found->in_flight = p.record.counters.in_flight_end;
  }
  return found;
}

// --- changes: staged, committed, and only then true here

SpoolAccount& Spool::staged_account(SpoolChange& change, const PendingInterval& p) const {
  for (SpoolAccount& a : change.accounts)
    if (a.key == p.account) return a;
  const Chain* const chain = chain_of(p.account);
  change.accounts.push_back(
      chain ? chain->account : SpoolAccount{p.account, p.agent, p.cluster, {}, 0, 0, {}, 0, {}});
  return change.accounts.back();
}

void Spool::stage(SpoolChange& change, PendingInterval& p) const {
  SpoolAccount& account = staged_account(change, p);
  p.attempted = account.last_seq + 1;
  const bool at_once = goes_out_at_once(account);
  account.last_seq = p.attempted;
  if (at_once) account.frozen = p.attempted;
  account.end = p.record.start + p.record.length;
  account.in_flight = p.record.counters.in_flight_end;
  account.taken = p.taken;

  Record record = p.record;
  record.key.seq = p.attempted;
  std::string payload = wire::to_bytes(record);
  const SpoolEntry entry{p.attempted,  p.attempted,  record.epoch, record.phase,
                         record.drain, record.guard, p.intervals,  payload.size()};
  change.put.push_back({p.account, entry, std::move(payload)});
}

// Then its mark is made durable together with it.
bool Spool::goes_out_at_once(const SpoolAccount& account) const {
  if (!stream_ || account.key != living_) return false;
  const Chain* const chain = chain_of(living_);
  if (!chain) return true;
  const bool none_waits = chain->sent >= account.last_seq;
  return none_waits && !chain->held && is_served(*chain) && chain->entries.size() < limits_.window;
}

// Merges the pair of never-sent neighbours that covers the fewest intervals; of equals the oldest.
bool Spool::stage_merge(SpoolChange& change) {
  const Chain* best = nullptr;
  std::size_t at = 0;
  std::uint64_t fewest = 0;
  for (const Chain& c : chains_) {
    const auto& e = c.entries;
    for (std::size_t i = count_through(e, c.account.frozen); i + 1 < e.size(); ++i) {
      const std::uint64_t intervals = e[i].intervals + e[i + 1].intervals;
      if (!same_label(e[i], e[i + 1]) || (best && intervals >= fewest)) continue;
      best = &c;
      at = i;
      fewest = intervals;
    }
  }
  if (!best) return false;
  const AccountKey key = best->account.key;
  SpoolEntry entry = best->entries[at];
  const SpoolEntry& second = best->entries[at + 1];
  const auto earlier = stored(key, entry.seq);
  const auto later = earlier ? stored(key, second.seq) : std::nullopt;
  if (!later) return false;
  std::string payload = wire::to_bytes(merge_in_time(*earlier, *later));
  change.erase.push_back({key, entry.seq, second.seq});
  entry.seq = second.seq;
  entry.intervals = fewest;
  entry.bytes = payload.size();
  change.put.push_back({key, entry, std::move(payload)});
  return true;
}

void Spool::shrink() {
  for (int i = 0; i < kMergesAtOnce && bytes_ > limits_.bytes / 2; ++i) {
    SpoolChange change;
    if (!stage_merge(change) || !commit(change)) return;
  }
}

bool Spool::commit(const SpoolChange& change) {
  if (const auto done = disk_.commit(change); !done) {
    fail(done.error());
    return false;
  }
  apply(change);
  return true;
}

void Spool::apply(const SpoolChange& change) {
  for (const AccountKey& key : change.forget)
    std::erase_if(chains_, [&](const Chain& c) { return c.account.key == key; });
  for (const SpoolAccount& a : change.accounts) {
    if (Chain* c = chain_of(a.key))
      c->account = a;
    else
      chains_.push_back({.account = a, .entries = {}});
  }
  for (const SpoolChange::Erase& e : change.erase) {
    Chain* const c = chain_of(e.account);
    if (!c) continue;
    std::erase_if(c->entries, [&](const SpoolEntry& x) {
      const bool gone = x.seq >= e.from && x.seq <= e.to;
      if (gone) bytes_ -= x.bytes + kEntryOverhead;
      return gone;
    });
  }
  for (const SpoolChange::Put& p : change.put) {
    Chain* const c = chain_of(p.account);
    CHECK(c, "a record without an account");
    c->entries.insert(after(c->entries, p.entry.seq), p.entry);
    bytes_ += p.entry.bytes + kEntryOverhead;
  }
}

// --- when the disk refuses

void Spool::fail(const Error& error) { trouble_ = error.message; }

void Spool::keep(PendingInterval p) {
  if (!pending_.empty()) {
    PendingInterval& last = pending_.back();
    if (last.attempted == 0 && p.attempted == 0 && last.account == p.account &&
        mergeable_in_time(last.record, p.record)) {
      last.record = merge_in_time(last.record, p.record);
      last.taken = p.taken;
      last.intervals += p.intervals;
      return;
    }
  }
  pending_.push_back(std::move(p));
}

bool Spool::shelve() {
  shelf_is_used_ = true;
  return disk_.shelve(encode_shelf(pending_));
}

void Spool::adopt(const SpoolContents& contents) {
  std::vector<Chain> before = std::exchange(chains_, {});
  bytes_ = 0;
  for (const SpoolContents::Chain& stored_chain : contents.chains) {
    Chain c{.account = stored_chain.account,
            .entries = {stored_chain.entries.begin(), stored_chain.entries.end()}};
    const auto old = std::find_if(before.begin(), before.end(),
                                  [&](const Chain& b) { return b.account.key == c.account.key; });
    if (old != before.end()) {
      c.acknowledged = old->acknowledged;
      c.sent = old->sent;
      c.held = old->held;
      c.aside = old->aside;
    }
    for (const SpoolEntry& e : c.entries) bytes_ += e.bytes + kEntryOverhead;
    chains_.push_back(std::move(c));
  }
}

// Of the intervals whose commit failed, those that are there after all are done with.
void Spool::resolve_doubts() {
  for (PendingInterval& p : std::exchange(pending_, {})) {
    const Chain* const c = chain_of(p.account);
    if (p.attempted != 0 && c && c->account.last_seq >= p.attempted) continue;
    p.attempted = 0;
    keep(std::move(p));
  }
}

bool Spool::retry() {
  const Result<SpoolContents> contents = disk_.open();
  if (!contents) {
    fail(contents.error());
    return false;
  }
  adopt(*contents);
  resolve_doubts();
  if (unreadable_ && chain_of(unreadable_->first)) {
    const auto [account, seq] = *unreadable_;
    const auto& entries = chain_of(account)->entries;
    const std::size_t i = count_through(entries, seq);
    if (i > 0 && entries[i - 1].seq == seq && !stored(account, seq)) return false;
  }
  unreadable_.reset();
  SpoolChange change;
  for (const Chain& c : chains_)
    if (c.acknowledged > 0) change.erase.push_back({c.account.key, 0, c.acknowledged});
  // Also when there is nothing to store: it shows whether the disk takes something.
  if (!store_pending(std::move(change))) return false;
  trouble_.clear();
  return true;
}

bool Spool::store_pending(SpoolChange change) {
  for (PendingInterval& p : pending_) stage(change, p);
  // With their seqs on the shelf first: a crash between the commit and an empty shelf must not
  // store them twice.
  if (shelf_is_used_ && !disk_.shelve(encode_shelf(pending_))) {
    fail({ErrorCode::io, "the shelf in memory of the spool " + disk_.place() +
                             " cannot be written: free memory on its file system"});
    return false;
  }
  if (!commit(change)) return false;
  pending_.clear();
  if (std::exchange(shelf_is_used_, false)) disk_.shelve({});
  return true;
}

}  // namespace spate::agent
