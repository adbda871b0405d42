#include "controller/run.h"

#include <algorithm>

#include "common/check.h"
#include "common/units.h"
#include "controller/run_shares.h"

// Order of the file: construction and step, then the inputs in the order of a run's life, then the
// transitions between stages, then small helpers. Agents that are lost and come back, and a
// controller that was restarted: run_losses.cc.

namespace spate::controller {
namespace {

using Severity = RunEvent::Severity;

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& n : names) text += (text.empty() ? "" : ", ") + n;
  return text.empty() ? "none" : text;
}

RunState state_of(RunStage stage) {
  switch (stage) {
    case RunStage::waiting:
    case RunStage::preparing:
    case RunStage::arming:
      return RunState::preparing;
    case RunStage::armed:
      return RunState::armed;
    case RunStage::running:
      return RunState::running;
    case RunStage::draining:
    case RunStage::collecting:
      return RunState::draining;
    case RunStage::finished:
      return RunState::finished;
  }
  return RunState::finished;
}

}  // namespace

std::string_view name(RunStage s) {
  switch (s) {
    case RunStage::waiting:
      return "waiting";
    case RunStage::preparing:
      return "preparing";
    case RunStage::arming:
      return "arming";
    case RunStage::armed:
      return "armed";
    case RunStage::running:
      return "running";
    case RunStage::draining:
      return "draining";
    case RunStage::collecting:
      return "collecting";
    case RunStage::finished:
      return "finished";
  }
  return "?";
}

Run::Run(Order order, Instant now)
    : descriptor_set_(std::move(order.descriptor_set)),
      created_(now),
      wait_(std::clamp(order.wait, Duration{}, kMaxWait)),
      deadline_(now + wait_) {
  info_.id = std::move(order.id);
  info_.plan = std::move(order.plan);
  info_.plan_text = std::move(order.plan_text);
  info_.overrides = std::move(order.overrides);
  info_.submitted_wall_ms = order.wall_ms;
  boot_id_ = std::move(order.boot_id);
}

std::vector<RunAction> Run::step(const RunInput& input, Instant now) {
  if (stage_ != RunStage::finished) {
    std::visit([&](const auto& one) { on(one, now); }, input);
  }
  return std::exchange(actions_, {});
}

// Before the start.

void Run::on(const run_input::Agents& input, Instant now) {
  if (stage_ != RunStage::waiting) return;
  online_ = input.online;
  std::vector<run_input::Agents::One> free;
  for (const auto& agent : online_) {
    if (agent.busy_with.empty()) free.push_back(agent);
  }
  if (free.size() < info_.plan.agents) return;
  free.resize(info_.plan.agents);
  prepare(free, now);
}

void Run::prepare(const std::vector<run_input::Agents::One>& chosen, Instant now) {
  plan_start(now);
  const Result<Timeline> timeline =
      planned_timeline(info_.plan, wall_ms(planned_start_.value_or(now)));
  if (!timeline) {
    refuse({timeline.error().message}, 2);
    return;
  }
  const std::vector<SendPrepare> parts =
      divide_run(info_.id, info_.plan, *timeline, descriptor_set_);
  members_.resize(chosen.size());
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    RunAgent agent;
    agent.name = chosen[i].name;
    agent.agent_id = chosen[i].id;
    agent.incarnation = chosen[i].incarnation;
    agent.connections_requested = parts[i].timeline.epochs.front().parameters.load.connections;
    info_.agents.push_back(agent);
  }
  set_stage(RunStage::preparing, now + kPrepareDeadline);
  log(Severity::info,
      "run prepared agents=" + std::to_string(chosen.size()) +
          " connections=" + std::to_string(info_.plan.max_connections()) +
          " per_agent=" + std::to_string(info_.plan.max_connections() / chosen.size()) +
          " epochs=" + std::to_string(timeline->epochs.size()));
  for (std::size_t i = 0; i < parts.size(); ++i) send(i, parts[i]);
}

void Run::on(const run_input::PrepareReply& input, Instant now) {
  const auto i = index_of(input.agent);
  if (i && members_[*i].is_rejoining) {
    note_cap(input);
    take_rejoining_reply(*i, input.problems, now);
  }
  if (!i || stage_ != RunStage::preparing || members_[*i].reply) return;
  note_cap(input);
  members_[*i].reply = input.problems;
  judge_replies(false, now);
}

void Run::note_cap(const run_input::PrepareReply& input) {
  if (input.max_rate_per_s <= 0 || !input.problems.empty()) return;
  log(Severity::info, "agent capped by its owner agent=" + input.agent +
                          " max_rate=" + format_rate(input.max_rate_per_s));
}

// Waits for every answer, so that the user learns of all problems at once.
void Run::judge_replies(bool is_late, Instant now) {
  std::vector<std::string> problems;
  bool is_fault_of_plan = false;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const std::string prefix = "agent " + info_.agents[i].name + ": ";
    if (!members_[i].reply && !is_late) return;
    if (!members_[i].reply) {
      problems.push_back(prefix + "no answer to its share within " +
                         format_duration(kPrepareDeadline) + ": look at its log, or restart it");
      continue;
    }
    for (const AgentProblem& problem : *members_[i].reply) {
      problems.push_back(prefix + describe(problem));
      is_fault_of_plan = is_fault_of_plan || problem.what != "lost";
    }
  }
  if (!problems.empty()) {
    refuse(std::move(problems), is_fault_of_plan ? 2 : 1);
    return;
  }
  std::uint64_t largest = 0;
  for (const RunAgent& agent : info_.agents)
    largest = std::max(largest, agent.connections_requested);
  const Duration for_connections =
      std::chrono::milliseconds(10) * static_cast<std::int64_t>(largest);
  was_accepted_ = true;
  actions_.emplace_back(run_action::Accepted{});
  set_stage(RunStage::arming, now + kArmDeadline + for_connections);
  arm_if_all_ready(now);
}

void Run::on(const run_input::Armed& input, Instant now) {
  const auto i = index_of(input.agent);
  if (!i) return;
  if (!members_[*i].is_rejoining && (members_[*i].is_armed || stage_ > RunStage::arming)) return;
  members_[*i].is_armed = true;
  info_.agents[*i].connections_established = input.armed.connections_established;
  if (input.armed.connections_established < input.armed.connections_requested) {
    std::string text = "connections missing agent=" + input.agent +
                       " established=" + std::to_string(input.armed.connections_established) +
                       " requested=" + std::to_string(input.armed.connections_requested);
    for (const ErrorClass& e : input.armed.connect_errors) {
      text += " cause=\"" + e.text + "\" count=" + std::to_string(e.count);
      if (text.size() > 500) break;
    }
    log(Severity::warning, std::move(text));
  }
  if (members_[*i].is_rejoining) {
    if (is_start_known_) send(*i, SendStart{info_.id, to_ns(*start_)});
  } else {
    arm_if_all_ready(now);
  }
}

bool Run::is_all_armed() const {
  return std::all_of(members_.begin(), members_.end(), [](const Member& m) { return m.is_armed; });
}

void Run::arm_if_all_ready(Instant now) {
  if (stage_ == RunStage::arming && !fixed_start_ && is_all_armed()) fix_start(now + kStartLead);
}

void Run::plan_start(Instant now) {
  if (!info_.plan.rotation || !info_.plan.rotation->goes_by_wall_clock()) return;
  const auto share = static_cast<std::int64_t>(info_.plan.max_connections() / info_.plan.agents);
  planned_start_ = now + kStartLead + kUsualArmTime + std::chrono::milliseconds(10) * share;
}

std::int64_t Run::wall_ms(Instant at) const {
  return info_.submitted_wall_ms + (at - created_) / std::chrono::milliseconds(1);
}

void Run::fix_start(Instant earliest) {
  const Instant planned = planned_start_.value_or(earliest);
  const Instant start = std::max(earliest, planned);
  if (start > planned)
    log(Severity::warning,
        "connections took longer than foreseen: the rotation's change-overs are "
        "late by_ms=" +
            std::to_string((start - planned) / std::chrono::milliseconds(1)));
  fixed_start_ = start;
  info_.start_boot_ns = to_ns(start);
  info_.boot_id = boot_id_;
  // The agents have the timeline that belongs to it.
  info_.started_wall_ms = wall_ms(planned_start_.value_or(start));
  actions_.emplace_back(run_action::StoreStart{});
}

void Run::on(const run_input::StartStored&, Instant now) {
  if (stage_ != RunStage::arming || !fixed_start_) return;
  const Duration lead = *fixed_start_ - now;
  if (lead < kMinStartLead) {
    // The store was slow, and will be as slow again.
    const Duration took = kStartLead - lead;
    return fix_start(now + took + kStartLead);
  }
  set_start(*fixed_start_);
  set_stage(RunStage::armed, *start_);
  log(Severity::info,
      "run armed starts_in_ms=" + std::to_string(lead / std::chrono::milliseconds(1)));
  for (std::size_t i = 0; i < members_.size(); ++i) send(i, SendStart{info_.id, to_ns(*start_)});
  actions_.emplace_back(run_action::StartSampling{});
}

// From the start to the end.

void Run::on(const run_input::Started& input, Instant) {
  const auto i = index_of(input.agent);
  if (!i || !start_) return;
  members_[*i].is_rejoining = false;
  // A process that came later started late, not askew.
  if (!info_.agents[*i].dead.empty()) return;
  RunAgent& agent = info_.agents[*i];
  // Said again on every stream; what was known best counts.
  if (agent.start_skew_ns && agent.clock_bound_ns <= input.offset_bound_ns) return;
  agent.start_skew_ns = input.at_controller_ns - to_ns(*start_);
  agent.clock_bound_ns = input.offset_bound_ns;
  actions_.emplace_back(run_action::Save{});
}

void Run::on(const run_input::Finished& input, Instant now) {
  const auto i = index_of(input.agent);
  if (!i || members_[*i].is_finished) return;
  if (stage_ < RunStage::armed) {
    if (stage_ == RunStage::preparing) {
      members_[*i].reply = {{"gave up", input.reason, 0, 0}};
      judge_replies(false, now);
    } else if (stage_ == RunStage::arming) {
      fail_before_start("agent " + input.agent + " gave up: " + input.reason);
    }
    return;
  }
  if (members_[*i].is_rejoining && input.last_seq == 0 && !is_over(now)) {
    // It gave up before it was started again, maybe an earlier time than this one.
    members_[*i].rejoin_at = now + kRejoinRetry;
    return;
  }
  if (input.last_seq < committed(*i)) {
    on(run_input::Lost{input.agent, "it does not know the run any more: " + input.reason}, now);
    return;
  }
  if (members_[*i].is_lost) take_back(*i);
  members_[*i].is_finished = true;
  members_[*i].is_rejoining = false;
  members_[*i].last_seq = input.last_seq;
  info_.agents[*i].last_seq = input.last_seq;
  members_[*i].is_completed = input.reason == "completed";
  const bool is_expected = members_[*i].is_completed || (input.reason == "stopped" && stop_);
  log(is_expected ? Severity::info : Severity::warning,
      "agent finished agent=" + input.agent + " records=" + std::to_string(input.last_seq) +
          (is_expected ? "" : " cause=\"" + input.reason + "\""));
  // Its records are all here, but the rest of its share was not done: as bad for the result as a
  // loss.
  if (!is_expected && stage_ == RunStage::running) {
    info_.agents[*i].lost_reason = "it left before the end, " + input.reason;
    info_.agents[*i].lost_at_ns = (now - *start_).count();
  }
  actions_.emplace_back(run_action::Save{});
  collect_if_all_finished(now);
}

void Run::on(const run_input::Committed& input, Instant now) {
  const auto i = index_of(input.agent);
  if (!i) return;
  std::uint64_t& mark = members_[*i].committed[input.incarnation];
  mark = std::max(mark, input.seq);
  close_if_complete(now, false);
}

void Run::on(const run_input::Stop& input, Instant now) {
  if (stage_ == RunStage::waiting || stage_ == RunStage::preparing) {
    refuse({"the run was ended before it started: " + input.reason}, 105);
    info_.end = RunEnd::stopped;
    info_.end_reason = input.reason;
    return;
  }
  if (stage_ == RunStage::arming || (stage_ == RunStage::armed && now < *start_)) {
    fail_before_start(input.reason);
    info_.end = RunEnd::stopped;
    return;
  }
  if ((stage_ == RunStage::running || stage_ == RunStage::armed) && !is_over(now)) {
    info_.end = RunEnd::stopped;
    info_.end_reason = input.reason;
    info_.length = std::clamp(now - *start_, Duration{}, info_.plan.length());
    log(Severity::warning, "run stopped cause=\"" + input.reason + "\"");
    set_stage(RunStage::draining, now + info_.plan.drain + kDrainGrace);
    if (!input.at_once) send_stop_to_unfinished(info_.plan.drain, input.reason);
  } else if (stage_ == RunStage::running) {
    drain(now);
  }
  if (input.at_once && stage_ == RunStage::draining && !is_cut_off_) cut_off(now);
}

void Run::on(const run_input::FinalSample& input, Instant now) {
  if (stage_ != RunStage::collecting || has_final_sample_) return;
  has_final_sample_ = true;
  if (!input.ok) log(Severity::warning, "final target sample missing");
  close_if_complete(now, false);
}

void Run::on(const run_input::Tick&, Instant now) {
  if (was_adopted_) tick_awaited(now);
  if (!is_start_known_) return;  // nothing can be due
  if (stage_ == RunStage::running) tick_rejoining(now);
  if (now < deadline_ && stage_ != RunStage::running) return;
  switch (stage_) {
    case RunStage::waiting: {
      std::vector<std::string> free, busy;
      for (const auto& agent : online_) {
        if (agent.busy_with.empty()) {
          free.push_back(agent.name);
        } else {
          busy.push_back(agent.name + " (in " + agent.busy_with + ")");
        }
      }
      std::string text = "the plan asks for " + std::to_string(info_.plan.agents) + " agents, " +
                         std::to_string(free.size()) + " are there after waiting " +
                         format_duration(wait_) + ": " + list(free);
      if (!busy.empty()) text += "; busy: " + list(busy);
      refuse({text + "; start more agents, wait longer (--wait), or lower agents.count"}, 1);
      return;
    }
    case RunStage::preparing:
      judge_replies(true, now);
      return;
    case RunStage::arming: {
      if (fixed_start_) {
        fail_before_start("its start could not be stored in time: see the store's trouble above");
        return;
      }
      std::vector<std::string> late;
      for (std::size_t i = 0; i < members_.size(); ++i) {
        if (!members_[i].is_armed) late.push_back(info_.agents[i].name);
      }
      fail_before_start("agents that did not open their connections in time: " + list(late));
      return;
    }
    case RunStage::armed:
      set_stage(RunStage::running, planned_end());
      if (!was_adopted_) log(Severity::info, "run started");
      [[fallthrough]];
    case RunStage::running:
      if (now >= planned_end()) drain(now);
      return;
    case RunStage::draining:
      if (!is_cut_off_) {
        log(Severity::warning, "drain overdue");
        cut_off(now);
        return;
      }
      for (std::size_t i = 0; i < members_.size(); ++i) {
        if (members_[i].is_finished || members_[i].is_lost) continue;
        on(run_input::Lost{info_.agents[i].name, "it did not finish within " +
                                                     format_duration(kCutOffGrace) +
                                                     " of being told to stop at once"},
           now);
      }
      collect_if_all_finished(now);
      return;
    case RunStage::collecting:
      close_if_complete(now, true);
      return;
    case RunStage::finished:
      return;
  }
}

// Transitions.

void Run::refuse(std::vector<std::string> problems, int exit_code) {
  send_stop_to_unfinished(Duration{}, "the run was refused");
  info_.end = RunEnd::failed;
  info_.end_reason = "refused: " + problems.front();
  if (problems.size() > 1)
    info_.end_reason += " (and " + std::to_string(problems.size() - 1) + " more)";
  stage_ = RunStage::finished;
  info_.state = RunState::finished;
  actions_.emplace_back(run_action::Save{});
  actions_.emplace_back(run_action::Refused{std::move(problems), exit_code});
  actions_.emplace_back(run_action::Close{});
}

void Run::fail_before_start(const std::string& reason) {
  CHECK(was_accepted_, "a run that was not accepted is refused");
  send_stop_to_unfinished(Duration{}, reason);
  info_.end = RunEnd::failed;
  info_.end_reason = reason;
  info_.started_wall_ms = 0;
  info_.start_boot_ns.reset();
  log(Severity::warning, "run failed cause=\"" + reason + "\"");
  set_stage(RunStage::finished, deadline_);
  actions_.emplace_back(run_action::Close{});
}

void Run::drain(Instant now) {
  info_.length = info_.plan.length();
  set_stage(RunStage::draining, now + info_.plan.drain + kDrainGrace);
  // No Stop: agents know the plan's end, and one that came early would cut it short.
  collect_if_all_finished(now);
}

void Run::cut_off(Instant now) {
  is_cut_off_ = true;
  deadline_ = now + kCutOffGrace;
  send_stop_to_unfinished(Duration{},
                          info_.end_reason.empty() ? "drain overdue" : info_.end_reason);
  collect_if_all_finished(now);
}

void Run::collect_if_all_finished(Instant now) {
  if (stage_ < RunStage::armed || stage_ >= RunStage::collecting) return;
  const bool may_come_back = stage_ != RunStage::draining;
  const bool all = std::all_of(members_.begin(), members_.end(), [&](const Member& m) {
    return m.is_finished || (m.is_lost && !may_come_back);
  });
  if (!all) return;
  const bool is_nobody_there =
      std::none_of(members_.begin(), members_.end(), [](const Member& m) { return m.is_finished; });
  if (is_nobody_there && info_.end == RunEnd::crashed) {
    if (now < answer_deadline()) return;
    info_.end_reason = "every agent was lost";
    if (!was_adopted_) info_.end = RunEnd::failed;
    set_stage(RunStage::finished, deadline_);
    actions_.emplace_back(run_action::Close{});
    return;
  }
  if (info_.length == Duration{}) {
    // Everybody left by themselves. "Completed" is the agents' word: their clocks need not agree
    // with ours to the millisecond.
    const bool is_complete = std::any_of(members_.begin(), members_.end(),
                                         [](const Member& m) { return m.is_completed; });
    info_.length = is_complete ? info_.plan.length()
                               : std::clamp(now - *start_, Duration{}, info_.plan.length());
    if (!is_complete && now < planned_end() && info_.end == RunEnd::crashed) {
      info_.end = RunEnd::failed;
      info_.end_reason = "every agent ended before the plan did";
    }
  }
  has_final_sample_ = info_.plan.target.probe.empty();
  set_stage(RunStage::collecting, now + kCollectDeadline);
  if (!has_final_sample_) actions_.emplace_back(run_action::TakeFinalSample{});
  close_if_complete(now, false);
}

void Run::close_if_complete(Instant now, bool is_late) {
  if (stage_ != RunStage::collecting) return;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].is_lost) continue;
    const std::vector<std::string> missing = missing_records(i);
    if (!missing.empty() && !is_late) return;
    for (const std::string& text : missing) log(Severity::error, text);
  }
  const bool sample_is_overdue = now >= deadline_ - kCollectDeadline + kFinalSampleDeadline;
  if (!has_final_sample_ && !is_late && !sample_is_overdue) return;
  if (info_.end == RunEnd::crashed) info_.end = RunEnd::completed;
  set_stage(RunStage::finished, deadline_);
  actions_.emplace_back(run_action::Close{});
}

// Helpers.

std::string Run::describe(const AgentProblem& problem) {
  std::string text = problem.what + ": " + problem.text;
  if (problem.needed != 0) {
    text += " (needed " + format_count(problem.needed) + ", there are " +
            format_count(problem.available) + ")";
  }
  return text;
}

const RunAgent* Run::member(const std::string& agent_id) const {
  const auto it = std::find_if(info_.agents.begin(), info_.agents.end(),
                               [&](const RunAgent& a) { return a.agent_id == agent_id; });
  return it == info_.agents.end() ? nullptr : &*it;
}

bool Run::has_member(const std::string& agent_id, std::uint64_t incarnation) const {
  const RunAgent* agent = member(agent_id);
  return agent != nullptr && agent->incarnation == incarnation;
}

bool Run::was_armed(const std::string& agent_id) const {
  const RunAgent* agent = member(agent_id);
  return agent != nullptr &&
         members_[static_cast<std::size_t>(agent - info_.agents.data())].is_armed;
}

std::optional<Duration> Run::lease_of(const std::string& agent_id,
                                      std::uint64_t incarnation) const {
  const RunAgent* agent = member(agent_id);
  const bool is_live = stage_ >= RunStage::armed && stage_ <= RunStage::draining;
  if (!is_live || agent == nullptr || agent->incarnation != incarnation) return std::nullopt;
  const auto i = static_cast<std::size_t>(agent - info_.agents.data());
  if (members_[i].is_finished || members_[i].is_lost) return std::nullopt;
  return lease_length(info_.plan);
}

void Run::set_start(Instant start) {
  start_ = start;
  if (!is_start_known_) return;  // a guess is not stored
  info_.start_boot_ns = to_ns(start);
  info_.boot_id = boot_id_;
}

// Until then agents may be at work under their leases without our hearing of it.
Instant Run::answer_deadline() const {
  const Instant end = planned_end() + info_.plan.drain + lease_length(info_.plan);
  return was_adopted_ ? std::max(end, adopted_at_ + kAdoptionWait) : end;
}

std::uint64_t Run::committed(std::size_t member) const {
  const auto& marks = members_[member].committed;
  const auto it = marks.find(info_.agents[member].incarnation);
  return it == marks.end() ? 0 : it->second;
}

std::size_t Run::live_agents() const {
  return static_cast<std::size_t>(
      std::count_if(members_.begin(), members_.end(), [](const Member& m) { return !m.is_lost; }));
}

void Run::send_stop_to_unfinished(Duration drain, const std::string& reason) {
  stop_ = SendStop{info_.id, drain, reason};
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const Member& member = members_[i];
    // Lost before the start and there again: it may be armed for a run that is over now.
    const bool has_refused = !member.is_back && member.reply && !member.reply->empty();
    if (member.is_finished || (member.is_lost && !member.is_back) || has_refused) continue;
    send(i, *stop_);
  }
}

void Run::set_stage(RunStage stage, Instant deadline) {
  stage_ = stage;
  deadline_ = deadline;
  info_.state = state_of(stage);
  actions_.emplace_back(run_action::Save{});
}

void Run::log(Severity severity, std::string text) {
  actions_.emplace_back(run_action::Log{severity, std::move(text)});
}

void Run::send(std::size_t member, ControllerMessage message) {
  actions_.emplace_back(run_action::Send{info_.agents[member].name, std::move(message)});
}

std::optional<std::size_t> Run::index_of(const std::string& agent) const {
  for (std::size_t i = 0; i < info_.agents.size(); ++i) {
    if (info_.agents[i].name == agent) return i;
  }
  return std::nullopt;
}

// Of all its processes; empty: everything that it had to say is stored.
std::vector<std::string> Run::missing_records(std::size_t i) const {
  const RunAgent& agent = info_.agents[i];
  const Member& member = members_[i];
  std::vector<std::string> missing;
  const auto compare = [&](std::uint64_t incarnation, std::uint64_t reported) {
    const auto it = member.committed.find(incarnation);
    const std::uint64_t stored = it == member.committed.end() ? 0 : it->second;
    if (stored >= reported) return;
    missing.push_back(
        "records missing agent=" + agent.name + " incarnation=" + std::to_string(incarnation) +
        " stored=" + std::to_string(stored) + " reported=" + std::to_string(reported));
  };
  for (const DeadIncarnation& dead : agent.dead)
    compare(dead.incarnation, dead.last_seq.value_or(0));
  compare(agent.incarnation, member.last_seq);
  return missing;
}

}  // namespace spate::controller
