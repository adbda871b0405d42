#include "agent/control_wire.h"

#include "proto/agent.pb.h"
#include "proto/wire.h"

namespace spate::agent {

namespace {

std::int64_t wire_ns(ControllerInstant t) { return t.time_since_epoch().count(); }
ControllerInstant controller_instant(std::int64_t ns) { return ControllerInstant(Duration(ns)); }

// ErrorClass has its wire form in proto/wire.cc, as a part of a record; there is no reason to have
// two.
void put_errors(const ErrorTally& errors, v1::Armed& out) {
  Record carrier;
  carrier.errors = errors;
  record::v1::Record encoded = wire::encode(carrier);
  out.mutable_connect_errors()->Swap(encoded.mutable_errors());
}

void put(const Hello& m, v1::AgentMessage& out) {
  v1::Hello& h = *out.mutable_hello();
  h.set_protocol(m.protocol);
  h.set_version(m.version);
  h.set_name(m.name);
  h.set_incarnation(m.incarnation);
  h.set_cpus(m.cpus);
  h.set_max_descriptors(m.max_descriptors);
  h.set_host(m.host);
  h.set_running(m.running);
}

void put(const Heartbeat& m, v1::AgentMessage& out) {
  v1::Heartbeat& h = *out.mutable_heartbeat();
  h.set_t1_agent_ns(to_ns(m.sent));
  h.set_offset_ns(m.offset.count());
  h.set_offset_bound_ns(m.bound.count());
}

void put(const PrepareReply& m, v1::AgentMessage& out) {
  v1::PrepareReply& r = *out.mutable_prepare_reply();
  r.set_run(m.run);
  for (const Problem& p : m.problems) {
    v1::Problem& w = *r.add_problems();
    w.set_what(p.what);
    w.set_text(p.text);
    w.set_needed(p.needed);
    w.set_available(p.available);
  }
}

void put(const Armed& m, v1::AgentMessage& out) {
  v1::Armed& a = *out.mutable_armed();
  a.set_run(m.run);
  a.set_connections_established(m.established);
  a.set_connections_requested(m.requested);
  put_errors(m.errors, a);
}

void put(const Started& m, v1::AgentMessage& out) {
  v1::Started& s = *out.mutable_started();
  s.set_run(m.run);
  s.set_at_controller_ns(wire_ns(m.at));
  s.set_offset_bound_ns(m.bound.count());
}

void put(const Record& m, v1::AgentMessage& out) { *out.mutable_record() = wire::encode(m); }

void put(const Finished& m, v1::AgentMessage& out) {
  v1::Finished& f = *out.mutable_finished();
  f.set_run(m.run);
  f.set_last_seq(m.last_seq);
  f.set_reason(m.reason);
}

Prepare prepare_from(const v1::Prepare& m) {
  Prepare p;
  p.run = m.run();
  p.target_url = m.target_url();
  p.method = m.call().method();
  p.message_json = m.call().message_json();
  p.descriptor_set = m.call().descriptor_set();
  p.timeout = Duration(m.call().timeout_ns());
  for (const v1::Metadata& d : m.call().metadata()) p.metadata.emplace_back(d.key(), d.value());
  p.threads = m.threads();
  p.interval = Duration(m.interval_ns());
  for (const v1::EpochShare& e : m.epochs())
    p.epochs.push_back({e.epoch(), e.connections(), e.calls_per_loop(), Duration(e.pause_ns())});
  for (const v1::Phase& f : m.phases())
    p.phases.push_back({f.index(), Duration(f.offset_ns()), Duration(f.length_ns()), f.epoch()});
  p.seed = m.seed();
  p.first_connection = m.first_connection();
  if (m.has_drain_ns()) p.drain = Duration(m.drain_ns());
  return p;
}

}  // namespace

v1::AgentMessage to_wire(const AgentMessage& message) {
  v1::AgentMessage out;
  std::visit([&out](const auto& m) { put(m, out); }, message);
  return out;
}

Result<ControllerMessage> from_wire(const v1::ControllerMessage& message, Instant received) {
  switch (message.body_case()) {
    case v1::ControllerMessage::kWelcome:
      return Welcome{message.welcome().name(),
                     std::chrono::milliseconds(message.welcome().heartbeat_ms())};
    case v1::ControllerMessage::kRejected:
      return Rejected{message.rejected().reason()};
    case v1::ControllerMessage::kHeartbeatReply: {
      const v1::HeartbeatReply& r = message.heartbeat_reply();
      return HeartbeatReply{from_ns(r.t1_agent_ns()), controller_instant(r.t2_controller_ns()),
                            controller_instant(r.t3_controller_ns()), received};
    }
    case v1::ControllerMessage::kPrepare:
      return prepare_from(message.prepare());
    case v1::ControllerMessage::kStart:
      return Start{message.start().run(), controller_instant(message.start().at_controller_ns())};
    case v1::ControllerMessage::kRecordAck:
      return RecordAck{message.record_ack().run(), message.record_ack().incarnation(),
                       message.record_ack().seq()};
    case v1::ControllerMessage::kStop:
      return Stop{message.stop().run(), Duration(message.stop().drain_ns()),
                  message.stop().reason()};
    case v1::ControllerMessage::BODY_NOT_SET:
      break;
  }
  return invalid("a message of the controller that this agent's version does not know");
}

}  // namespace spate::agent
