#pragma once

// One worker's open interval: what happened since the last close(). The laws of common/record.h
// hold by construction: every sent request is counted once when it starts and once when it ends,
// and what is in flight at a border opens the next interval. Pure; one thread; told the time.
//
// It counts in a slot of memory that outlives the process (agent/open_interval.h), if it is given
// a ring of them. The order of its stores is that file's contract: the instants of the request
// first, then the samples.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>

#include "agent/open_interval.h"
#include "common/clock.h"
#include "common/record.h"

namespace spate::agent {

class Recorder {
 public:
  explicit Recorder(std::shared_ptr<SlotRing> ring = nullptr);

  // Times are told since t0; the first interval begins at `begin`. Counts taken before start()
  // (connections opened, bytes) belong to it.
  void start(Instant t0, Instant begin, IntervalLabel label);
  // Ends the open interval at `at` and opens the next one there. Key and process-wide gauges are
  // left to the caller. Requires start(), and `at` not before the last border.
  Record close(Instant at, IntervalLabel next);

  // close() at a border that changes nothing would take memory that other borders need.
  bool should_go_on() const { return ring_ && ring_->is_short(); }

  void request_sent(const RequestTimes& times) {
    OpenSlot& s = *slot_;
    ++in_flight_;
    s.sent_intended_ns = to_ns(times.intended);
    s.sent_ns = to_ns(times.sent);
    in_order();
    s.heads[kSendLag].record(s.buckets[kSendLag].data(), s.sent_ns - s.sent_intended_ns);
    in_order();
  }
  void request_ok(const RequestTimes& times, Instant completed) {
    finish(Outcome::ok, times, completed);
  }
  void request_failed(Outcome outcome, std::uint32_t code, std::string_view text,
                      const RequestTimes& times, Instant completed) {
    finish(outcome, times, completed);
    add_error(outcome, code, text);
  }

  // One that the owner's cap held back for so long, before it was due to be sent.
  void request_held(Duration wait) {
    ++slot_->counters.held;
    slot_->counters.held_ns += static_cast<std::uint64_t>(wait.count());
  }

  void bytes_sent(std::size_t n) { slot_->counters.bytes_sent += n; }
  void bytes_received(std::size_t n) { slot_->counters.bytes_received += n; }
  void connection_opened() {
    ++slot_->counters.connections_opened;
    slot_->connections_established = ++established_;
  }
  // `counted`: false for the run's own end.
  void connection_closed(bool counted) {
    if (counted) ++slot_->counters.connections_closed;
    slot_->connections_established = --established_;
  }
  void connect_failed(std::uint32_t code, std::string_view text) {
    ++slot_->counters.connect_failed;
    add_error(Outcome::reset, code, text);
  }
  // `text` is empty when a request has been counted with it already: one entry per failure.
  void connection_protocol_error(std::string_view text) {
    ++slot_->counters.connection_protocol_errors;
    if (!text.empty()) add_error(Outcome::protocol_error, 0, text);
  }
  void set_connections_requested(std::uint64_t n) { slot_->connections_requested = requested_ = n; }

  std::uint64_t in_flight() const { return in_flight_; }
  std::uint64_t established() const { return established_; }

 private:
  // For the compiler. Whoever reads after the process has died sees its stores in this order.
  static void in_order() { std::atomic_signal_fence(std::memory_order_seq_cst); }

  void finish(Outcome outcome, const RequestTimes& times, Instant completed) {
    OpenSlot& s = *slot_;
    --in_flight_;
    s.ended_intended_ns = to_ns(times.intended);
    s.ended_sent_ns = to_ns(times.sent);
    s.ended_ns = to_ns(completed);
    in_order();
    const std::size_t latency = latency_of(outcome);
    const std::size_t service_time = service_time_of(outcome);
    s.heads[latency].record(s.buckets[latency].data(), (completed - times.intended).count());
    s.heads[service_time].record(s.buckets[service_time].data(), (completed - times.sent).count());
    in_order();
  }
  void add_error(Outcome outcome, std::uint32_t code, std::string_view text);
  void take_slot();
  void open(Instant begin, IntervalLabel label);

  const std::shared_ptr<SlotRing> ring_;
  std::unique_ptr<OpenSlot> own_;  // when the ring has none
  OpenSlot* slot_ = nullptr;
  ErrorTally errors_;  // of the open interval; the slot has a copy
  Instant t0_{};
  Instant begin_{};
  bool started_ = false;
  std::uint64_t closed_ = 0;
  std::uint64_t in_flight_ = 0;
  std::uint64_t established_ = 0;
  std::uint64_t requested_ = 0;
};

}  // namespace spate::agent
