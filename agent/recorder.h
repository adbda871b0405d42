#pragma once

// One worker's open interval: what happened since the last close(). The laws of common/record.h
// hold by construction: every sent request is counted once when it starts and once when it ends,
// and what is in flight at a border opens the next interval. Pure; one thread; told the time.

#include <cstdint>
#include <string_view>

#include "common/clock.h"
#include "common/record.h"

namespace spate::agent {

// What an interval belongs to; fixed while it is open.
struct IntervalLabel {
  std::uint32_t epoch = 1;
  std::uint32_t phase = 0;
  bool drain = false;
  bool guard = false;
};

// The instants of one request.
struct RequestTimes {
  Instant intended;
  Instant sent;
};

class Recorder {
 public:
  // Times are told since t0; the first interval begins at `begin`. Counts taken before start()
  // (connections opened, bytes) belong to it.
  void start(Instant t0, Instant begin, IntervalLabel label);
  // Ends the open interval at `at` and opens the next one there. Key and process-wide gauges are
  // left to the caller. Requires start(), and `at` not before the last border.
  Record close(Instant at, IntervalLabel next);

  void request_sent(const RequestTimes& times) {
    ++open_.counters.scheduled;
    ++open_.counters.sent;
    ++in_flight_;
    open_.send_lag.record((times.sent - times.intended).count());
  }
  void request_ok(const RequestTimes& times, Instant completed) {
    finish(Outcome::ok, times, completed);
  }
  void request_failed(Outcome outcome, std::uint32_t code, std::string_view text,
                      const RequestTimes& times, Instant completed) {
    finish(outcome, times, completed);
    open_.errors.add(outcome, code, text);
  }

  void bytes_sent(std::size_t n) { open_.counters.bytes_sent += n; }
  void bytes_received(std::size_t n) { open_.counters.bytes_received += n; }
  void connection_opened() {
    ++open_.counters.connections_opened;
    ++established_;
  }
  // `counted`: false for the run's own end.
  void connection_closed(bool counted) {
    if (counted) ++open_.counters.connections_closed;
    --established_;
  }
  void connect_failed(std::uint32_t code, std::string_view text) {
    ++open_.counters.connect_failed;
    open_.errors.add(Outcome::reset, code, text);
  }
  // `text` is empty when a request has been counted with it already: one entry per failure.
  void connection_protocol_error(std::string_view text) {
    ++open_.counters.connection_protocol_errors;
    if (!text.empty()) open_.errors.add(Outcome::protocol_error, 0, text);
  }
  void set_connections_requested(std::uint64_t n) { requested_ = n; }

  std::uint64_t in_flight() const { return in_flight_; }
  std::uint64_t established() const { return established_; }

 private:
  void finish(Outcome outcome, const RequestTimes& times, Instant completed) {
    --in_flight_;
    OutcomeSeries& series = open_.series[index(outcome)];
    series.latency.record((completed - times.intended).count());
    series.service_time.record((completed - times.sent).count());
  }

  Record open_;
  Instant t0_{};
  Instant begin_{};
  bool started_ = false;
  std::uint64_t in_flight_ = 0;
  std::uint64_t established_ = 0;
  std::uint64_t requested_ = 0;
};

}  // namespace spate::agent
