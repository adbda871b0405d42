#include "controller/set_table.h"

#include <algorithm>
#include <set>

#include "controller/aggregate.h"

namespace spate::controller {
namespace {

double ratio(std::uint64_t a, std::uint64_t b) {
  return b == 0 ? 0 : static_cast<double>(a) / static_cast<double>(b);
}

double per_second(std::uint64_t n, Duration length) {
  return length.count() <= 0 ? 0
                             : static_cast<double>(n) / (static_cast<double>(length.count()) / 1e9);
}

Parameters without_connections(Parameters p) {
  p.load.connections = 0;
  return p;
}

}  // namespace

double SetTable::Row::rate_per_s() const { return per_second(measured_finished, measured); }
double SetTable::Row::bytes_per_request() const {
  return ratio(measured_bytes_sent, measured_sent);
}
double SetTable::Row::bytes_per_response() const {
  return ratio(measured_bytes_received, measured_answered);
}
double SetTable::Row::bytes_per_s() const {
  return per_second(measured_bytes_sent + measured_bytes_received, measured);
}

void SetTable::update(const RunInfo& info) {
  for (std::size_t i = position_of_.size(); i < info.agents.size(); ++i)
    position_of_.emplace(info.agents[i].name, i);
  if (is_known_ && changes_ == info.changes.size() && started_wall_ms_ == info.started_wall_ms)
    return;
  const auto timeline = timeline_of(info);
  if (!timeline) return;  // the run was refused: there are no records
  is_known_ = true;
  changes_ = info.changes.size();
  started_wall_ms_ = info.started_wall_ms;
  set_names_.clear();
  if (info.plan.rotation)
    for (const Rotation::Set& set : info.plan.rotation->sets) set_names_.push_back(set.name);
  by_set_.resize(set_names_.size() + 1);
  phase_is_measured_.clear();
  for (const Phase& phase : info.plan.phases) phase_is_measured_.push_back(phase.measured);
  segments_ = timeline->segments;
  // Epochs that a change replaced before they came stay: they do no harm.
  for (const Epoch& epoch : timeline->epochs) {
    auto& rows = row_of_share_[epoch.number];
    rows.clear();
    std::map<std::size_t, std::uint64_t> together;
    for (const AgentShare& share : epoch.shares) {
      rows.push_back(row_of(share, epoch.number));
      together[rows.back()] += share.parameters.load.connections;
    }
    for (const auto& [row, connections] : together) {
      auto& most = rows_[row].parameters.load.connections;
      most = std::max(most, connections);
    }
  }
}

std::size_t SetTable::row_of(const AgentShare& share, std::uint32_t epoch) {
  auto& same_set = by_set_[std::min<std::size_t>(share.set, by_set_.size() - 1)];
  const Parameters wanted = without_connections(share.parameters);
  for (const std::size_t row : same_set) {
    if (without_connections(rows_[row].parameters) == wanted) return row;
  }
  if (rows_.size() >= kMaxSetRows) return rows_.size() - 1;
  Row row;
  row.set = share.set;
  row.first_epoch = epoch;
  row.parameters = wanted;
  if (share.set < set_names_.size()) {
    row.name = set_names_[share.set];
    if (!same_set.empty()) row.name += " from epoch " + std::to_string(epoch);
  } else {
    row.name = "epoch " + std::to_string(epoch);
  }
  rows_.push_back(std::move(row));
  same_set.push_back(rows_.size() - 1);
  return rows_.size() - 1;
}

void SetTable::add(const Record& record, bool settled) {
  const auto agent = position_of_.find(record.key.agent);
  const auto epoch = row_of_share_.find(record.epoch);
  if (agent == position_of_.end() || epoch == row_of_share_.end() ||
      agent->second >= epoch->second.size())
    return;
  Row& row = rows_[epoch->second[agent->second]];
  const std::uint64_t finished = record.finished() - record.count(Outcome::cancelled);
  row.sent += record.counters.sent;
  row.failed += finished - record.count(Outcome::ok);
  row.rss_bytes_max = std::max(row.rss_bytes_max, record.gauges.rss_bytes);
  if (!settled) return;
  row.measured_sent += record.counters.sent;
  row.measured_finished += finished;
  row.measured_answered += record.count(Outcome::ok) + record.count(Outcome::application_error) +
                           record.count(Outcome::bad_response);
  row.measured_bytes_sent += record.counters.bytes_sent;
  row.measured_bytes_received += record.counters.bytes_received;
  for (const Outcome o : kOutcomes)
    if (counts_for_latency(o)) row.latency.merge(record.series[index(o)].latency);
}

std::vector<SetTable::Row> SetTable::rows(Duration end) const {
  std::vector<Row> all = rows_;
  std::set<std::size_t> used;
  for (const Segment& segment : segments_) {
    if (segment.offset >= end) break;
    const auto& holders = row_of_share_.at(segment.epoch);
    const std::set<std::size_t> held(holders.begin(), holders.end());
    used.insert(held.begin(), held.end());
    if (segment.guard || !phase_is_measured_.at(segment.phase)) continue;
    for (const std::size_t row : held)
      all[row].measured += std::min(segment.length, end - segment.offset);
  }
  std::vector<Row> rows;
  for (const std::size_t row : used) rows.push_back(std::move(all[row]));
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.set < b.set; });
  return rows;
}

}  // namespace spate::controller
