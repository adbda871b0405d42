#pragma once

// A record: one agent's account of one interval, and the laws it must satisfy. Values only; the
// wire form is proto/record.proto, the conversion proto/wire.h.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "common/histogram.h"
#include "common/outcome.h"

namespace spate {

struct RecordKey {
  std::string run;
  std::string agent;
  std::uint64_t incarnation = 0;  // of the agent process
  std::uint64_t seq = 0;          // contiguous from 1 within (run, agent, incarnation)

  auto operator<=>(const RecordKey&) const = default;
};

struct Counters {
  std::uint64_t scheduled = 0;
  std::uint64_t sent = 0;
  std::uint64_t missed_in_flight_limit = 0;
  std::uint64_t missed_overload = 0;
  std::uint64_t missed_paused = 0;
  std::uint64_t held = 0;  // of the sent ones: not due until the owner's cap on requests let them
  std::uint64_t held_ns = 0;  // how long these were held back, together
  std::uint64_t in_flight_begin = 0;
  std::uint64_t in_flight_end = 0;
  std::uint64_t bytes_sent = 0;  // on the sockets, everything included
  std::uint64_t bytes_received = 0;
  std::uint64_t connections_opened = 0;
  std::uint64_t connections_closed =
      0;  // lost, closed by the peer, or no longer wanted; not the run's own end
  std::uint64_t connect_failed = 0;
  std::uint64_t connection_protocol_errors = 0;

  std::uint64_t missed() const { return missed_in_flight_limit + missed_overload + missed_paused; }
  bool operator==(const Counters&) const = default;
};

struct Gauges {
  std::uint64_t connections_requested = 0;
  std::uint64_t connections_established = 0;
  std::uint64_t rss_bytes = 0;
  std::uint64_t cpu_ns = 0;   // used by the agent process during this interval
  double max_rate_per_s = 0;  // the owner's cap on requests; 0: none

  bool operator==(const Gauges&) const = default;
};

struct OutcomeSeries {
  Histogram latency;       // completed - intended
  Histogram service_time;  // completed - sent; same count as latency

  bool operator==(const OutcomeSeries&) const = default;
};

struct ErrorClass {
  Outcome outcome = Outcome::reset;
  std::uint32_t code = 0;
  std::string text;
  std::uint64_t count = 0;

  bool operator==(const ErrorClass&) const = default;
};

// A bounded tally of error classes. When kMaxErrorClasses are in use, further classes are added to
// (outcome, code 0, "other"); texts are cut at kMaxErrorText bytes. Counts are never lost.
inline constexpr std::size_t kMaxErrorClasses = 32;
inline constexpr std::size_t kMaxErrorText = 160;

class ErrorTally {
 public:
  // The place in classes() of what it was added to.
  std::size_t add(Outcome outcome, std::uint32_t code, std::string_view text,
                  std::uint64_t count = 1);
  void merge(const ErrorTally& other);
  const std::vector<ErrorClass>& classes() const { return classes_; }
  bool empty() const { return classes_.empty(); }
  bool operator==(const ErrorTally&) const = default;

 private:
  std::vector<ErrorClass> classes_;
};

struct Record {
  RecordKey key;
  // A record merged from several covers the seqs first_seq … key.seq; 0: key.seq alone.
  std::uint64_t first_seq = 0;
  std::uint32_t epoch = 1;
  std::uint32_t phase = 0;  // index into the plan's phases
  bool drain = false;       // after the last phase: answers to requests sent before its end
  bool guard = false;       // in a guard band after a change-over: not measured
  bool recovered = false;   // left whole by a process that died in the middle of the interval
  Duration start{};         // since the run's common start
  Duration length{};
  Counters counters;
  std::array<OutcomeSeries, kOutcomeCount>
      series;          // by index(Outcome); count of one = its histogram's count
  Histogram send_lag;  // one entry per sent request
  ErrorTally errors;   // one entry per request or connect that failed
  Gauges gauges;

  std::uint64_t first() const { return first_seq == 0 ? key.seq : first_seq; }
  std::uint64_t finished() const;  // sum of all outcomes
  std::uint64_t count(Outcome o) const { return series[index(o)].latency.count(); }
  bool operator==(const Record&) const = default;
};

// The per-record laws. Each broken one is a sentence with the numbers in it; empty: all hold.
//   scheduled = sent + missed
//   in_flight_begin + sent = sum of outcomes + in_flight_end
//   latency and service time of an outcome have the same count; send_lag has `sent` entries
//   length >= 0
std::vector<std::string> broken_laws(const Record& r);

// The chain: `next` must follow `previous` within one (run, agent, incarnation).
//   seqs contiguous, in_flight_begin = previous in_flight_end, start = previous start + length
std::vector<std::string> broken_chain(const Record& previous, const Record& next);

}  // namespace spate
