#include "controller/coordinator.h"

// What agents say: streams, then one function per message, in the order of agent_events.h.

namespace spate::controller {

using Severity = RunEvent::Severity;

void Coordinator::on(event::StreamOpened& e, Instant now) { silent_streams_[e.stream] = now; }

void Coordinator::on(event::StreamClosed& e, Instant now) {
  silent_streams_.erase(e.stream);
  const AgentEntry* agent = registry_.find(e.stream);
  if (agent == nullptr) return;
  log(Severity::info, "agent stream broke agent=" + agent->name);
  registry_.stream_broke(e.stream, now);
}

void Coordinator::on(event::FromAgent& e, Instant now) {
  if (auto* hello = std::get_if<AgentHello>(&e.message)) {
    said_hello(e.stream, *hello, now);
    return;
  }
  const AgentEntry* agent = registry_.find(e.stream);
  if (agent == nullptr) {
    close(e.stream, "the first message must be a hello");
    return;
  }
  registry_.seen(e.stream, now);
  const Speaker who{e.stream, agent->name, agent->hello.incarnation};
  std::visit([&](auto& m) { said(who, m, now); }, e.message);
}

void Coordinator::said_hello(StreamId stream, const AgentHello& hello, Instant now) {
  silent_streams_.erase(stream);
  if (registry_.find(stream) != nullptr) {
    close(stream, "a second hello on one stream");
    return;
  }
  const Registry::Admission admission = registry_.hello(stream, hello, now);
  if (!admission.accepted) {
    log(Severity::warning, "agent refused agent=" + hello.name + " peer=" + hello.peer +
                               " cause=\"" + admission.refusal + "\"");
    send(stream, SendRejected{admission.refusal});
    close(stream, admission.refusal);
    return;
  }
  log(Severity::info, std::string("agent ") + (admission.is_back ? "back" : "joined") +
                          " agent=" + admission.name + " host=" + hello.host +
                          " version=" + hello.version + " cpus=" + std::to_string(hello.cpus));
  if (admission.replaced)
    close(*admission.replaced, "replaced by a newer stream of the same agent");
  send(stream, SendWelcome{admission.name, kHeartbeatInterval});
  if (admission.restarted) lose(admission.name, *admission.restarted, "it was restarted", now);
  resume(stream, admission.name, hello, now);
  agents_changed(now);
}

// An agent that says it still has a run learns where we are with it.
void Coordinator::resume(StreamId stream, const std::string& agent, const AgentHello& hello,
                         Instant now) {
  for (LiveRun* run : live_runs_of(agent, hello.incarnation)) {
    const bool has_run = run->id() == hello.running;
    if (has_run) run->acknowledge(agent, hello.incarnation);
    run->step(run_input::Back{agent, has_run}, now);
    if (has_run) return;
  }
  if (hello.running.empty()) return;
  send(stream, SendRecordAck{hello.running, hello.incarnation,
                             closed_runs_.committed_mark(hello.running, agent, hello.incarnation)});
  send(stream, SendStop{hello.running, Duration{}, "the run has ended for this controller"});
  log(Severity::warning,
      "agent told to stop agent=" + agent + " run=" + hello.running + " cause=\"not live here\"");
}

void Coordinator::said(const Speaker& who, AgentHeartbeat& m, Instant now) {
  registry_.heartbeat(who.stream, m.offset_ns, m.offset_bound_ns, now);
  send(who.stream, SendHeartbeatReply{m.t1_agent_ns, m.t2_controller_ns});
}

void Coordinator::said(const Speaker& who, AgentPrepareReply& m, Instant now) {
  if (LiveRun* run = live_run_of(m.run, who))
    run->step(run_input::PrepareReply{who.name, std::move(m.problems)}, now);
}

void Coordinator::said(const Speaker& who, AgentArmed& m, Instant now) {
  if (LiveRun* run = live_run_of(m.run, who)) run->step(run_input::Armed{who.name, m}, now);
}

void Coordinator::said(const Speaker& who, AgentStarted& m, Instant now) {
  if (LiveRun* run = live_run_of(m.run, who))
    run->step(run_input::Started{who.name, m.at_controller_ns, m.offset_bound_ns}, now);
}

void Coordinator::said(const Speaker& who, AgentFinished& m, Instant now) {
  if (LiveRun* run = live_run_of(m.run, who))
    run->step(run_input::Finished{who.name, m.last_seq, m.reason}, now);
}

void Coordinator::said(const Speaker& who, AgentRecord& m, Instant now) {
  const RecordKey& key = m.record.key;
  if (key.agent != who.name || key.incarnation != who.incarnation) {
    close(who.stream, "a record in the name of another agent");
    return;
  }
  if (LiveRun* run = live_run_of(key.run, who)) {
    run->take(who.name, std::move(m), now);
  } else {
    take_late(who, m);
  }
}

// For a run that has ended: stored as well, so that its report is complete.
void Coordinator::take_late(const Speaker& who, AgentRecord& m) {
  const RecordKey key = m.record.key;
  const ClosedRuns::Ruling ruling = closed_runs_.offer(m);
  if (ruling == ClosedRuns::Ruling::store) {
    actions_.emplace_back(
        action::Write{store_op::PutRecord{std::move(m.record), std::move(m.bytes)}});
    return;
  }
  if (ruling == ClosedRuns::Ruling::unknown_run) {
    log(Severity::warning, "record dropped agent=" + who.name + " run=" + key.run + " seq=" +
                               std::to_string(key.seq) + " cause=\"this store has no such run\"");
  }
  const std::uint64_t mark = ruling == ClosedRuns::Ruling::unknown_run
                                 ? key.seq
                                 : closed_runs_.committed_mark(key.run, who.name, who.incarnation);
  send(who.stream, SendRecordAck{key.run, who.incarnation, mark});
}

void Coordinator::said(const Speaker& who, AgentNonsense& m, Instant now) {
  log(Severity::error, "agent cut off agent=" + who.name + " cause=\"" + m.reason + "\"");
  for (LiveRun* run : live_runs_of(who.name, who.incarnation)) {
    run->log(Severity::error,
             "agent sent nonsense agent=" + who.name + " cause=\"" + m.reason + "\"", now);
  }
  close(who.stream, m.reason);
}

void Coordinator::lose(const std::string& agent, std::uint64_t incarnation,
                       const std::string& cause, Instant now) {
  log(Severity::warning, "agent lost agent=" + agent + " cause=\"" + cause + "\"");
  for (LiveRun* run : live_runs_of(agent, incarnation))
    run->step(run_input::Lost{agent, cause}, now);
}

LiveRun* Coordinator::live_run_of(const std::string& run, const Speaker& who) {
  const auto it = live_.find(run);
  if (it == live_.end() || !it->second->run().has_member(who.name, who.incarnation)) return nullptr;
  return it->second.get();
}

std::vector<LiveRun*> Coordinator::live_runs_of(const std::string& agent,
                                                std::uint64_t incarnation) {
  std::vector<LiveRun*> runs;
  for (const auto& [id, run] : live_) {
    if (run->run().has_member(agent, incarnation)) runs.push_back(run.get());
  }
  return runs;
}

std::string Coordinator::busy_with(const AgentEntry& agent) const {
  for (const auto& [id, run] : live_) {
    if (run->run().has_member(agent.name, agent.hello.incarnation)) return id;
  }
  return "";
}

}  // namespace spate::controller
