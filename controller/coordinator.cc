#include "controller/coordinator.h"

#include <algorithm>

#include "controller/orders.h"

// Order of the three files: here construction, step, time, store and target; what agents say is in
// coordinator_agents.cc, what operators ask in coordinator_operators.cc.

namespace spate::controller {

using Severity = RunEvent::Severity;

Coordinator::Coordinator(Config config, const Restored& restored) : config_(std::move(config)) {
  for (const Restored::Closed& closed : restored.closed) {
    closed_runs_.add(closed.run, {});
    for (const Mark& mark : closed.marks) closed_runs_.restore(mark);
    if (closed.is_news) log(Severity::warning, "run closed as crashed run=" + closed.run);
  }
}

std::vector<Action> Coordinator::step(Event event, Instant now) {
  std::visit([&](auto& one) { on(one, now); }, event);
  close_finished(now);
  return std::exchange(actions_, {});
}

const LiveRun* Coordinator::live_run(const std::string& run) const {
  const auto it = live_.find(run);
  return it == live_.end() ? nullptr : it->second.get();
}

// The store.

void Coordinator::on(event::Committed& e, Instant now) {
  for (const Mark& mark : e.marks) {
    const auto it = live_.find(mark.run);
    if (it != live_.end()) {
      it->second->committed(mark, now);
      continue;
    }
    closed_runs_.committed(mark);
    const AgentEntry* agent = registry_.find(mark.agent);
    if (agent != nullptr && agent->stream)
      send(*agent->stream, SendRecordAck{mark.run, mark.incarnation, mark.seq});
  }
}

void Coordinator::on(event::BarrierPassed& e, Instant now) { end_watchers(true, e.barrier, now); }

void Coordinator::on(event::StoreInTrouble& e, Instant now) {
  log(Severity::error, "store trouble cause=\"" + e.why + "\"");
  log_in_runs(Severity::error, e.why, now);
}

void Coordinator::on(event::StoreRecovered&, Instant now) {
  log(Severity::info, "the store can be written again");
  log_in_runs(Severity::info, "the store can be written again", now);
}

// The target.

void Coordinator::on(event::Sampled& e, Instant now) {
  const auto it = live_.find(e.run);
  if (it != live_.end()) it->second->sampled(std::move(e), now);
}

// Time.

void Coordinator::on(event::Tick&, Instant now) {
  for (const Registry::Lost& lost : registry_.tick(now)) {
    // A stream that is still there says hello again when it comes back to life.
    const AgentEntry* agent = registry_.find(lost.name);
    if (agent != nullptr && agent->stream) close(*agent->stream, "no heartbeat");
    lose(lost.name, lost.incarnation, lost.cause, now);
  }
  for (const auto& [stream, since] : silent_streams_) {
    if (now - since >= kHelloDeadline) close(stream, "no hello");
  }
  for (const auto& [id, run] : live_) run->tick(now);
  agents_changed(now);
  end_watchers(false, 0, now);
}

// Runs that wait look again. One of them may take agents that the next would have wanted.
void Coordinator::agents_changed(Instant now) {
  close_finished(now);
  for (const auto& [id, run] : live_) {
    if (run->run().stage() != RunStage::waiting) continue;
    run_input::Agents agents;
    for (const AgentEntry& agent : registry_.agents()) {
      if (agent.state != AgentState::online || !agent.stream) continue;
      agents.online.push_back({agent.name, agent.hello.incarnation, busy_with(agent)});
    }
    run->step(agents, now);
  }
}

// The agents of runs that have ended are free again; watchers are told when the end is stored, so
// that what they ask next finds it.
void Coordinator::close_finished(Instant now) {
  for (auto it = live_.begin(); it != live_.end();) {
    LiveRun& run = *it->second;
    if (!run.is_finished()) {
      ++it;
      continue;
    }
    const RunInfo& info = run.run().info();
    log(Severity::info, "run ended run=" + info.id + " end=" + std::string(name(info.end)) +
                            " reason=\"" + info.end_reason + "\"");
    if (!info.agents.empty()) closed_runs_.add(info.id, run.ledger());
    if (!run.watchers().empty()) {
      actions_.emplace_back(action::Barrier{next_barrier_});
      endings_.push_back({next_barrier_++, now + kFinalCommitDeadline, run.watchers(), run.end()});
    }
    it = live_.erase(it);
  }
  if (is_shutting_down_ && live_.empty() && endings_.empty() && !std::exchange(has_exited_, true))
    actions_.emplace_back(action::Exit{0, "the controller is shutting down"});
}

void Coordinator::end_watchers(bool all_committed, std::uint64_t barrier, Instant now) {
  std::erase_if(endings_, [&](Ending& ending) {
    const bool is_due = all_committed ? ending.barrier <= barrier : now >= ending.deadline;
    if (is_due) actions_.emplace_back(action::Show{ending.watchers, std::move(ending.end)});
    return is_due;
  });
}

void Coordinator::on(event::ShutDown&, Instant now) {
  if (std::exchange(is_shutting_down_, true)) return;
  log(Severity::info, "controller shuts down live_runs=" + std::to_string(live_.size()));
  for (const auto& [id, run] : live_)
    run->step(run_input::Stop{false, "the controller was shut down"}, now);
}

// Helpers.

void Coordinator::send(StreamId stream, ControllerMessage message) {
  actions_.emplace_back(action::Send{stream, std::move(message)});
}

void Coordinator::close(StreamId stream, const std::string& reason) {
  actions_.emplace_back(action::CloseStream{stream, reason});
}

void Coordinator::log(Severity severity, std::string text) {
  actions_.emplace_back(action::Log{severity, std::move(text)});
}

void Coordinator::log_in_runs(Severity severity, const std::string& text, Instant now) {
  for (const auto& [id, run] : live_) run->log(severity, text, now);
}

}  // namespace spate::controller
