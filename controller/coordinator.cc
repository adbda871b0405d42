#include "controller/coordinator.h"

#include <algorithm>

#include "controller/orders.h"

// Order of the three files: here construction, step, time, store and target; what agents say is in
// coordinator_agents.cc, what operators ask in coordinator_operators.cc.

namespace spate::controller {

using Severity = RunEvent::Severity;

Coordinator::Coordinator(Config config, Restored restored, Instant now)
    : config_(std::move(config)),
      made_at_(now),
      cluster_(std::move(restored.cluster)),
      term_(restored.term),
      alive_due_(now) {
  for (Restored::Closed& closed : restored.closed) {
    closed_runs_.add(closed.run, std::move(closed.agents), {});
    for (const Mark& mark : closed.marks) closed_runs_.restore(mark);
  }
  const std::int64_t away_ms =
      restored.alive_wall_ms == 0 ? 0 : config_.wall_ms - restored.alive_wall_ms;
  for (Restored::Run& run : restored.runs) {
    if (!config_.adopts) {
      close_as_crashed(run, "the controller ended during the run");
    } else if (!run.info.start_boot_ns) {
      close_as_crashed(run, "the controller restarted before the start");
    } else {
      adopt(std::move(run), away_ms, now);
    }
  }
}

std::vector<Action> Coordinator::step(Event event, Instant now) {
  if (!has_exited_) {
    std::visit([&](auto& one) { on(one, now); }, event);
    close_finished(now);
  }
  return std::exchange(actions_, {});
}

// Runs that an earlier process left.

void Coordinator::adopt(Restored::Run restored, std::int64_t away_ms, Instant now) {
  Run::Adopted adopted;
  adopted.info = std::move(restored.info);
  adopted.descriptor_set = std::move(restored.descriptor_set);
  adopted.marks = restored.marks;
  adopted.boot_id = config_.boot_id;
  adopted.is_start_known = adopted.info.boot_id == config_.boot_id;
  adopted.start = adopted.is_start_known ? from_ns(*adopted.info.start_boot_ns)
                                         : now - elapsed_by_wall(adopted.info, restored.covered_to);
  const std::string id = adopted.info.id;
  auto run = std::make_unique<LiveRun>(LiveRun::Outside{registry_, actions_, next_barrier_},
                                       std::move(restored), std::move(adopted), now);
  const std::string text = "controller restarted away_s=" + std::to_string(away_ms / 1000) +
                           " term=" + std::to_string(term_);
  run->log(Severity::warning, text, now);
  log(Severity::warning, text + " run=" + id);
  live_.emplace(id, std::move(run));
}

// A guess, if this machine was rebooted: its wall clock may have been stepped meanwhile. What
// agents have reported of has passed.
Duration Coordinator::elapsed_by_wall(const RunInfo& info,
                                      const std::map<std::string, Duration>& covered_to) const {
  Duration elapsed = std::chrono::milliseconds(config_.wall_ms - info.started_wall_ms);
  for (const auto& [agent, covered] : covered_to) elapsed = std::max(elapsed, covered);
  return std::max(elapsed, Duration{});
}

void Coordinator::close_as_crashed(Restored::Run& run, const std::string& reason) {
  RunInfo& info = run.info;
  info.state = RunState::finished;
  info.end = RunEnd::crashed;
  info.end_reason = reason;
  for (const auto& [agent, covered] : run.covered_to)
    info.length = std::clamp(covered, info.length, info.plan.length());
  run.aggregate->update(info);
  const Summary summary = run.aggregate->summary();
  actions_.emplace_back(action::Write{store_op::PutEvent{
      info.id,
      {run.aggregate->end().count(), Severity::error, "run crashed cause=\"" + reason + "\""}}});
  actions_.emplace_back(action::Write{store_op::PutRun{
      info, {run.duplicates, std::string(name(summary.verdict)), run.finished_requests}}});
  closed_runs_.add(info.id, holders_of(info), {});
  for (const Mark& mark : run.marks) closed_runs_.restore(mark);
  log(Severity::warning, "run closed as crashed run=" + info.id + " cause=\"" + reason + "\"");
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
    const AgentEntry* agent = registry_.find_id(closed_runs_.owner(mark.run, mark.agent));
    if (agent == nullptr) agent = registry_.find(mark.agent);  // of an old store
    if (agent != nullptr && agent->stream)
      send(*agent->stream, SendRecordAck{mark.run, mark.incarnation, mark.seq});
  }
}

void Coordinator::on(event::BarrierPassed& e, Instant now) {
  for (const auto& [id, run] : live_) run->barrier_passed(e.barrier, now);
  end_watchers(true, e.barrier, now);
}

void Coordinator::on(event::StoreInTrouble& e, Instant now) {
  store_trouble_ = e.why;
  log(Severity::error, "store trouble cause=\"" + e.why + "\"");
  // A warning to the runs: what agents keep until it is over is not lost.
  log_in_runs(Severity::warning, e.why, now);
  unstorable_at_ = now + kUnstorableAfter;
}

void Coordinator::on(event::StoreNote& e, Instant now) {
  log(e.severity, "store cause=\"" + e.text + "\"");
  log_in_runs(e.severity, e.text, now);
}

void Coordinator::on(event::StoreRecovered&, Instant now) {
  store_trouble_.clear();
  unstorable_at_.reset();
  log(Severity::info, "the store can be written again");
  log_in_runs(Severity::info, "the store can be written again", now);
}

void Coordinator::on(event::StoreMeasured& e, Instant now) {
  space_.add(e.space, now);
  const auto space = space_.left();
  if (!space) return;
  for (const auto& [id, run] : live_) {
    if (!run->run().start()) continue;
    const Duration elapsed = now - *run->run().start();
    const Duration foreseen = elapsed < kGrowthSettles ? kSpaceForeseenEarly : kSpaceForeseen;
    const Duration remaining = run->run().info().plan.length() - elapsed;
    if (space->left >= std::min(remaining, foreseen)) continue;
    if (!told_of_space_.insert(id).second) continue;
    const std::string text = "store is filling: " + space_.text() +
                             "; free some space: when it is full, agents keep their records";
    log(Severity::warning, text);
    run->log(Severity::warning, text, now);
  }
}

void Coordinator::on(event::StoreTakenOver& e, Instant) {
  superseded(e.term, "another controller on this store");
}

std::string Coordinator::unstorable(const std::string& what, const std::string& hint) const {
  return "the controller cannot store a " + what + ": " + store_trouble_ + "; then try again" +
         hint;
}

// The target.

void Coordinator::on(event::Sampled& e, Instant now) {
  const auto it = live_.find(e.run);
  if (it != live_.end()) it->second->sampled(std::move(e), now);
}

// Time.

void Coordinator::on(event::Tick& e, Instant now) {
  if (const Duration step = registry_.wall_clock(e.wall_clock_offset_ns); step != Duration{}) {
    const std::string text = "clock stepped controller by=" + shown_step(step);
    log(Severity::warning, text);
    log_in_runs(Severity::warning, text, now);
  }
  for (const Registry::Lost& lost : registry_.tick(now)) {
    // A stream that is still there says hello again when it comes back to life.
    const AgentEntry* agent = registry_.find(lost.name);
    if (agent != nullptr && agent->stream) close(*agent->stream, "no heartbeat");
    lose(lost.id, lost.incarnation, lost.cause, now);
  }
  for (const auto& [stream, since] : silent_streams_) {
    if (now - since >= kHelloDeadline) close(stream, "no hello");
  }
  if (unstorable_at_ && now >= *unstorable_at_) {
    for (const auto& [id, run] : live_)
      run->refuse_changes(unstorable("change", kStopNeedsNoStore), now);
    unstorable_at_.reset();
  }
  for (const auto& [id, run] : live_) run->tick(now);
  agents_changed(now);
  end_watchers(false, 0, now);
  if (!live_.empty() && now >= alive_due_) {
    alive_due_ = now + kAliveEvery;
    actions_.emplace_back(action::Write{store_op::PutAlive{wall_ms(now)}});
  }
}

// Runs that wait look again. One of them may take agents that the next would have wanted.
void Coordinator::agents_changed(Instant now) {
  close_finished(now);
  for (const auto& [id, run] : live_) {
    if (run->run().stage() != RunStage::waiting) continue;
    run_input::Agents agents;
    for (const AgentEntry& agent : registry_.agents()) {
      if (agent.state != AgentState::online || !agent.stream) continue;
      agents.online.push_back({agent.name, agent.hello.incarnation, busy_with(agent), agent.id});
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
    if (!info.agents.empty()) closed_runs_.add(info.id, holders_of(info), run.ledger());
    if (!run.watchers().empty()) {
      actions_.emplace_back(action::Barrier{next_barrier_});
      endings_.push_back(
          {next_barrier_++, now + kFinalCommitDeadline, {run.watchers(), run.end()}});
    }
    told_of_space_.erase(it->first);
    it = live_.erase(it);
  }
}

void Coordinator::end_watchers(bool all_committed, std::uint64_t barrier, Instant now) {
  std::erase_if(endings_, [&](Ending& ending) {
    const bool is_due = all_committed ? ending.barrier <= barrier : now >= ending.deadline;
    if (is_due) actions_.emplace_back(std::move(ending.show));
    return is_due;
  });
}

// Runs go on under their agents' leases; the next process takes them over. One that has not been
// started yet is given up: nobody but its client, who is told, knows of it.
void Coordinator::on(event::ShutDown&, Instant now) {
  for (const auto& [id, run] : live_) {
    if (!run->run().start()) run->step(run_input::Stop{false, "the controller was shut down"}, now);
  }
  close_finished(now);
  for (Ending& ending : std::exchange(endings_, {})) actions_.emplace_back(std::move(ending.show));
  if (!live_.empty()) {
    actions_.emplace_back(action::Write{store_op::PutAlive{wall_ms(now)}});
    log(Severity::info, "runs go on without the controller count=" + std::to_string(live_.size()));
  }
  log(Severity::info, "controller shuts down");
  actions_.emplace_back(action::Exit{0, "the controller is shutting down"});
  has_exited_ = true;
}

void Coordinator::superseded(std::uint64_t term, const std::string& by) {
  const std::string text =
      "term " + std::to_string(term_) + " superseded by " + std::to_string(term) + " on " + by;
  log(Severity::error, text +
                           ": another controller has taken over this store's runs; this one, "
                           "which has an older copy, ends");
  actions_.emplace_back(action::Exit{kExitSuperseded, text});
  has_exited_ = true;
}

// Helpers.

std::int64_t Coordinator::wall_ms(Instant now) const {
  return config_.wall_ms + (now - made_at_) / std::chrono::milliseconds(1);
}

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
