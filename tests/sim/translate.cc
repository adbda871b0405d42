#include "tests/sim/translate.h"

#include <utility>

namespace spate::sim {
namespace {

namespace a = spate::agent;
namespace c = spate::controller;

std::vector<c::AgentProblem> problems_of(const std::vector<a::Problem>& from) {
  std::vector<c::AgentProblem> to;
  for (const a::Problem& p : from) to.push_back({p.what, p.text, p.needed, p.available});
  return to;
}

// What identifies a record's content: the controller only compares it.
std::string content_of(const Record& r) {
  std::string text;
  const auto add = [&text](std::uint64_t n) { text += std::to_string(n) + ' '; };
  for (const std::uint64_t n : {r.key.seq, r.first_seq, std::uint64_t{r.epoch},
                                std::uint64_t{r.phase}, r.counters.scheduled, r.counters.sent,
                                r.counters.in_flight_begin, r.counters.in_flight_end})
    add(n);
  add(static_cast<std::uint64_t>(r.start.count()));
  add(static_cast<std::uint64_t>(r.length.count()));
  for (const OutcomeSeries& s : r.series) {
    add(s.latency.count());
    add(static_cast<std::uint64_t>(s.latency.max()));
  }
  return text;
}

struct ToController {
  Instant received;
  const std::string& peer;

  c::AgentMessage operator()(a::Hello& m) const {
    c::AgentHello h;
    h.protocol = m.protocol;
    h.version = m.version;
    h.name = m.name;
    h.incarnation = m.incarnation;
    h.cpus = m.cpus;
    h.max_descriptors = m.max_descriptors;
    h.host = m.host;
    h.running = m.running;
    h.agent_id = m.agent_id;
    h.nonce = m.nonce;
    h.cluster = m.cluster;
    h.term = m.term;
    h.epoch = m.epoch;
    h.committed = m.committed;
    h.run_start_agent_ns = m.run_start ? to_ns(*m.run_start) : 0;
    for (const a::Account& one : m.accounts)
      h.accounts.push_back({one.run, one.incarnation, one.last_seq, one.cause, one.waiting});
    h.peer = peer;
    return h;
  }
  c::AgentMessage operator()(a::Heartbeat& m) const {
    return c::AgentHeartbeat{to_ns(m.sent), m.offset.count(), m.bound.count(), to_ns(received), 0,
                             m.trouble,     m.certain};
  }
  c::AgentMessage operator()(a::PrepareReply& m) const {
    return c::AgentPrepareReply{m.run, problems_of(m.problems), m.max_rate_per_s};
  }
  c::AgentMessage operator()(a::Armed& m) const {
    return c::AgentArmed{m.run, m.established, m.requested, m.errors.classes()};
  }
  c::AgentMessage operator()(a::Started& m) const {
    return c::AgentStarted{m.run, m.at.time_since_epoch().count(), m.bound.count()};
  }
  c::AgentMessage operator()(Record& m) const {
    std::string bytes = content_of(m);
    return c::AgentRecord{std::move(m), std::move(bytes)};
  }
  c::AgentMessage operator()(a::Finished& m) const {
    return c::AgentFinished{m.run, m.last_seq, m.reason};
  }
  c::AgentMessage operator()(a::EpochReply& m) const {
    return c::AgentEpochReply{m.run, m.epoch, problems_of(m.problems)};
  }
  c::AgentMessage operator()(a::EpochApplied& m) const {
    return c::AgentEpochApplied{m.run, m.epoch, m.at};
  }
};

struct ToAgent {
  Instant replied;
  Instant answered;

  static a::ControllerInstant at(std::int64_t ns) { return a::ControllerInstant(Duration(ns)); }

  a::ControllerMessage operator()(c::SendWelcome& m) const {
    return a::Welcome{m.name, m.heartbeat, m.cluster};
  }
  a::ControllerMessage operator()(c::SendRejected& m) const { return a::Rejected{m.reason}; }
  a::ControllerMessage operator()(c::SendHeartbeatReply& m) const {
    return a::HeartbeatReply{from_ns(m.t1_agent_ns),  at(m.t2_controller_ns),
                             at(to_ns(replied)),      answered,
                             std::move(m.leased_run), m.lease};
  }
  a::ControllerMessage operator()(c::SendPrepare& m) const {
    return a::Prepare{m.run,  std::move(m.timeline), m.descriptor_set, m.interval,
                      m.seed, m.first_connection,    m.drain,          m.on_controller_loss,
                      m.lease};
  }
  a::ControllerMessage operator()(c::SendStart& m) const {
    return a::Start{m.run, at(m.at_controller_ns)};
  }
  a::ControllerMessage operator()(c::SendRecordAck& m) const {
    return a::RecordAck{m.run, m.incarnation, m.seq};
  }
  a::ControllerMessage operator()(c::SendStop& m) const {
    return a::Stop{m.run, m.drain, m.reason};
  }
  a::ControllerMessage operator()(c::SendEpochPrepare& m) const {
    return a::EpochPrepare{m.run, m.epoch, m.from, std::move(m.timeline)};
  }
  a::ControllerMessage operator()(c::SendEpochCommit& m) const {
    return a::EpochCommit{m.run, m.epoch, m.hold_from};
  }
};

struct Describe {
  static std::string n(std::uint64_t value) { return std::to_string(value); }

  std::string operator()(const a::Hello& m) const {
    std::string text = "hello incarnation=" + n(m.incarnation) + " running=" + m.running +
                       " term=" + n(m.term) + " epoch=" + n(m.epoch);
    for (const a::Account& one : m.accounts)
      text += " account=" + n(one.incarnation) + ":" + n(one.last_seq);
    return text;
  }
  std::string operator()(const a::Heartbeat&) const { return ""; }
  std::string operator()(const a::PrepareReply& m) const {
    return "prepare-reply problems=" +
           (m.problems.empty() ? std::string("none") : m.problems.front().text);
  }
  std::string operator()(const a::Armed& m) const { return "armed " + n(m.established); }
  std::string operator()(const a::Started&) const { return "started"; }
  std::string operator()(const Record& m) const {
    return "record " + n(m.key.incarnation) + ":" + n(m.first()) + "-" + n(m.key.seq) +
           " epoch=" + n(m.epoch) + " sent=" + n(m.counters.sent) + (m.drain ? " drain" : "") +
           (m.recovered ? " recovered" : "");
  }
  std::string operator()(const a::Finished& m) const {
    return "finished last_seq=" + n(m.last_seq) + " reason=" + m.reason;
  }
  std::string operator()(const a::EpochReply& m) const {
    return "epoch-reply " + n(m.epoch) +
           " problems=" + (m.problems.empty() ? std::string("none") : m.problems.front().text);
  }
  std::string operator()(const a::EpochApplied& m) const { return "epoch-applied " + n(m.epoch); }

  std::string operator()(const c::SendWelcome& m) const { return "welcome " + m.name; }
  std::string operator()(const c::SendRejected& m) const { return "rejected " + m.reason; }
  std::string operator()(const c::SendHeartbeatReply&) const { return ""; }
  std::string operator()(const c::SendPrepare& m) const { return "prepare " + m.run; }
  std::string operator()(const c::SendStart&) const { return "start"; }
  std::string operator()(const c::SendRecordAck& m) const {
    return "ack " + n(m.incarnation) + ":" + n(m.seq);
  }
  std::string operator()(const c::SendStop& m) const { return "stop reason=" + m.reason; }
  std::string operator()(const c::SendEpochPrepare& m) const {
    return "epoch-prepare " + n(m.epoch) + " from=" + seconds(m.from);
  }
  std::string operator()(const c::SendEpochCommit& m) const { return "epoch-commit " + n(m.epoch); }
  static std::string seconds(Duration d) {
    return std::to_string(std::chrono::duration<double>(d).count());
  }
};

}  // namespace

c::AgentMessage to_controller(a::AgentMessage message, Instant received, const std::string& peer) {
  return std::visit(ToController{received, peer}, message);
}

a::ControllerMessage to_agent(c::ControllerMessage message, Instant replied, Instant answered) {
  return std::visit(ToAgent{replied, answered}, message);
}

std::string describe(const a::AgentMessage& message) { return std::visit(Describe{}, message); }
std::string describe(const c::ControllerMessage& message) {
  return std::visit(Describe{}, message);
}

}  // namespace spate::sim
