#include "agent/record_sum.h"

namespace spate::agent {

void add_flows(Record& sum, const Record& r) {
  Counters& s = sum.counters;
  const Counters& c = r.counters;
  s.scheduled += c.scheduled;
  s.sent += c.sent;
  s.missed_in_flight_limit += c.missed_in_flight_limit;
  s.missed_overload += c.missed_overload;
  s.missed_paused += c.missed_paused;
  s.bytes_sent += c.bytes_sent;
  s.bytes_received += c.bytes_received;
  s.connections_opened += c.connections_opened;
  s.connections_closed += c.connections_closed;
  s.connect_failed += c.connect_failed;
  s.connection_protocol_errors += c.connection_protocol_errors;
  for (std::size_t i = 0; i < kOutcomeCount; ++i) {
    sum.series[i].latency.merge(r.series[i].latency);
    sum.series[i].service_time.merge(r.series[i].service_time);
  }
  sum.send_lag.merge(r.send_lag);
  sum.errors.merge(r.errors);
}

}  // namespace spate::agent
