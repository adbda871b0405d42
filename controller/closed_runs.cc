#include "controller/closed_runs.h"

#include <algorithm>

namespace spate::controller {

void ClosedRuns::add(const std::string& run, std::map<std::string, ShareHolder> agents,
                     Ledger ledger) {
  if (runs_.size() >= kMaxClosedRuns) runs_.pop_front();
  runs_.push_back({run, std::move(agents), std::move(ledger)});
  if (runs_.size() > kMaxRunsWithContents)
    runs_[runs_.size() - 1 - kMaxRunsWithContents].ledger.forget_contents();
}

void ClosedRuns::restore(const Mark& mark) {
  if (One* one = find(mark.run)) one->ledger.restore(mark.agent, mark.incarnation, mark.seq);
}

ClosedRuns::Ruling ClosedRuns::offer(const AgentRecord& record, const std::string& agent_id) {
  const RecordKey& key = record.record.key;
  One* one = find(key.run);
  if (one == nullptr) return Ruling::unknown_run;
  // An old store does not say who its agents were.
  const auto owner_of = one->agents.find(key.agent);
  if (owner_of == one->agents.end()) return Ruling::not_its_own;
  const std::string& owner = owner_of->second.agent_id;
  if (owner != agent_id && !owner.empty()) return Ruling::not_its_own;
  const auto hash = static_cast<std::uint64_t>(std::hash<std::string>{}(record.bytes)) | 1U;
  const Ledger::Entry entry = one->ledger.offer(record.record, hash);
  return entry.ruling == Ledger::Ruling::accepted ? Ruling::store : Ruling::acknowledge;
}

void ClosedRuns::committed(const Mark& mark) {
  if (One* one = find(mark.run)) one->ledger.committed(mark.agent, mark.incarnation, mark.seq);
}

std::optional<store_op::PutDead> ClosedRuns::bury(const AgentAccount& account,
                                                  const std::string& agent_id) {
  One* one = find(account.run);
  if (one == nullptr || account.cause.empty()) return std::nullopt;
  for (auto& [name, holder] : one->agents) {
    if (holder.agent_id != agent_id || holder.incarnation >= account.incarnation) continue;
    holder.incarnation = account.incarnation;
    return store_op::PutDead{
        account.run, name, {account.incarnation, account.last_seq, account.cause}};
  }
  return std::nullopt;
}

std::uint64_t ClosedRuns::committed_mark(const std::string& run, const std::string& agent,
                                         std::uint64_t incarnation) const {
  const One* one = const_cast<ClosedRuns*>(this)->find(run);
  return one == nullptr ? 0 : one->ledger.committed_mark(agent, incarnation);
}

bool ClosedRuns::has(const std::string& run) const {
  return const_cast<ClosedRuns*>(this)->find(run) != nullptr;
}

std::string ClosedRuns::owner(const std::string& run, const std::string& name) const {
  const One* one = const_cast<ClosedRuns*>(this)->find(run);
  if (one == nullptr) return "";
  const auto it = one->agents.find(name);
  return it == one->agents.end() ? "" : it->second.agent_id;
}

std::string ClosedRuns::name_of(const std::string& run, const std::string& agent_id) const {
  const One* one = const_cast<ClosedRuns*>(this)->find(run);
  if (one == nullptr) return "";
  for (const auto& [name, holder] : one->agents) {
    if (holder.agent_id == agent_id) return name;
  }
  return "";
}

ClosedRuns::One* ClosedRuns::find(const std::string& run) {
  const auto it =
      std::find_if(runs_.begin(), runs_.end(), [&](const One& one) { return one.run == run; });
  return it == runs_.end() ? nullptr : &*it;
}

}  // namespace spate::controller
