#include "proto/wire.h"

#include <limits>

#include "common/text.h"
#include "proto/record.pb.h"

namespace spate::wire {
namespace {

namespace pb = record::v1;

// Times beyond this (73 years) are nonsense, and adding two of them must not overflow.
constexpr std::int64_t kMaxTimeNs = std::int64_t{1} << 61;
constexpr std::size_t kMaxNameBytes = 256;

// The wire's numbers are one higher: 0 is "unspecified".
pb::Outcome to_wire(Outcome o) { return static_cast<pb::Outcome>(index(o) + 1); }
bool from_wire(int value, Outcome& out) {
  if (value < 1 || value > static_cast<int>(kOutcomeCount)) return false;
  out = kOutcomes[static_cast<std::size_t>(value - 1)];
  return true;
}

// Names every pair of fields once, for both directions.
template <class Visitor>
void for_each_counter(Visitor&& visit) {
  visit(&Counters::scheduled, &pb::Counters::scheduled, &pb::Counters::set_scheduled);
  visit(&Counters::sent, &pb::Counters::sent, &pb::Counters::set_sent);
  visit(&Counters::missed_in_flight_limit, &pb::Counters::missed_in_flight_limit,
        &pb::Counters::set_missed_in_flight_limit);
  visit(&Counters::missed_overload, &pb::Counters::missed_overload,
        &pb::Counters::set_missed_overload);
  visit(&Counters::missed_paused, &pb::Counters::missed_paused, &pb::Counters::set_missed_paused);
  visit(&Counters::held, &pb::Counters::held, &pb::Counters::set_held);
  visit(&Counters::held_ns, &pb::Counters::held_ns, &pb::Counters::set_held_ns);
  visit(&Counters::in_flight_begin, &pb::Counters::in_flight_begin,
        &pb::Counters::set_in_flight_begin);
  visit(&Counters::in_flight_end, &pb::Counters::in_flight_end, &pb::Counters::set_in_flight_end);
  visit(&Counters::bytes_sent, &pb::Counters::bytes_sent, &pb::Counters::set_bytes_sent);
  visit(&Counters::bytes_received, &pb::Counters::bytes_received,
        &pb::Counters::set_bytes_received);
  visit(&Counters::connections_opened, &pb::Counters::connections_opened,
        &pb::Counters::set_connections_opened);
  visit(&Counters::connections_closed, &pb::Counters::connections_closed,
        &pb::Counters::set_connections_closed);
  visit(&Counters::connect_failed, &pb::Counters::connect_failed,
        &pb::Counters::set_connect_failed);
  visit(&Counters::connection_protocol_errors, &pb::Counters::connection_protocol_errors,
        &pb::Counters::set_connection_protocol_errors);
}

Error bad(const std::string& what) { return invalid("record: " + what); }

Result<void> decode_series(const pb::Record& message, Record& out) {
  int last = 0;
  for (const pb::OutcomeSeries& s : message.series()) {
    Outcome outcome{};
    if (!from_wire(s.outcome(), outcome))
      return bad("unknown outcome " + std::to_string(s.outcome()));
    if (s.outcome() <= last) return bad("series out of order");
    last = s.outcome();
    auto latency = Histogram::decode(s.latency());
    if (!latency)
      return latency.error().with_context("record: latency of " + std::string(name(outcome)));
    auto service_time = Histogram::decode(s.service_time());
    if (!service_time) {
      return service_time.error().with_context("record: service time of " +
                                               std::string(name(outcome)));
    }
    if (latency->empty() && service_time->empty())
      return bad("empty series of " + std::string(name(outcome)));
    out.series[index(outcome)] = {std::move(*latency), std::move(*service_time)};
  }
  auto send_lag = Histogram::decode(message.send_lag());
  if (!send_lag) return send_lag.error().with_context("record: send lag");
  out.send_lag = std::move(*send_lag);
  return {};
}

Result<void> decode_errors(const pb::Record& message, Record& out) {
  for (const pb::ErrorClass& e : message.errors()) {
    Outcome outcome{};
    if (!from_wire(e.outcome(), outcome))
      return bad("unknown outcome " + std::to_string(e.outcome()));
    if (e.count() == 0) return bad("error class with count 0");
    if (printable_utf8(e.text(), kMaxErrorText) != e.text())
      return bad("error text too long or not printable");
    const std::size_t before = out.errors.classes().size();
    out.errors.add(outcome, e.code(), e.text(), e.count());
    if (out.errors.classes().size() == before || out.errors.classes().back().text != e.text()) {
      return bad("error classes repeated or too many");
    }
  }
  return {};
}

bool is_name(const std::string& text) {
  return !text.empty() && text.size() <= kMaxNameBytes &&
         printable_utf8(text, kMaxNameBytes) == text;
}

}  // namespace

pb::Record encode(const Record& record) {
  pb::Record m;
  m.set_run(record.key.run);
  m.set_agent(record.key.agent);
  m.set_incarnation(record.key.incarnation);
  m.set_seq(record.key.seq);
  m.set_epoch(record.epoch);
  m.set_phase(record.phase);
  m.set_drain(record.drain);
  m.set_first_seq(record.first_seq);
  m.set_guard(record.guard);
  m.set_recovered(record.recovered);
  m.set_start_ns(record.start.count());
  m.set_length_ns(record.length.count());
  pb::Counters& counters = *m.mutable_counters();
  for_each_counter([&](auto field, auto, auto set) { (counters.*set)(record.counters.*field); });
  for (const Outcome o : kOutcomes) {
    const OutcomeSeries& s = record.series[index(o)];
    if (s.latency.empty() && s.service_time.empty()) continue;
    pb::OutcomeSeries& to = *m.add_series();
    to.set_outcome(to_wire(o));
    to.set_latency(s.latency.encode());
    to.set_service_time(s.service_time.encode());
  }
  m.set_send_lag(record.send_lag.encode());
  for (const ErrorClass& e : record.errors.classes()) {
    pb::ErrorClass& to = *m.add_errors();
    to.set_outcome(to_wire(e.outcome));
    to.set_code(e.code);
    to.set_text(e.text);
    to.set_count(e.count);
  }
  pb::Gauges& gauges = *m.mutable_gauges();
  gauges.set_connections_requested(record.gauges.connections_requested);
  gauges.set_connections_established(record.gauges.connections_established);
  gauges.set_rss_bytes(record.gauges.rss_bytes);
  gauges.set_cpu_ns(record.gauges.cpu_ns);
  gauges.set_max_rate_per_s(record.gauges.max_rate_per_s);
  return m;
}

Result<Record> decode(const pb::Record& m) {
  Record r;
  if (!is_name(m.run()) || !is_name(m.agent()))
    return bad("run or agent is missing or not printable");
  if (m.seq() == 0) return bad("seq is 0");
  if (m.first_seq() > m.seq()) return bad("first seq is after seq");
  if (!m.has_counters() || !m.has_gauges()) return bad("counters or gauges are missing");
  const auto is_time = [](std::int64_t ns) { return ns >= -kMaxTimeNs && ns <= kMaxTimeNs; };
  if (!is_time(m.start_ns()) || !is_time(m.length_ns())) return bad("start or length out of range");
  r.key = {m.run(), m.agent(), m.incarnation(), m.seq()};
  r.epoch = m.epoch();
  r.phase = m.phase();
  r.drain = m.drain();
  r.first_seq = m.first_seq();
  r.guard = m.guard();
  r.recovered = m.recovered();
  r.start = Duration(m.start_ns());
  r.length = Duration(m.length_ns());
  for_each_counter([&](auto field, auto get, auto) { r.counters.*field = (m.counters().*get)(); });
  if (auto done = decode_series(m, r); !done) return done.error();
  if (auto done = decode_errors(m, r); !done) return done.error();
  r.gauges = {m.gauges().connections_requested(), m.gauges().connections_established(),
              m.gauges().rss_bytes(), m.gauges().cpu_ns(), m.gauges().max_rate_per_s()};
  return r;
}

std::string to_bytes(const Record& record) { return encode(record).SerializeAsString(); }

Result<Record> from_bytes(std::string_view bytes) {
  pb::Record message;
  if (bytes.size() > static_cast<std::size_t>(std::numeric_limits<int>::max()) ||
      !message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return bad("not a serialized record");
  }
  return decode(message);
}

}  // namespace spate::wire
