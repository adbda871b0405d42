#include "agent/interval_merger.h"

#include <algorithm>
#include <tuple>

#include "common/check.h"
#include "common/record_sum.h"

namespace spate::agent {

namespace {

auto subject(const Record& r) { return std::tuple(r.drain, r.phase, r.epoch, r.guard); }

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

bool IntervalMerger::row_is_complete() const {
  const Record* first = first_waiting();
  if (!first) return false;
  const Duration start = begun_ ? end_ : first->start;
  return std::none_of(workers_.begin(), workers_.end(), [start](const WorkerQueue& w) {
    return w.waiting.empty() && !w.drained && w.joins_at <= start;
  });
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

  Record row;
  std::vector<std::uint64_t> taken;
  std::tie(row.drain, row.phase, row.epoch, row.guard) = about;
  Duration start = first->start;
  Duration end = start;
  for (WorkerQueue& w : workers_) {
    if (w.waiting.empty() || subject(w.waiting.front()) != about) {
      row.counters.in_flight_begin += w.in_flight;
      row.counters.in_flight_end += w.in_flight;
    } else {
      const Record& r = w.waiting.front();
      add_flows(row, r);
      row.counters.in_flight_begin += r.counters.in_flight_begin;
      row.counters.in_flight_end += r.counters.in_flight_end;
      start = std::min(start, r.start);
      end = std::max(end, r.start + r.length);
      w.in_flight = r.counters.in_flight_end;
      w.gauges = r.gauges;
      w.waiting.pop_front();
      ++w.taken;
    }
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
