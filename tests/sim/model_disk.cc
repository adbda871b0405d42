#include "tests/sim/model_disk.h"

#include <algorithm>

#include "common/check.h"

namespace spate::sim {

DiskState::Chain* ModelDisk::find(const agent::AccountKey& key) {
  const auto it = std::find_if(state_.chains.begin(), state_.chains.end(),
                               [&](const DiskState::Chain& c) { return c.account.key == key; });
  return it == state_.chains.end() ? nullptr : &*it;
}

Result<agent::SpoolContents> ModelDisk::open() {
  is_open_ = false;
  if (state_.fault == DiskFault::io_error && world_.chance(0.5))
    return Error{ErrorCode::io, "cannot open the spool: EIO"};
  agent::SpoolContents contents;
  for (const DiskState::Chain& chain : state_.chains) {
    agent::SpoolContents::Chain& out = contents.chains.emplace_back();
    out.account = chain.account;
    for (const auto& [seq, record] : chain.records) out.entries.push_back(record.first);
  }
  contents.shelved = state_.shelf;
  is_open_ = true;
  return contents;
}

Result<void> ModelDisk::commit(const agent::SpoolChange& change) {
  CHECK(is_open_, "a commit after an error, without open()");
  // A copy: it may take itself away.
  const auto at_commit = state_.at_commit;
  if (state_.commit_takes > Duration::zero() && !state_.before) state_.before = state_.chains;
  spent_ += state_.commit_takes;
  if (at_commit) at_commit(false);
  switch (state_.fault) {
    case DiskFault::none:
      break;
    case DiskFault::full:
      is_open_ = false;
      return Error{ErrorCode::io, "cannot write the spool: ENOSPC"};
    case DiskFault::read_only:
      is_open_ = false;
      return Error{ErrorCode::io, "cannot write the spool: EROFS"};
    case DiskFault::io_error:
      is_open_ = false;
      if (world_.chance(0.5)) apply(change);
      return Error{ErrorCode::io, "cannot write the spool: EIO"};
  }
  apply(change);
  if (at_commit) at_commit(true);
  return {};
}

void ModelDisk::apply(const agent::SpoolChange& change) {
  for (const agent::AccountKey& key : change.forget)
    std::erase_if(state_.chains, [&](const auto& c) { return c.account.key == key; });
  for (const agent::SpoolAccount& account : change.accounts) {
    if (DiskState::Chain* chain = find(account.key))
      chain->account = account;
    else
      state_.chains.push_back({account, {}});
  }
  for (const agent::SpoolChange::Erase& e : change.erase) {
    DiskState::Chain* chain = find(e.account);
    if (chain == nullptr) continue;
    const auto from = chain->records.lower_bound(e.from);
    chain->records.erase(from, chain->records.upper_bound(e.to));
  }
  for (const agent::SpoolChange::Put& p : change.put) {
    DiskState::Chain* chain = find(p.account);
    CHECK(chain != nullptr, "a record without an account");
    chain->records[p.entry.seq] = {p.entry, p.payload};
  }
}

Result<std::string> ModelDisk::read(const agent::AccountKey& account, std::uint64_t seq) {
  const DiskState::Chain* chain = find(account);
  if (chain == nullptr || !chain->records.contains(seq))
    return Error{ErrorCode::io, "no record " + std::to_string(seq) + " in the spool"};
  return chain->records.at(seq).second;
}

bool ModelDisk::shelve(const std::string& bytes) {
  state_.shelf = bytes;
  return true;
}

}  // namespace spate::sim
