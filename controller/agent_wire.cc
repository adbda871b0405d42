#include "controller/agent_wire.h"

#include "proto/agent.pb.h"
#include "proto/wire.h"

namespace spate::controller {
namespace {

using WireIn = agent::v1::AgentMessage;
using WireOut = agent::v1::ControllerMessage;

AgentHello hello_from(const agent::v1::Hello& m) {
  AgentHello hello;
  hello.protocol = m.protocol();
  hello.version = m.version();
  hello.name = m.name();
  hello.incarnation = m.incarnation();
  hello.cpus = m.cpus();
  hello.max_descriptors = m.max_descriptors();
  hello.host = m.host();
  hello.running = m.running();
  return hello;
}

AgentPrepareReply prepare_reply_from(const agent::v1::PrepareReply& m) {
  AgentPrepareReply reply{m.run(), {}};
  for (const auto& p : m.problems())
    reply.problems.push_back({p.what(), p.text(), p.needed(), p.available()});
  return reply;
}

AgentArmed armed_from(const agent::v1::Armed& m) {
  AgentArmed armed{m.run(), m.connections_established(), m.connections_requested(), {}};
  for (const auto& e : m.connect_errors()) {
    ErrorClass error;
    error.code = e.code();
    error.text = e.text().substr(0, kMaxErrorText);
    error.count = e.count();
    armed.connect_errors.push_back(std::move(error));
    if (armed.connect_errors.size() == kMaxErrorClasses) break;
  }
  return armed;
}

AgentMessage record_from(const record::v1::Record& m) {
  auto record = wire::decode(m);
  if (!record) return AgentNonsense{"a record that cannot be read: " + record.error().message};
  return AgentRecord{std::move(*record), m.SerializeAsString()};
}

void fill(agent::v1::Prepare& out, const SendPrepare& m) {
  out.set_run(m.run);
  out.set_target_url(m.target_url);
  auto& call = *out.mutable_call();
  call.set_method(m.method);
  call.set_message_json(m.message_json);
  call.set_descriptor_set(m.descriptor_set);
  call.set_timeout_ns(m.timeout.count());
  for (const auto& [key, value] : m.metadata) {
    auto& metadata = *call.add_metadata();
    metadata.set_key(key);
    metadata.set_value(value);
  }
  out.set_threads(m.threads);
  out.set_interval_ns(m.interval.count());
  for (const EpochShare& e : m.epochs) {
    auto& epoch = *out.add_epochs();
    epoch.set_epoch(e.epoch);
    epoch.set_connections(e.connections);
    epoch.set_calls_per_loop(e.calls_per_loop);
    epoch.set_pause_ns(e.pause.count());
  }
  for (const PreparePhase& p : m.phases) {
    auto& phase = *out.add_phases();
    phase.set_index(p.index);
    phase.set_name(p.name);
    phase.set_measured(p.measured);
    phase.set_offset_ns(p.offset.count());
    phase.set_length_ns(p.length.count());
    phase.set_epoch(p.epoch);
  }
  out.set_seed(m.seed);
  out.set_first_connection(m.first_connection);
  out.set_drain_ns(m.drain.count());
}

struct ToWire {
  std::int64_t now_ns;
  WireOut out;

  void operator()(const SendWelcome& m) {
    out.mutable_welcome()->set_name(m.name);
    out.mutable_welcome()->set_heartbeat_ms(
        static_cast<std::uint32_t>(m.heartbeat / std::chrono::milliseconds(1)));
  }
  void operator()(const SendRejected& m) { out.mutable_rejected()->set_reason(m.reason); }
  void operator()(const SendHeartbeatReply& m) {
    auto& reply = *out.mutable_heartbeat_reply();
    reply.set_t1_agent_ns(m.t1_agent_ns);
    reply.set_t2_controller_ns(m.t2_controller_ns);
    reply.set_t3_controller_ns(now_ns);
  }
  void operator()(const SendPrepare& m) { fill(*out.mutable_prepare(), m); }
  void operator()(const SendStart& m) {
    out.mutable_start()->set_run(m.run);
    out.mutable_start()->set_at_controller_ns(m.at_controller_ns);
  }
  void operator()(const SendRecordAck& m) {
    out.mutable_record_ack()->set_run(m.run);
    out.mutable_record_ack()->set_incarnation(m.incarnation);
    out.mutable_record_ack()->set_seq(m.seq);
  }
  void operator()(const SendStop& m) {
    out.mutable_stop()->set_run(m.run);
    out.mutable_stop()->set_drain_ns(m.drain.count());
    out.mutable_stop()->set_reason(m.reason);
  }
};

}  // namespace

AgentMessage from_wire(const WireIn& message) {
  switch (message.body_case()) {
    case WireIn::kHello:
      return hello_from(message.hello());
    case WireIn::kHeartbeat:
      return AgentHeartbeat{message.heartbeat().t1_agent_ns(), message.heartbeat().offset_ns(),
                            message.heartbeat().offset_bound_ns(), 0};
    case WireIn::kPrepareReply:
      return prepare_reply_from(message.prepare_reply());
    case WireIn::kArmed:
      return armed_from(message.armed());
    case WireIn::kStarted:
      return AgentStarted{message.started().run(), message.started().at_controller_ns(),
                          message.started().offset_bound_ns()};
    case WireIn::kRecord:
      return record_from(message.record());
    case WireIn::kFinished:
      return AgentFinished{message.finished().run(), message.finished().last_seq(),
                           message.finished().reason()};
    case WireIn::BODY_NOT_SET:
      break;
  }
  return AgentNonsense{"a message of a kind that this controller does not know"};
}

WireOut to_wire(const ControllerMessage& message, std::int64_t now_ns) {
  ToWire visitor{now_ns, {}};
  std::visit(visitor, message);
  return std::move(visitor.out);
}

}  // namespace spate::controller
