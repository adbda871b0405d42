#include "agent/interval_merger.h"

#include <algorithm>
#include <tuple>

#include "common/check.h"
#include "common/record_sum.h"

namespace spate::agent {

namespace {

auto subject(const Record& r) { return std::tuple(r.drain, r.phase, r.epoch, r.guard); }

Duration end_of(const Record& r) { return r.start + r.length; }

// Along a timeline phases and epochs only grow; guard bands come and go, so time decides there.
bool is_before(const Record& a, const Record& b) {
  const auto when = [](const Record& r) { return std::tuple(r.drain, r.phase, r.epoch, r.start); };
  return when(a) < when(b);
}

}  // namespace

void IntervalMerger::join(std::size_t worker, Duration at) {
  if (worker >= workers_.size()) {
    workers_.resize(worker + 1);
    workers_[worker].joins_at = at;
  }
  workers_[worker].joins_at = std::min(workers_[worker].joins_at, at);
}

void IntervalMerger::add(std::size_t worker, Record record) {
  CHECK(worker < workers_.size(), std::to_string(worker));
  CHECK(!workers_[worker].drained, "a record after the worker had drained");
  workers_[worker].waiting.push_back(std::move(record));
}

const Record* IntervalMerger::first_waiting() const {
  const Record* first = nullptr;
  for (const WorkerQueue& w : workers_)
    if (!w.waiting.empty() && (!first || is_before(w.waiting.front(), *first)))
      first = &w.waiting.front();
  return first;
}

// Of the first records of each worker that are about the same, the latest.
Duration IntervalMerger::end_of_row(const Record& first) const {
  Duration end = end_of(first);
  for (const WorkerQueue& w : workers_)
    if (!w.waiting.empty() && subject(w.waiting.front()) == subject(first))
      end = std::max(end, end_of(w.waiting.front()));
  return end;
}

bool IntervalMerger::row_is_complete() const {
  const Record* first = first_waiting();
  if (!first) return false;
  const Duration start = begun_ ? end_ : first->start;
  const Duration end = end_of_row(*first);
  const auto has_said_all = [&](const WorkerQueue& w) {
    if (w.drained) return true;
    if (w.waiting.empty()) return w.joins_at > start;
    return std::any_of(w.waiting.begin(), w.waiting.end(), [&](const Record& r) {
      return end_of(r) >= end || subject(r) != subject(*first);
    });
  };
  return std::all_of(workers_.begin(), workers_.end(), has_said_all);
}

std::vector<IntervalMerger::Row> IntervalMerger::take() {
  std::vector<Row> rows;
  while (row_is_complete()) rows.push_back(take_row());
  return rows;
}

bool IntervalMerger::all_drained() const {
  return std::all_of(workers_.begin(), workers_.end(),
                     [](const WorkerQueue& w) { return w.drained && w.waiting.empty(); });
}

IntervalMerger::Row IntervalMerger::take_row() {
  const Record* first = first_waiting();
  const auto about = subject(*first);
  const Duration end = end_of_row(*first);

  Record row;
  std::vector<std::uint64_t> taken;
  std::tie(row.drain, row.phase, row.epoch, row.guard) = about;
  Duration start = first->start;
  for (WorkerQueue& w : workers_) {
    row.counters.in_flight_begin += w.in_flight;
    const auto is_in_row = [&](const Record& r) { return subject(r) == about && end_of(r) <= end; };
    for (; !w.waiting.empty() && is_in_row(w.waiting.front()); w.waiting.pop_front()) {
      const Record& r = w.waiting.front();
      add_flows(row, r);
      start = std::min(start, r.start);
      w.in_flight = r.counters.in_flight_end;
      w.gauges = r.gauges;
      ++w.taken;
    }
    row.counters.in_flight_end += w.in_flight;
    taken.push_back(w.taken);
    row.gauges.connections_requested += w.gauges.connections_requested;
    row.gauges.connections_established += w.gauges.connections_established;
  }
  row.start = begun_ ? end_ : start;
  end_ = std::max(end, row.start);
  row.length = end_ - row.start;
  begun_ = true;
  return {std::move(row), std::move(taken)};
}

}  // namespace spate::agent
