#include "agent/recovery.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "common/record_sum.h"

namespace spate::agent {
namespace {

struct Worker {
  std::vector<Record> records;  // those that the spool does not have
  std::uint64_t in_flight = 0;  // where the rows have come to
  Gauges gauges;
};

// All workers' records about one thing.
struct Row {
  Duration start = Duration::max();
  Duration end = Duration::min();
  std::map<std::size_t, Record> parts;  // by worker
};

auto subject(const Record& r) { return std::tuple(r.drain, r.phase, r.epoch, r.guard); }

std::vector<Row> rows_of(const std::vector<Worker>& workers) {
  std::map<decltype(subject(Record{})), Row> by_subject;
  for (std::size_t w = 0; w < workers.size(); ++w) {
    for (const Record& r : workers[w].records) {
      Row& row = by_subject[subject(r)];
      row.start = std::min(row.start, r.start);
      row.end = std::max(row.end, r.start + r.length);
      const auto [part, is_first] = row.parts.emplace(w, r);
      if (!is_first) part->second = merge_in_time(part->second, r);
    }
  }
  std::vector<Row> rows;
  for (auto& [key, row] : by_subject) rows.push_back(std::move(row));
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.start < b.start; });
  return rows;
}

// A worker that has nothing to say about a row counts with what it has in flight.
Record record_of_row(const Row& row, std::vector<Worker>& workers, Duration start) {
  const Record& any = row.parts.begin()->second;
  Record r;
  std::tie(r.drain, r.phase, r.epoch, r.guard) = subject(any);
  r.recovered = true;
  r.start = start;
  r.length = std::max(row.end - start, Duration::zero());
  for (std::size_t w = 0; w < workers.size(); ++w) {
    Worker& worker = workers[w];
    r.counters.in_flight_begin += worker.in_flight;
    if (const auto part = row.parts.find(w); part != row.parts.end()) {
      add_flows(r, part->second);
      worker.in_flight = part->second.counters.in_flight_end;
      worker.gauges = part->second.gauges;
    }
    r.counters.in_flight_end += worker.in_flight;
    r.gauges.connections_requested += worker.gauges.connections_requested;
    r.gauges.connections_established += worker.gauges.connections_established;
  }
  return r;
}

bool says_something(const Record& r) {
  Counters flows = r.counters;
  flows.in_flight_begin = flows.in_flight_end = 0;
  return r.length > Duration::zero() || flows != Counters{} || r.finished() > 0;
}

LeftBehind of_account(const AccountKey& key, const std::vector<WorkerRemains>& remains,
                      const std::optional<SpoolAccount>& known) {
  LeftBehind left{key, remains.front().owner.agent, {}, {}};
  if (known) left.taken = known->taken;
  std::vector<Worker> workers;
  bool is_whole = true;
  for (const WorkerRemains& r : remains) {
    if (left.taken.size() <= r.owner.worker) left.taken.resize(r.owner.worker + 1);
    std::uint64_t& taken = left.taken[r.owner.worker];
    Worker worker;
    for (const auto& interval : r.intervals) {
      if (interval.ordinal <= taken) continue;
      is_whole = is_whole && interval.ordinal == taken + 1;
      worker.records.push_back(interval.record);
      taken = interval.ordinal;
    }
    is_whole = is_whole && r.has_open;
    if (worker.records.empty()) continue;
    worker.in_flight = worker.records.front().counters.in_flight_begin;
    worker.gauges = worker.records.front().gauges;
    workers.push_back(std::move(worker));
  }
  std::optional<Duration> end;
  if (known && known->last_seq + known->taken.size() > 0) end = known->end;
  for (const Row& row : rows_of(workers)) {
    Record record = record_of_row(row, workers, end.value_or(row.start));
    end = record.start + record.length;
    if (says_something(record)) left.records.push_back(std::move(record));
  }
  if (!left.records.empty()) left.records.back().recovered = is_whole;
  for (Record& r : left.records) r.key = {key.run, left.agent, key.incarnation, 0};
  return left;
}

}  // namespace

std::vector<LeftBehind> left_behind(
    std::vector<WorkerRemains> remains,
    const std::function<std::optional<SpoolAccount>(const AccountKey&)>& known) {
  std::map<AccountKey, std::vector<WorkerRemains>> by_account;
  for (WorkerRemains& r : remains)
    by_account[{r.owner.run, r.owner.incarnation}].push_back(std::move(r));
  std::vector<LeftBehind> all;
  for (const auto& [key, of_key] : by_account) {
    LeftBehind left = of_account(key, of_key, known(key));
    if (!left.records.empty()) all.push_back(std::move(left));
  }
  return all;
}

}  // namespace spate::agent
