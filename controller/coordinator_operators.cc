#include "controller/coordinator.h"
#include "controller/orders.h"

// What operators ask, in the order of the events.

namespace spate::controller {

using Severity = RunEvent::Severity;

void Coordinator::on(event::Submit& e, Instant now) {
  const auto refuse = [&](std::vector<std::string> problems, int exit_code) {
    actions_.emplace_back(action::AnswerSubmit{e.token, {"", std::move(problems), exit_code}});
  };
  if (live_.size() >= kMaxLiveRuns) {
    return refuse({std::to_string(live_.size()) + " runs are live, at most " +
                   std::to_string(kMaxLiveRuns) + " may be: stop one, or wait"},
                  1);
  }
  if (!store_trouble_.empty()) return refuse({unstorable("run", "")}, 1);
  OrderOrProblems made = make_order(e.order, e.wall_ms, e.random);
  const std::string& probe = made.order.plan.target.probe;
  if (made.problems.empty() && !probe.empty() && config_.may_probe) {
    if (const auto may = config_.may_probe(*parse_endpoint(probe)); !may)
      made.problems.push_back(may.error().message);
  }
  if (!made.problems.empty()) return refuse(std::move(made.problems), 2);
  made.order.boot_id = config_.boot_id;
  const std::string id = made.order.id;
  log(Severity::info, "run submitted run=" + id +
                          " agents=" + std::to_string(made.order.plan.agents) +
                          " connections=" + std::to_string(made.order.plan.max_connections()));
  live_.emplace(id, std::make_unique<LiveRun>(LiveRun::Outside{registry_, actions_, next_barrier_},
                                              made.order, e.token, now));
  agents_changed(now);
}

void Coordinator::on(event::Withdraw& e, Instant now) {
  for (const auto& [id, run] : live_) {
    if (run->submitter() == e.token) {
      run->step(run_input::Stop{true, "the client left before the start"}, now);
      return;
    }
  }
}

void Coordinator::on(event::Watch& e, Instant) {
  const auto it = e.run.empty() && !live_.empty() ? std::prev(live_.end()) : live_.find(e.run);
  if (it != live_.end()) {
    if (const auto watching = it->second->watch(e.watcher); !watching)
      actions_.emplace_back(action::RefuseWatcher{e.watcher, watching.error()});
  } else if (e.run.empty()) {
    actions_.emplace_back(action::RefuseWatcher{
        e.watcher, {ErrorCode::not_found, "no run is live: name one; `spate status` lists them"}});
  } else {
    actions_.emplace_back(action::ShowStoredEnd{e.watcher, e.run});
  }
}

void Coordinator::on(event::WatcherLeft& e, Instant) {
  for (const auto& [id, run] : live_) run->unwatch(e.watcher);
  for (Ending& ending : endings_) std::erase(ending.show.watchers, e.watcher);
}

void Coordinator::on(event::Stop& e, Instant now) {
  const auto answer = [&](Result<void> result) {
    actions_.emplace_back(action::AnswerStop{e.token, std::move(result)});
  };
  const auto it = live_.find(e.run);
  if (it == live_.end() && closed_runs_.has(e.run))
    return answer(Error{ErrorCode::conflict, "run " + e.run + " has ended already"});
  if (it == live_.end()) {
    return answer(
        Error{ErrorCode::not_found, "no run " + e.run + " is live: `spate status` lists them"});
  }
  it->second->step(
      run_input::Stop{e.at_once, e.at_once ? "stopped at once by the user" : "stopped by the user"},
      now);
  answer({});
}

void Coordinator::on(event::ChangeRun& e, Instant now) {
  const auto it = live_.find(e.request.run);
  if (it != live_.end() && store_trouble_.empty()) {
    it->second->change(e.request, e.token, e.wall_ms, now);
    return;
  }
  ChangeAnswer answer;
  if (it != live_.end()) {
    answer.exit_code = 1;
    answer.problems.push_back(unstorable("change", kStopNeedsNoStore));
  } else {
    answer.exit_code = 4;
    answer.problems.push_back(closed_runs_.has(e.request.run)
                                  ? "run " + e.request.run + " has ended already"
                                  : "no run " + e.request.run +
                                        " is live: `spate status` lists them");
  }
  actions_.emplace_back(action::AnswerChange{e.token, std::move(answer)});
}

void Coordinator::on(event::AskStatus& e, Instant now) {
  action::AnswerStatus answer{e.token, e.run, {}};
  const auto it = live_.find(e.run);
  if (it != live_.end()) {
    answer.live = it->second->status(now);
    answer.live->live->store_trouble = store_trouble_;
    answer.live->live->store_space = space_.text();
  }
  actions_.emplace_back(std::move(answer));
}

void Coordinator::on(event::ListRuns& e, Instant now) {
  std::vector<RunRow> live;
  for (const auto& [id, run] : live_) {
    if (e.run.empty() || id == e.run) live.push_back(run->row(now));
  }
  actions_.emplace_back(action::AnswerRuns{e.token, e.run, std::move(live)});
}

void Coordinator::on(event::ListAgents& e, Instant now) {
  std::vector<AgentRow> rows;
  for (const AgentEntry& a : registry_.agents()) {
    AgentRow row;
    row.name = a.name;
    row.host = a.hello.host;
    row.state = std::string(name(a.state));
    row.run = busy_with(a);
    row.version = a.hello.version;
    row.cpus = a.hello.cpus;
    row.last_seen_s = std::chrono::duration<double>(now - a.last_seen).count();
    row.clock_offset_ns = a.offset_ns;
    row.clock_bound_ns = a.offset_bound_ns;
    row.max_descriptors = a.hello.max_descriptors;
    row.note = a.held_because;
    if (const std::string note = note_of(a); row.note.empty() && !note.empty())
      row.note = "agent " + a.name + ": " + note;
    rows.push_back(std::move(row));
  }
  actions_.emplace_back(action::AnswerAgents{e.token, std::move(rows)});
}

}  // namespace spate::controller
