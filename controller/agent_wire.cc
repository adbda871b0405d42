#include "controller/agent_wire.h"

#include "proto/agent.pb.h"
#include "proto/timeline_wire.h"
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
  hello.agent_id = m.agent_id();
  hello.nonce = m.nonce();
  hello.cluster = m.cluster();
  hello.term = m.term();
  hello.epoch = m.epoch();
  hello.committed = m.committed();
  hello.run_start_agent_ns = m.run_start_agent_ns();
  for (const auto& a : m.accounts())
    hello.accounts.push_back({a.run(), a.incarnation(), a.last_seq(), a.cause(), a.waiting()});
  return hello;
}

std::vector<AgentProblem> problems_from(
    const google::protobuf::RepeatedPtrField<agent::v1::Problem>& from) {
  std::vector<AgentProblem> problems;
  for (const auto& p : from) problems.push_back({p.what(), p.text(), p.needed(), p.available()});
  return problems;
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

agent::v1::OnControllerLoss to_wire(OnControllerLoss policy) {
  switch (policy) {
    case OnControllerLoss::go_on:
      return agent::v1::ON_CONTROLLER_LOSS_CONTINUE;
    case OnControllerLoss::drain:
      return agent::v1::ON_CONTROLLER_LOSS_DRAIN;
    case OnControllerLoss::stop:
      return agent::v1::ON_CONTROLLER_LOSS_STOP;
  }
  return agent::v1::ON_CONTROLLER_LOSS_STOP;
}

void fill(agent::v1::Prepare& out, const SendPrepare& m) {
  out.set_run(m.run);
  wire::encode(m.timeline, *out.mutable_timeline());
  out.set_descriptor_set(m.descriptor_set);
  out.set_interval_ns(m.interval.count());
  out.set_seed(m.seed);
  out.set_first_connection(m.first_connection);
  out.set_drain_ns(m.drain.count());
  out.set_on_controller_loss(to_wire(m.on_controller_loss));
  out.set_lease_ns(m.lease.count());
}

struct ToWire {
  std::int64_t now_ns;
  WireOut out;

  void operator()(const SendWelcome& m) {
    out.mutable_welcome()->set_name(m.name);
    out.mutable_welcome()->set_heartbeat_ms(
        static_cast<std::uint32_t>(m.heartbeat / std::chrono::milliseconds(1)));
    out.mutable_welcome()->set_cluster(m.cluster);
  }
  void operator()(const SendRejected& m) { out.mutable_rejected()->set_reason(m.reason); }
  void operator()(const SendHeartbeatReply& m) {
    auto& reply = *out.mutable_heartbeat_reply();
    reply.set_t1_agent_ns(m.t1_agent_ns);
    reply.set_t2_controller_ns(m.t2_controller_ns);
    reply.set_t3_controller_ns(now_ns);
    if (m.leased_run.empty()) return;
    reply.mutable_lease()->set_run(m.leased_run);
    reply.mutable_lease()->set_length_ns(m.lease.count());
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
  void operator()(const SendEpochPrepare& m) {
    auto& prepare = *out.mutable_epoch_prepare();
    prepare.set_run(m.run);
    prepare.set_epoch(m.epoch);
    prepare.set_from_offset_ns(m.from.count());
    wire::encode(m.timeline, *prepare.mutable_timeline());
  }
  void operator()(const SendEpochCommit& m) {
    out.mutable_epoch_commit()->set_run(m.run);
    out.mutable_epoch_commit()->set_epoch(m.epoch);
    if (m.hold_from) out.mutable_epoch_commit()->set_hold_from_ns(m.hold_from->count());
  }
};

}  // namespace

AgentMessage from_wire(const WireIn& message) {
  switch (message.body_case()) {
    case WireIn::kHello:
      return hello_from(message.hello());
    case WireIn::kHeartbeat:
      return AgentHeartbeat{message.heartbeat().t1_agent_ns(),
                            message.heartbeat().offset_ns(),
                            message.heartbeat().offset_bound_ns(),
                            0,
                            message.heartbeat().wall_clock_offset_ns(),
                            message.heartbeat().trouble(),
                            message.heartbeat().certain()};
    case WireIn::kPrepareReply:
      return AgentPrepareReply{message.prepare_reply().run(),
                               problems_from(message.prepare_reply().problems()),
                               message.prepare_reply().max_rate_per_s()};
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
    case WireIn::kEpochReply: {
      AgentEpochReply reply{message.epoch_reply().run(), message.epoch_reply().epoch(), {}};
      reply.problems = problems_from(message.epoch_reply().problems());
      return reply;
    }
    case WireIn::kEpochApplied:
      return AgentEpochApplied{message.epoch_applied().run(), message.epoch_applied().epoch(),
                               Duration(message.epoch_applied().at_offset_ns())};
    case WireIn::BODY_NOT_SET:
      break;
  }
  return AgentNonsense{"a message of a kind that this controller does not know"};
}

WireOut to_wire(const ControllerMessage& message, std::uint64_t term, std::int64_t now_ns) {
  ToWire visitor{now_ns, {}};
  visitor.out.set_term(term);
  std::visit(visitor, message);
  return std::move(visitor.out);
}

}  // namespace spate::controller
