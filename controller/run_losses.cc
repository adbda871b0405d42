#include <algorithm>

#include "common/units.h"
#include "controller/run.h"
#include "controller/run_shares.h"

// The part of a run that is about what breaks: agents that are lost, come back or are restarted,
// and the controller's own restart.

namespace spate::controller {

using Severity = RunEvent::Severity;

void Run::on(const run_input::Lost& input, Instant now) {
  const auto i = index_of(input.agent);
  if (!i || members_[*i].is_lost) return;
  if (stage_ == RunStage::preparing) {
    members_[*i].is_lost = true;
    members_[*i].reply = {{"lost", "was lost before it answered: " + input.cause, 0, 0}};
    judge_replies(false, now);
    return;
  }
  if (stage_ <= RunStage::armed) {
    members_[*i].is_lost = true;
    info_.agents[*i].lost_reason = input.cause;
    fail_before_start("agent " + input.agent + " was lost before the start: " + input.cause);
    return;
  }
  // Everything it had to say is here already: nothing is missing without it.
  if (members_[*i].is_finished && missing_records(*i).empty()) return;
  members_[*i].is_lost = true;
  members_[*i].lost_since = now;
  info_.agents[*i].lost_reason = input.cause;
  info_.agents[*i].lost_at_ns = (now - *start_).count();
  // A warning: the verdict has a rule of its own for lost agents, and this one may come back.
  log(Severity::warning, "agent lost agent=" + input.agent + " cause=\"" + input.cause +
                             "\" records_stored=" + std::to_string(committed(*i)));
  actions_.emplace_back(run_action::Save{});
  watch_for_mass_loss(now);
  collect_if_all_finished(now);
  close_if_complete(now, false);
}

void Run::on(const run_input::Back& input, Instant now) {
  const auto i = index_of(input.agent);
  if (!i) return;
  Member& member = members_[*i];
  member.is_awaited = false;
  if (stage_ < RunStage::armed) {
    member.is_back = member.is_lost;
    return;
  }
  if (!input.has_run && member.is_rejoining && !is_over(now)) {
    if (member.is_lost) take_back(*i);
    send_rest_of_share(*i, now);
    return;
  }
  if (!input.has_run) {
    // It has ended the run while it was away: asked to stop, it says again how many records there
    // were.
    if (!member.is_finished)
      send(*i, SendStop{info_.id, Duration{}, "the run is not live on this agent"});
    return;
  }
  log(Severity::info, "agent back agent=" + input.agent);
  if (member.is_lost) take_back(*i);
  // What was sent while it was away is said again; agents ignore what they know.
  if (is_cut_off_) deadline_ = std::max(deadline_, now + kCutOffGrace);
  if (is_start_known_ && is_start_owed(*i)) send(*i, SendStart{info_.id, to_ns(*start_)});
  if (stop_ && !member.is_finished) send(*i, *stop_);
}

void Run::take_back(std::size_t member) {
  members_[member].is_lost = false;
  members_[member].lost_since.reset();
  info_.agents[member].lost_reason.clear();
  info_.agents[member].lost_at_ns.reset();
  actions_.emplace_back(run_action::Save{});
}

// An agent that was restarted.

void Run::on(const run_input::Account& input, Instant now) {
  const auto i = index_of(input.agent);
  if (!i) return;
  for (DeadIncarnation& dead : info_.agents[*i].dead) {
    if (dead.incarnation != input.account.incarnation) continue;
    if (dead.last_seq == input.account.last_seq) return;
    dead.last_seq = input.account.last_seq;
    if (!input.account.cause.empty()) dead.cause = input.account.cause;
    actions_.emplace_back(run_action::Save{});
    close_if_complete(now, false);
    return;
  }
  if (input.account.incarnation >= info_.agents[*i].incarnation || stage_ < RunStage::armed) {
    members_[*i].accounts[input.account.incarnation] = input.account;
    return;
  }
  // It was given the share by a controller that did not live to store it.
  info_.agents[*i].dead.push_back(
      {input.account.incarnation, input.account.last_seq, input.account.cause});
  actions_.emplace_back(run_action::Save{});
}

void Run::on(const run_input::Restarted& input, Instant now) {
  const auto i = index_of(input.agent);
  if (!i || info_.agents[*i].incarnation == input.incarnation) return;
  if (stage_ < RunStage::armed || (stage_ == RunStage::armed && now < *start_)) {
    on(run_input::Lost{input.agent, "it was restarted"}, now);
    return;
  }
  const DeadIncarnation dead = last_death(*i);
  const std::string& name = info_.agents[*i].name;
  log(Severity::warning, "agent restarted agent=" + name + " cause=\"" + dead.cause + "\"");
  if (info_.agents[*i].dead.size() >= kMaxRestarts) {
    end_share(*i, dead.last_seq, "it was restarted too often, the last time: " + dead.cause, now);
  } else if (is_over(now) && !input.has_run) {
    // The process that is there now has the share, with nothing left of it to do.
    if (members_[*i].is_finished)
      bury_between(*i, input.incarnation);
    else
      bury(*i, input.incarnation);
    end_share(*i, 0, "it was restarted at the end of the run: " + dead.cause, now);
  } else {
    rejoin(*i, input, now);
  }
}

// What is known of the end of the process that had the share.
DeadIncarnation Run::last_death(std::size_t i) const {
  const Member& member = members_[i];
  DeadIncarnation dead{info_.agents[i].incarnation, committed(i), "it was restarted"};
  const auto known = member.accounts.find(dead.incarnation);
  if (known != member.accounts.end()) {
    dead.last_seq = std::max(known->second.last_seq, committed(i));
    if (!known->second.cause.empty()) dead.cause = known->second.cause;
  } else if (member.is_finished) {
    dead.last_seq = member.last_seq;
  }
  return dead;
}

// What it had to say is all there will be of its share.
void Run::end_share(std::size_t i, std::optional<std::uint64_t> last_seq, const std::string& reason,
                    Instant now) {
  Member& member = members_[i];
  RunAgent& agent = info_.agents[i];
  member.is_lost = false;
  member.is_rejoining = false;
  if (!member.is_finished) {
    member.is_finished = true;
    member.last_seq = last_seq.value_or(committed(i));
    agent.last_seq = member.last_seq;
    agent.lost_reason = reason;
    if (!agent.lost_at_ns) agent.lost_at_ns = (now - *start_).count();
  }
  actions_.emplace_back(run_action::Save{});
  collect_if_all_finished(now);
  close_if_complete(now, false);
}

// The process that had the share is no more; `incarnation` has it now.
void Run::bury(std::size_t i, std::uint64_t incarnation) {
  RunAgent& agent = info_.agents[i];
  // Also one without a record: what it did in its first interval is unknown if its machine lost
  // power.
  agent.dead.push_back(last_death(i));
  bury_between(i, incarnation);
  agent.incarnation = incarnation;
}

// Those were given the share by a controller that did not live to store it.
void Run::bury_between(std::size_t i, std::uint64_t incarnation) {
  RunAgent& agent = info_.agents[i];
  std::erase_if(members_[i].accounts, [&](const auto& one) {
    const auto& [number, account] = one;
    const bool is_between = number > agent.incarnation && number < incarnation;
    if (is_between) agent.dead.push_back({number, account.last_seq, account.cause});
    return is_between;
  });
}

void Run::rejoin(std::size_t i, const run_input::Restarted& input, Instant now) {
  RunAgent& agent = info_.agents[i];
  bury(i, input.incarnation);
  agent.last_seq.reset();
  Member fresh;
  fresh.committed = std::move(members_[i].committed);
  fresh.is_rejoining = true;
  fresh.is_armed = input.has_run;
  members_[i] = std::move(fresh);
  take_back(i);
  if (!input.has_run) send_rest_of_share(i, now);
}

void Run::send_rest_of_share(std::size_t i, Instant now) {
  members_[i].rejoin_at = now;
  if (!is_start_known_) return;  // what is left of it is not known either
  if (is_over(now))
    return end_share(i, 0, "it was restarted, and the run was over when it could begin again", now);
  const Result<Timeline> timeline = timeline_of(info_);
  if (!timeline) return;  // it was good when the run was prepared
  std::vector<SendPrepare> parts = divide_run(info_.id, info_.plan, *timeline, descriptor_set_);
  parts[i].timeline = share_of(*timeline, i, now - *start_);
  members_[i].rejoin_at.reset();
  send(i, std::move(parts[i]));
}

void Run::take_rejoining_reply(std::size_t i, const std::vector<AgentProblem>& problems,
                               Instant now) {
  RunAgent& agent = info_.agents[i];
  if (problems.empty()) return take_back(i);
  // What is in its way may go: it is asked again until the run is over.
  members_[i].rejoin_at = now + kRejoinRetry;
  const std::string reason =
      "it was restarted and cannot take up its share: " + describe(problems.front());
  if (agent.lost_reason == reason) return;
  agent.lost_reason = reason;
  if (!agent.lost_at_ns) agent.lost_at_ns = (now - *start_).count();
  log(Severity::warning,
      "agent cannot rejoin agent=" + agent.name + " cause=\"" + describe(problems.front()) + "\"");
  actions_.emplace_back(run_action::Save{});
}

void Run::tick_awaited(Instant now) {
  if (now < adopted_at_ + kAdoptionWait) return;
  if (!is_start_known_) {
    log(Severity::warning,
        "start guessed cause=\"no agent could tell when the run began by a clock that went on: "
        "it is taken from the wall clock\"");
    take_start(*start_, now);
  }
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (!std::exchange(members_[i].is_awaited, false)) continue;
    on(run_input::Lost{info_.agents[i].name, "it was not heard within " +
                                                 format_duration(kAdoptionWait) +
                                                 " of the controller's restart"},
       now);
  }
}

void Run::tick_rejoining(Instant now) {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].is_rejoining && members_[i].rejoin_at && now >= *members_[i].rejoin_at)
      send_rest_of_share(i, now);
  }
}

void Run::watch_for_mass_loss(Instant now) {
  if (is_mass_loss_known_ || members_.size() < 2) return;
  const auto lost = static_cast<std::size_t>(
      std::count_if(members_.begin(), members_.end(), [&](const Member& m) {
        return m.is_lost && m.lost_since && now - *m.lost_since <= kMassLossWindow;
      }));
  if (2 * lost <= members_.size()) return;
  is_mass_loss_known_ = true;
  log(Severity::warning, std::to_string(lost) + " of " + std::to_string(members_.size()) +
                             " agents were lost within " + format_duration(kMassLossWindow) +
                             ": this controller or its network is probably at fault");
}

// A run that outlived its controller.

Run::Run(Adopted adopted, Instant now)
    : info_(std::move(adopted.info)),
      descriptor_set_(std::move(adopted.descriptor_set)),
      created_(now),
      wait_{},
      boot_id_(std::move(adopted.boot_id)),
      adopted_at_(now),
      was_adopted_(true),
      is_start_known_(adopted.is_start_known),
      was_accepted_(true) {
  members_.resize(info_.agents.size());
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const RunAgent& agent = info_.agents[i];
    Member& member = members_[i];
    for (const Mark& mark : adopted.marks) {
      if (mark.agent == agent.name) member.committed[mark.incarnation] = mark.seq;
    }
    member.reply.emplace();
    member.is_finished = agent.last_seq.has_value();
    member.last_seq = agent.last_seq.value_or(0);
    member.is_completed = member.is_finished && agent.lost_reason.empty();
    member.is_lost = !member.is_finished && !agent.lost_reason.empty();
    member.is_rejoining = !member.is_finished && !agent.dead.empty() && committed(i) == 0;
    member.is_armed = !member.is_rejoining;
    member.is_awaited = !member.is_finished && !member.is_lost;
  }
  set_start(adopted.start);
  if (info_.state == RunState::draining) {
    set_stage(RunStage::draining, now + info_.plan.drain + kDrainGrace);
    if (info_.end == RunEnd::stopped)
      stop_ = SendStop{info_.id, info_.plan.drain, info_.end_reason};
  } else if (is_start_known_ && now < *start_) {
    set_stage(RunStage::armed, *start_);
  } else {
    set_stage(RunStage::running, planned_end());
  }
}

void Run::on(const run_input::StartKnown& input, Instant now) {
  if (!is_start_known_) take_start(input.start, now);
}

// Those who wait for it are told.
void Run::take_start(Instant start, Instant now) {
  is_start_known_ = true;
  set_start(start);
  if (stage_ == RunStage::running) set_stage(RunStage::running, planned_end());
  actions_.emplace_back(run_action::Save{});
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const Member& member = members_[i];
    if (member.is_finished || member.is_lost || is_over(now)) continue;
    if (is_start_owed(i)) send(i, SendStart{info_.id, to_ns(start)});
  }
}

// Ready, and not known to have heard when to begin. Agents ignore what they know.
bool Run::is_start_owed(std::size_t i) const {
  return members_[i].is_armed && (members_[i].is_rejoining || !info_.agents[i].start_skew_ns);
}

}  // namespace spate::controller
