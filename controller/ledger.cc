#include "controller/ledger.h"

#include <algorithm>
#include <cstdint>

namespace spate::controller {
namespace {

Record without_histograms(const Record& r) {
  Record slim;
  slim.key = r.key;
  slim.first_seq = r.first_seq;
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
  const auto [place, is_new] = accounts_.try_emplace({record.key.agent, record.key.incarnation});
  Account& account = place->second;
  const std::uint64_t seq = record.key.seq;
  Entry entry;
  if (seq <= account.offered) {
    ++duplicates_;
    // After a restart, or much later, the content is not known any more.
    const bool is_known =
        !account.contents.empty() && account.contents[seq % kRememberedHashes].seq == seq;
    const bool is_other =
        is_known && account.contents[seq % kRememberedHashes].hash != content_hash;
    entry.ruling = is_other ? Ruling::quarantined : Ruling::duplicate;
    return entry;
  }
  if (record.first() != account.offered + 1) {
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
  account.contents.resize(kRememberedHashes);
  account.contents[seq % kRememberedHashes] = {seq, content_hash};
  if (is_new) forget_old_contents(place);
  return entry;
}

void Ledger::forget_old_contents(Accounts::iterator newest) {
  std::size_t remembered = 0;
  const std::string& agent = newest->first.first;
  for (auto it = accounts_.upper_bound({agent, UINT64_MAX}); it != accounts_.begin();) {
    --it;
    if (it->first.first != agent) break;
    if (++remembered > kRememberedIncarnations) {
      it->second.contents = {};
      it->second.last.reset();
    }
  }
}

void Ledger::forget_contents() {
  for (auto& [key, account] : accounts_) {
    account.contents = {};
    account.last.reset();
  }
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
