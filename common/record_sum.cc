#include "common/record_sum.h"

#include <algorithm>

namespace spate {

void add_flows(Counters& s, const Counters& c) {
  s.scheduled += c.scheduled;
  s.sent += c.sent;
  s.missed_in_flight_limit += c.missed_in_flight_limit;
  s.missed_overload += c.missed_overload;
  s.missed_paused += c.missed_paused;
  s.held += c.held;
  s.held_ns += c.held_ns;
  s.bytes_sent += c.bytes_sent;
  s.bytes_received += c.bytes_received;
  s.connections_opened += c.connections_opened;
  s.connections_closed += c.connections_closed;
  s.connect_failed += c.connect_failed;
  s.connection_protocol_errors += c.connection_protocol_errors;
}

void add_flows(Record& sum, const Record& r) {
  add_flows(sum.counters, r.counters);
  for (std::size_t i = 0; i < kOutcomeCount; ++i) {
    sum.series[i].latency.merge(r.series[i].latency);
    sum.series[i].service_time.merge(r.series[i].service_time);
  }
  sum.send_lag.merge(r.send_lag);
  sum.errors.merge(r.errors);
}

Record merge_in_time(const Record& earlier, const Record& later) {
  Record r = earlier;
  r.first_seq = earlier.first();
  r.key.seq = later.key.seq;
  r.recovered = earlier.recovered || later.recovered;
  r.length = later.start + later.length - earlier.start;
  add_flows(r, later);
  r.counters.in_flight_end = later.counters.in_flight_end;
  r.gauges = later.gauges;
  r.gauges.cpu_ns += earlier.gauges.cpu_ns;
  r.gauges.rss_bytes = std::max(earlier.gauges.rss_bytes, later.gauges.rss_bytes);
  r.gauges.max_rate_per_s = std::max(earlier.gauges.max_rate_per_s, later.gauges.max_rate_per_s);
  return r;
}

bool mergeable_in_time(const Record& earlier, const Record& later) {
  return earlier.phase == later.phase && earlier.epoch == later.epoch &&
         earlier.drain == later.drain && earlier.guard == later.guard;
}

}  // namespace spate
