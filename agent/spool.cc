#include "agent/spool.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/record_sum.h"

namespace spate::agent {

namespace {

constexpr std::size_t kEntryOverhead = 512;  // counters, gauges, deque and string headers

Histogram decoded(const std::string& bytes) {
  Result<Histogram> h = Histogram::decode(bytes);
  CHECK(h.has_value(), "the spool's own encoding: " + h.error().message);
  return *std::move(h);
}

}  // namespace

Spool::Entry Spool::pack(Record record, std::uint64_t intervals) {
  Entry e;
  e.intervals = intervals;
  e.bytes = kEntryOverhead;
  std::size_t n = 0;
  const auto take = [&e, &n](Histogram& h) {
    e.histograms[n] = h.encode();
    e.bytes += e.histograms[n].size();
    ++n;
    h = Histogram();
  };
  for (OutcomeSeries& s : record.series) {
    take(s.latency);
    take(s.service_time);
  }
  take(record.send_lag);
  for (const ErrorClass& c : record.errors.classes()) e.bytes += sizeof(ErrorClass) + c.text.size();
  e.head = std::move(record);
  return e;
}

Record Spool::unpack(const Entry& entry) {
  Record r = entry.head;
  std::size_t n = 0;
  for (OutcomeSeries& s : r.series) {
    s.latency = decoded(entry.histograms[n++]);
    s.service_time = decoded(entry.histograms[n++]);
  }
  r.send_lag = decoded(entry.histograms[n]);
  return r;
}

void Spool::add(Record record) {
  entries_.push_back(pack(std::move(record), 1));
  bytes_ += entries_.back().bytes;
  while (bytes_ > limits_.bytes && coarsen()) {
  }
}

std::optional<Record> Spool::next() {
  if (out_ == entries_.size() || out_ >= limits_.window) return std::nullopt;
  Entry& e = entries_[out_];
  const std::uint64_t seq = acknowledged_ + out_ + 1;
  if (seq > last_seq_) {
    e.head.key.seq = seq;
    last_seq_ = seq;
  }
  CHECK(e.head.key.seq == seq, "frozen as " + std::to_string(e.head.key.seq));
  ++out_;
  return unpack(e);
}

bool Spool::acknowledge(std::uint64_t seq) {
  if (seq > last_seq_) return false;
  while (acknowledged_ < seq) {
    bytes_ -= entries_.front().bytes;
    entries_.pop_front();
    ++acknowledged_;
    // After a rewind the controller may name a mark beyond what went out again.
    if (out_ > 0) --out_;
  }
  return true;
}

// Merges the pair of never-sent neighbours that covers the fewest intervals; of equals the oldest.
bool Spool::coarsen() {
  const std::size_t first = static_cast<std::size_t>(last_seq_ - acknowledged_);
  std::size_t best = entries_.size();
  std::uint64_t best_intervals = 0;
  for (std::size_t i = first; i + 1 < entries_.size(); ++i) {
    if (!mergeable_in_time(entries_[i].head, entries_[i + 1].head)) continue;
    const std::uint64_t intervals = entries_[i].intervals + entries_[i + 1].intervals;
    if (best == entries_.size() || intervals < best_intervals) {
      best = i;
      best_intervals = intervals;
    }
  }
  if (best == entries_.size()) return false;
  bytes_ -= entries_[best].bytes + entries_[best + 1].bytes;
  entries_[best] =
      pack(merge_in_time(unpack(entries_[best]), unpack(entries_[best + 1])), best_intervals);
  bytes_ += entries_[best].bytes;
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  return true;
}

}  // namespace spate::agent
