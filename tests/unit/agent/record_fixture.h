#pragma once

#include "common/record.h"

namespace spate::agent {

// A record that keeps the laws: `ok` answered, one timed out, levels of requests in flight as
// given.
inline Record lawful(Duration start, Duration length, std::uint64_t in_flight_begin,
                     std::uint64_t in_flight_end, std::uint64_t ok) {
  Record r;
  r.start = start;
  r.length = length;
  for (std::uint64_t i = 0; i < ok; ++i) {
    r.series[index(Outcome::ok)].latency.record(static_cast<std::int64_t>(1000 + i * 37));
    r.series[index(Outcome::ok)].service_time.record(static_cast<std::int64_t>(900 + i * 37));
  }
  r.series[index(Outcome::timed_out)].latency.record(5'000'000);
  r.series[index(Outcome::timed_out)].service_time.record(5'000'000);
  r.errors.add(Outcome::timed_out, 0, "no answer");
  r.counters.in_flight_begin = in_flight_begin;
  r.counters.in_flight_end = in_flight_end;
  r.counters.sent = ok + 1 + in_flight_end - in_flight_begin;
  r.counters.scheduled = r.counters.sent;
  r.counters.bytes_sent = 100 * r.counters.sent;
  r.send_lag.record(10, r.counters.sent);
  r.gauges.connections_requested = 10;
  r.gauges.connections_established = 9;
  r.gauges.cpu_ns = 1000;
  return r;
}

}  // namespace spate::agent
