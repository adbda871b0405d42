#include "controller/ledger.h"

#include <algorithm>

namespace spate::controller {
namespace {

Record without_histograms(const Record& r) {
  Record slim;
  slim.key = r.key;
  slim.epoch = r.epoch;
  slim.phase = r.phase;
  slim.drain = r.drain;
  slim.start = r.start;
  slim.length = r.length;
  slim.counters = r.counters;
  return slim;
}

}  // namespace

Ledger::Entry Ledger::offer(const Record& record, std::uint64_t content_hash) {
  Account& account = accounts_[{record.key.agent, record.key.incarnation}];
  const std::uint64_t seq = record.key.seq;
  Entry entry;
  if (seq <= account.offered) {
    ++duplicates_;
    const bool is_remembered = !account.hashes.empty() && account.offered - seq < kRememberedHashes;
    const std::uint64_t known = is_remembered ? account.hashes[seq % kRememberedHashes] : 0;
    // 0 marks a slot from before a restart, where the content is not known any more.
    entry.ruling = known != 0 && known != content_hash ? Ruling::quarantined : Ruling::duplicate;
    return entry;
  }
  if (seq > account.offered + 1) {
    entry.ruling = Ruling::gap;
    return entry;
  }
  entry.broken = broken_laws(record);
  if (account.last) {
    for (std::string& law : broken_chain(*account.last, record))
      entry.broken.push_back(std::move(law));
  }
  account.offered = seq;
  account.last = without_histograms(record);
  account.hashes.resize(kRememberedHashes, 0);
  account.hashes[seq % kRememberedHashes] = content_hash;
  return entry;
}

void Ledger::committed(const std::string& agent, std::uint64_t incarnation, std::uint64_t seq) {
  Account& account = accounts_[{agent, incarnation}];
  account.committed = std::max(account.committed, seq);
}

void Ledger::restore(const std::string& agent, std::uint64_t incarnation, std::uint64_t seq) {
  Account& account = accounts_[{agent, incarnation}];
  account.offered = account.committed = seq;
}

std::uint64_t Ledger::offered_mark(const std::string& agent, std::uint64_t incarnation) const {
  const auto it = accounts_.find({agent, incarnation});
  return it == accounts_.end() ? 0 : it->second.offered;
}

std::uint64_t Ledger::committed_mark(const std::string& agent, std::uint64_t incarnation) const {
  const auto it = accounts_.find({agent, incarnation});
  return it == accounts_.end() ? 0 : it->second.committed;
}

}  // namespace spate::controller
