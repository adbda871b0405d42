// The target's side and the events of a run: what Aggregate keeps of samples, boots and events.

#include <algorithm>
#include <set>
#include <tuple>

#include "common/units.h"
#include "controller/aggregate.h"
#include "controller/balance.h"

namespace spate::controller {
namespace {

constexpr std::size_t kMaxBlindWindows = 1'000;

std::uint64_t growth(std::uint64_t now, std::uint64_t base) { return now > base ? now - base : 0; }

}  // namespace

void Aggregate::add(const TargetSample& sample) {
  if (samples_.empty()) {
    boots_ = 1;
    boot_base_ = sample;
  } else if (sample.boot_id != samples_.back().boot_id) {
    const Duration seen{samples_.back().at_ns};
    if (blind_.size() < kMaxBlindWindows)
      blind_.emplace_back(seen, Duration(sample.at_ns));
    else
      blind_.back().second = Duration(sample.at_ns);
    close_boot();
    ++boots_;
    boot_begin_ = samples_.size();
    boot_base_ = TargetSample{};  // everything of a boot that began during the run is the run's
    boot_base_.boot_id = sample.boot_id;
  } else {
    samples_.back().agents.clear();  // totals of a boot: only its last sample is ever needed
    samples_.back().agents.shrink_to_fit();
  }
  samples_.push_back(sample);
  address_space_max_ = std::max(address_space_max_, sample.address_space_bytes);
  rss_max_ = std::max(rss_max_, sample.rss_bytes);

  std::uint64_t completed = 0;
  for (const auto& [id, counts] : closed_boots_) completed += counts.completed;
  for (const auto& a : sample.agents) completed += a.completed;
  completed_at_samples_.push_back(completed);
  if (samples_.size() > kMaxTargetSamples) thin_samples();
}

void Aggregate::close_boot() {
  auto& last = samples_.back();
  for (const auto& a : last.agents) {
    auto& counts = closed_boots_[{a.agent, a.incarnation}];
    counts.received += a.received;
    counts.completed += a.completed;
    counts.refused += a.refused;
  }
  closed_cpu_ns_ += growth(last.cpu_ns, boot_base_.cpu_ns);
  closed_completed_ += growth(last.completed, boot_base_.completed);
  last.agents.clear();
}

// Drops every second sample but the first and the last of each boot.
void Aggregate::thin_samples() {
  std::vector<TargetSample> kept;
  std::vector<std::uint64_t> completed;
  std::size_t begin = 0;
  bool odd = false;
  bool first_of_boot = true;
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    const bool last_of_boot =
        i + 1 == samples_.size() || samples_[i + 1].boot_id != samples_[i].boot_id;
    const bool border = first_of_boot || last_of_boot;
    first_of_boot = last_of_boot;
    odd = !odd;
    if (!border && odd) continue;
    if (i == boot_begin_) begin = kept.size();
    kept.push_back(std::move(samples_[i]));
    completed.push_back(completed_at_samples_[i]);
  }
  // A target that restarts at every sample: the newest half is worth more than a longer list.
  if (kept.size() > kMaxTargetSamples) {
    const auto cut = static_cast<std::ptrdiff_t>(kept.size() / 2);
    kept.erase(kept.begin(), kept.begin() + cut);
    completed.erase(completed.begin(), completed.begin() + cut);
    begin = begin > static_cast<std::size_t>(cut) ? begin - static_cast<std::size_t>(cut) : 0;
  }
  samples_ = std::move(kept);
  completed_at_samples_ = std::move(completed);
  boot_begin_ = begin;
}

void Aggregate::add(const RunEvent& event) {
  if (event.severity == RunEvent::Severity::error) ++error_events_;
  if (events_.size() >= kMaxEvents) {
    // Room is made by forgetting the oldest of the least severe in the newer half: a run's
    // beginning explains what follows.
    const auto half = events_.begin() + static_cast<std::ptrdiff_t>(kMaxEvents / 2);
    events_.erase(std::min_element(half, events_.end(), [](const RunEvent& a, const RunEvent& b) {
      return a.severity < b.severity;
    }));
  }
  events_.push_back(event);
}

std::map<Aggregate::AgentId, Aggregate::TargetCounts> Aggregate::target_counts() const {
  auto counts = closed_boots_;
  if (samples_.empty()) return counts;
  for (const auto& a : samples_.back().agents) {
    auto& c = counts[{a.agent, a.incarnation}];
    c.received += a.received;
    c.completed += a.completed;
    c.refused += a.refused;
  }
  return counts;
}

// As target_counts(), with the processes together that share an account here.
std::map<Aggregate::AgentId, Aggregate::TargetCounts> Aggregate::folded_target_counts() const {
  std::map<AgentId, TargetCounts> folded;
  for (const auto& [id, counts] : target_counts()) {
    const AgentId shared{id.first, 0};
    auto& c = folded[!agent_of_.contains(id) && agent_of_.contains(shared) ? shared : id];
    c.received += counts.received;
    c.completed += counts.completed;
    c.refused += counts.refused;
  }
  return folded;
}

// An upper bound: every point that touches the span counts whole, and one interval on each side,
// because a sample's instant is the controller's and a record's the agent's.
std::uint64_t Aggregate::sent_between(Duration from, Duration to) const {
  std::uint64_t sent = 0;
  for (const auto& p : points_)
    if (p.start < to + info_.plan.interval && p.start + p.length > from - info_.plan.interval)
      sent += p.counters.sent;
  return sent;
}

Balance Aggregate::balance(std::vector<std::string>& lines) const {
  BalanceFacts facts;
  facts.ended = info_.state == RunState::finished;
  facts.target_known = !samples_.empty();
  facts.probe_planned = !info_.plan.target.probe.empty();
  facts.target = info_.plan.target.url;
  facts.target_restarts = target_restarts();
  for (const auto& [from, to] : blind_) facts.sent_unseen_max += sent_between(from, to);
  // Nobody saw what it counted before, if that was another boot.
  if (facts.target_known && samples_.front().at_ns > 0) {
    facts.head_unseen = true;
    facts.sent_unseen_max += sent_between(Duration::zero(), Duration(samples_.front().at_ns));
  }
  if (facts.target_known && samples_.back().at_ns < end().count()) {
    facts.tail_unseen = true;
    facts.sent_unseen_max += sent_between(Duration(samples_.back().at_ns), end());
  }
  facts.records = records_;
  facts.duplicates = duplicates_;
  facts.broken_laws = broken_law_count_;
  facts.broken_law_texts = broken_law_texts_;

  std::set<AgentId> missing;
  const auto all_gaps = gaps();
  facts.gaps = all_gaps.size();
  for (const auto& gap : all_gaps) missing.insert({gap.agent, gap.incarnation});

  auto counts = folded_target_counts();
  const auto add_agent = [&](const AgentTotals& totals) {
    BalanceFacts::Agent a;
    a.agent = totals.agent;
    a.incarnation = totals.incarnation;
    a.sent = totals.counters.in_flight_begin + totals.counters.sent;
    a.outcomes = totals.outcomes;
    a.in_flight_end = totals.counters.in_flight_end;
    a.records_missing = missing.contains({totals.agent, totals.incarnation});
    if (const auto* died = dead(a.agent, a.incarnation)) {
      a.died = died->cause.empty() ? "its process ended" : died->cause;
      const auto known = agent_of_.find({a.agent, a.incarnation});
      a.last_interval_kept = known != agent_of_.end() && states_[known->second].previous.recovered;
    }
    for (const auto& known : info_.agents)
      if (known.name == a.agent && known.incarnation == a.incarnation)
        a.lost = !known.lost_reason.empty() && !known.last_seq;
    const auto found = counts.find({a.agent, a.incarnation});
    if (found != counts.end()) {
      a.received = found->second.received;
      a.completed = found->second.completed;
      counts.erase(found);
    }
    facts.agents.push_back(std::move(a));
  };
  for (const auto& totals : agents_) add_agent(totals);
  const auto add_silent = [&](const std::string& name, std::uint64_t incarnation) {
    if (agent_of_.contains({name, incarnation})) return;
    AgentTotals silent;
    silent.agent = name;
    silent.incarnation = incarnation;
    add_agent(silent);
  };
  for (const auto& known : info_.agents) {
    if (agent_of_.contains({known.name, 0})) continue;  // its processes share an account
    add_silent(known.name, known.incarnation);
    for (const auto& d : known.dead) add_silent(known.name, d.incarnation);
  }
  // Only the target knows of these.
  while (!counts.empty()) {
    AgentTotals unknown;
    unknown.agent = counts.begin()->first.first;
    unknown.incarnation = counts.begin()->first.second;
    add_agent(unknown);
  }

  // In one order, whatever order the records came in.
  std::sort(facts.agents.begin(), facts.agents.end(), [](const auto& a, const auto& b) {
    return std::tie(a.agent, a.incarnation) < std::tie(b.agent, b.incarnation);
  });
  auto result = check_balance(facts);
  lines = std::move(result.lines);
  if (!result.worst_line.empty()) {
    // The line that decides comes first.
    const auto worst = std::find(lines.begin(), lines.end(), result.worst_line);
    if (worst != lines.end()) std::rotate(lines.begin(), worst, worst + 1);
  }
  return result.balance;
}

}  // namespace spate::controller
