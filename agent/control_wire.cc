#include "agent/control_wire.h"

#include "proto/agent.pb.h"
#include "proto/timeline_wire.h"
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
  h.set_agent_id(m.agent_id);
  h.set_nonce(m.nonce);
  h.set_cluster(m.cluster);
  h.set_term(m.term);
  h.set_epoch(m.epoch);
  h.set_committed(m.committed);
  h.set_run_start_agent_ns(m.run_start ? to_ns(*m.run_start) : 0);
  for (const Account& account : m.accounts) {
    v1::Account& a = *h.add_accounts();
    a.set_run(account.run);
    a.set_incarnation(account.incarnation);
    a.set_last_seq(account.last_seq);
    a.set_cause(account.cause);
    a.set_waiting(account.waiting);
  }
}

void put(const Heartbeat& m, v1::AgentMessage& out) {
  v1::Heartbeat& h = *out.mutable_heartbeat();
  h.set_t1_agent_ns(to_ns(m.sent));
  h.set_offset_ns(m.offset.count());
  h.set_offset_bound_ns(m.bound.count());
  h.set_wall_clock_offset_ns(m.wall_clock_offset.count());
  h.set_trouble(m.trouble);
  h.set_certain(m.certain);
}

void put(const Problem& m, v1::Problem& out) {
  out.set_what(m.what);
  out.set_text(m.text);
  out.set_needed(m.needed);
  out.set_available(m.available);
}

void put(const PrepareReply& m, v1::AgentMessage& out) {
  v1::PrepareReply& r = *out.mutable_prepare_reply();
  r.set_run(m.run);
  for (const Problem& p : m.problems) put(p, *r.add_problems());
  r.set_max_rate_per_s(m.max_rate_per_s);
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

void put(const EpochReply& m, v1::AgentMessage& out) {
  v1::EpochReply& r = *out.mutable_epoch_reply();
  r.set_run(m.run);
  r.set_epoch(m.epoch);
  for (const Problem& p : m.problems) put(p, *r.add_problems());
}

void put(const EpochApplied& m, v1::AgentMessage& out) {
  v1::EpochApplied& a = *out.mutable_epoch_applied();
  a.set_run(m.run);
  a.set_epoch(m.epoch);
  a.set_at_offset_ns(m.at.count());
}

Result<ControllerMessage> prepare_from(const v1::Prepare& m) {
  Result<ShareTimeline> timeline = wire::decode(m.timeline());
  if (!timeline) return timeline.error();
  Prepare p;
  p.run = m.run();
  p.timeline = *std::move(timeline);
  p.descriptor_set = m.descriptor_set();
  p.interval = Duration(m.interval_ns());
  p.seed = m.seed();
  p.first_connection = m.first_connection();
  if (m.has_drain_ns()) p.drain = Duration(m.drain_ns());
  if (m.on_controller_loss() == v1::ON_CONTROLLER_LOSS_DRAIN)
    p.on_controller_loss = OnControllerLoss::drain;
  if (m.on_controller_loss() == v1::ON_CONTROLLER_LOSS_STOP)
    p.on_controller_loss = OnControllerLoss::stop;
  p.lease = Duration(m.lease_ns());
  return ControllerMessage(std::move(p));
}

Result<ControllerMessage> epoch_prepare_from(const v1::EpochPrepare& m) {
  Result<ShareTimeline> timeline = wire::decode(m.timeline());
  if (!timeline) return timeline.error();
  return ControllerMessage(
      EpochPrepare{m.run(), m.epoch(), Duration(m.from_offset_ns()), *std::move(timeline)});
}

EpochCommit epoch_commit_from(const v1::EpochCommit& m) {
  EpochCommit commit{m.run(), m.epoch(), std::nullopt};
  if (m.has_hold_from_ns()) commit.hold_from = Duration(m.hold_from_ns());
  return commit;
}

Result<ControllerMessage> message_from(const v1::ControllerMessage& message, Instant received) {
  switch (message.body_case()) {
    case v1::ControllerMessage::kWelcome:
      return Welcome{message.welcome().name(),
                     std::chrono::milliseconds(message.welcome().heartbeat_ms()),
                     message.welcome().cluster()};
    case v1::ControllerMessage::kRejected:
      return Rejected{message.rejected().reason()};
    case v1::ControllerMessage::kHeartbeatReply: {
      const v1::HeartbeatReply& r = message.heartbeat_reply();
      return HeartbeatReply{from_ns(r.t1_agent_ns()),
                            controller_instant(r.t2_controller_ns()),
                            controller_instant(r.t3_controller_ns()),
                            received,
                            r.lease().run(),
                            Duration(r.lease().length_ns())};
    }
    case v1::ControllerMessage::kPrepare:
      return prepare_from(message.prepare());
    case v1::ControllerMessage::kEpochPrepare:
      return epoch_prepare_from(message.epoch_prepare());
    case v1::ControllerMessage::kEpochCommit:
      return epoch_commit_from(message.epoch_commit());
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

}  // namespace

v1::AgentMessage to_wire(const AgentMessage& message) {
  v1::AgentMessage out;
  std::visit([&out](const auto& m) { put(m, out); }, message);
  return out;
}

Result<FromController> from_wire(const v1::ControllerMessage& message, Instant received) {
  Result<ControllerMessage> body = message_from(message, received);
  if (!body) return body.error();
  return FromController{message.term(), *std::move(body)};
}

}  // namespace spate::agent
