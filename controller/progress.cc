#include "controller/progress.h"

#include <algorithm>

namespace spate::controller {

void Progress::resume(Duration elapsed, std::uint64_t finished) {
  next_ = std::max<std::int64_t>(elapsed / interval_, 0);
  total_ = finished;
}

void Progress::add(const Record& record) {
  total_ += record.finished();
  const std::int64_t number = std::max<std::int64_t>(record.start / interval_, 0);
  if (number < next_) return;
  Slot& slot = slots_[number];
  slot.reported_to[record.key.agent] = record.start + record.length;
  slot.gauges[record.key.agent] = record.gauges;
  slot.phase = record.phase;
  slot.drain = slot.drain && record.drain;
  slot.epoch = record.epoch;
  const std::uint64_t ok = record.count(Outcome::ok);
  slot.ok += ok;
  slot.failed += record.finished() - ok;
  slot.bytes_sent += record.counters.bytes_sent;
  slot.bytes_received += record.counters.bytes_received;
  for (const OutcomeSeries& series : record.series) slot.latency.merge(series.latency);
}

std::vector<Progress::Due> Progress::take_due(Duration elapsed, std::size_t live_agents,
                                              bool is_over) {
  std::vector<Due> due;
  while (!slots_.empty()) {
    const auto& [number, slot] = *slots_.begin();
    const Duration end = (number + 1) * interval_;
    // A twentieth of an interval: agents close theirs by timer, not to the nanosecond.
    const Duration full = end - interval_ / 20;
    const auto complete =
        static_cast<std::size_t>(std::count_if(slot.reported_to.begin(), slot.reported_to.end(),
                                               [&](const auto& r) { return r.second >= full; }));
    const auto lateness =
        Duration(static_cast<std::int64_t>(static_cast<double>(interval_.count()) * kMaxLateness));
    if (complete < live_agents && elapsed < end + lateness && !is_over && slots_.size() <= kMaxOpen)
      break;
    Due line = line_of(number, slot);
    if (!line.drain || line.line.elapsed - number * interval_ >= interval_ / 2)
      due.push_back(std::move(line));
    next_ = number + 1;
    slots_.erase(slots_.begin());
  }
  return due;
}

Progress::Due Progress::line_of(std::int64_t number, const Slot& slot) const {
  const Duration begin = number * interval_;
  Duration end = begin;
  for (const auto& [agent, to] : slot.reported_to) end = std::max(end, to);
  const double seconds = std::chrono::duration<double>(end - begin).count();
  Due due;
  due.phase = slot.phase;
  due.drain = slot.drain;
  ProgressLine& line = due.line;
  line.elapsed = end;
  line.planned = planned_;
  line.epoch = slot.epoch;
  line.agents_reporting = static_cast<std::uint32_t>(slot.reported_to.size());
  for (const auto& [agent, gauges] : slot.gauges) {
    line.connections_requested += gauges.connections_requested;
    line.connections_established += gauges.connections_established;
  }
  line.ok = slot.ok;
  line.failed = slot.failed;
  if (seconds > 0) {
    line.rate_per_s = static_cast<double>(slot.ok + slot.failed) / seconds;
    line.bytes_sent_per_s = static_cast<double>(slot.bytes_sent) / seconds;
    line.bytes_received_per_s = static_cast<double>(slot.bytes_received) / seconds;
  }
  line.latency_p50_ns = slot.latency.quantile(0.5);
  line.latency_p99_ns = slot.latency.quantile(0.99);
  line.latency_max_ns = slot.latency.max();
  line.requests_total = total_;
  return due;
}

}  // namespace spate::controller
