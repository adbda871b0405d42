#include "controller/change_book.h"

#include <algorithm>
#include <set>

#include "common/check.h"
#include "common/units.h"

// Order of the file: construction and step; what agents and the store say; a change from its order
// to its commit; bringing one agent up to date; what is shown; redistribution.

namespace spate::controller {
namespace {

using Severity = RunEvent::Severity;

constexpr std::size_t kNamesShown = 5;

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < kNamesShown; ++i)
    text += (text.empty() ? "" : ", ") + names[i];
  if (names.size() > kNamesShown)
    text += " and " + std::to_string(names.size() - kNamesShown) + " more";
  return text;
}

std::string by_whom(const Change& change) {
  return change.what + " by " + change.who + (change.reason.empty() ? "" : ": " + change.reason);
}

std::string describe(const AgentProblem& problem) {
  std::string text = problem.what + ": " + problem.text;
  if (problem.needed != 0) {
    text += " (needed " + format_count(problem.needed) + ", there are " +
            format_count(problem.available) + ")";
  }
  return text;
}

// The agents that the change is for.
std::vector<std::uint32_t> concerned(const Change& change, std::size_t agents) {
  std::set<std::uint32_t> some;
  bool is_all = change.absent.has_value();
  for (const Change::Part& part : change.parts) {
    some.insert(part.agents.begin(), part.agents.end());
    is_all = is_all || part.agents.empty();
  }
  for (std::uint32_t i = 0; is_all && i < agents; ++i) some.insert(i);
  return {some.begin(), some.end()};
}

ChangeAnswer refusal(std::string problem, int exit_code) {
  ChangeAnswer answer;
  answer.problems.push_back(std::move(problem));
  answer.exit_code = exit_code;
  return answer;
}

}  // namespace

ChangeBook::ChangeBook(Setup setup, Instant now)
    : setup_(std::move(setup)),
      timeline_(setup_.planned),
      accepted_(std::move(setup_.accepted)),
      leases_({setup_.agents.size(), setup_.start, setup_.lease, setup_.goes_on_after_lease}),
      members_(setup_.agents.size()) {
  leases_.add(timeline_);
  for (std::size_t count = 1; count <= accepted_.size(); ++count) {
    timeline_ = with_last_change(setup_.planned, timeline_, std::span(accepted_).first(count));
    leases_.add(timeline_);
  }
  next_epoch_ = timeline_.last_epoch() + 1;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (setup_.is_adopted) {
      members_[i].presence = Presence::away;
      leases_.assume(i, now);
    } else {
      leases_.begin(i, std::max(now, setup_.start));
    }
  }
  shown_epoch_ = epoch(now);
}

std::vector<ChangeAction> ChangeBook::step(const ChangeInput& input, Instant now) {
  std::visit([&](const auto& one) { on(one, now); }, input);
  judge(now);
  // First what is stored is told; the next change begins after it.
  for (std::size_t i = 0; i < members_.size(); ++i) pursue(i, now);
  untie(now);
  begin_next(now);
  settle();
  show_epoch(now);
  show_spread(now);
  return std::exchange(actions_, {});
}

// What agents and the store say.

void ChangeBook::on(const change_input::Reply& input, Instant) {
  Member& member = members_.at(input.agent);
  // Numbers are never given twice, so an answer to an earlier question is known as such.
  if (!member.asked || member.asked->epoch != input.epoch) return;
  if (!input.problems.empty() && !candidate_ && member.committed == latest()) {
    // Asked twice, it was told while it looked again: it has not taken it.
    leases_.lacks_all_after(input.agent, latest() - 1);
    member.committed = 0;
    member.asked.reset();
    return;
  }
  // One that was asked twice may find at the second look what it did not find at the first.
  if (!member.asked->reply || member.asked->reply->empty()) member.asked->reply = input.problems;
}

void ChangeBook::on(const change_input::Has& input, Instant) { confirm(input.agent, input.epoch); }

void ChangeBook::on(const change_input::Away& input, Instant) {
  Member& member = members_.at(input.agent);
  if (member.presence == Presence::here) member.presence = Presence::away;
  member.committed = 0;
}

void ChangeBook::on(const change_input::Back& input, Instant now) {
  Member& member = members_.at(input.agent);
  if (member.presence == Presence::finished) return;
  member.presence = Presence::here;
  // What was on its way when the stream broke may be lost: all it may lack is said again. But it
  // has said no if it has.
  const bool has_refused = member.asked && member.asked->reply && !member.asked->reply->empty();
  if (!has_refused) member.asked.reset();
  member.committed = 0;
  member.not_before = {};
  confirm(input.agent, input.epoch);
  // What it was told on another stream and does not have will not get there any more.
  if (input.committed) leases_.lacks_all_after(input.agent, version_of(*input.committed));
  leases_.learn(input.agent, input.epoch, now);
}

void ChangeBook::on(const change_input::Restarted& input, Instant) {
  Member& member = members_.at(input.agent);
  member = {};
  member.presence = Presence::away;
  member.committed = latest();
  leases_.restarted(input.agent);
}

void ChangeBook::on(const change_input::Lost& input, Instant) {
  Member& member = members_.at(input.agent);
  if (member.presence != Presence::finished) member.presence = Presence::lost;
  member.committed = 0;
}

void ChangeBook::on(const change_input::Finished& input, Instant) {
  members_.at(input.agent).presence = Presence::finished;
  members_[input.agent].asked.reset();
  leases_.release(input.agent);
}

std::size_t ChangeBook::version_of(std::uint32_t epoch) const {
  std::size_t version = latest();
  while (version > 0 && accepted_[version - 1].epoch > epoch) --version;
  return version;
}

// Epoch numbers only grow, so the number an agent works by names a change that it must have.
void ChangeBook::confirm(std::size_t agent, std::uint32_t epoch) {
  const std::size_t version = version_of(epoch);
  if (version <= leases_.sure(agent)) return;
  leases_.confirm(agent, version);
  members_[agent].refusal.clear();
}

void ChangeBook::on(const change_input::Tick&, Instant now) { redistribute(now); }

// An operator's order that is not on its way to the store is given up. One that is cannot be taken
// back: it is made when the store can be written again. The controller's own orders wait.
void ChangeBook::on(const change_input::Unstorable& input, Instant now) {
  std::deque<ChangeOrder> own;
  for (ChangeOrder& order : std::exchange(queue_, {})) {
    if (order.ticket == 0) {
      own.push_back(std::move(order));
    } else {
      answer(order, refusal(input.why, 1));
    }
  }
  queue_ = std::move(own);
  if (!candidate_ || candidate_->order.ticket == 0) return;
  if (!candidate_->is_storing) return refuse_candidate({input.why}, 1, now);
  ChangeAnswer undecided = refusal(input.why, 1);
  undecided.is_undecided = true;
  answer(candidate_->order, std::move(undecided));
  candidate_->order.ticket = 0;
}

void ChangeBook::on(const change_input::Ending&, Instant now) {
  is_ending_ = true;
  const std::string why = "the run is ending";
  if (candidate_ && !candidate_->is_storing) refuse_candidate({why}, 4, now);
  for (const ChangeOrder& order : std::exchange(queue_, {})) answer(order, refusal(why, 4));
}

// A change, from its order to its commit.

void ChangeBook::on(const change_input::Order& input, Instant now) {
  if (is_ending_) {
    answer(input.order, refusal("the run is ending", 4));
  } else if (queue_.size() >= kMaxQueuedChanges) {
    answer(input.order,
           refusal(std::to_string(queue_.size()) +
                       " changes of this run are waiting already: look at its status, try again",
                   1));
  } else if (input.order.at && *input.order.at < offset(now)) {
    answer(input.order,
           refusal("its time has passed: " + wall_time(setup_.start + *input.order.at) +
                       ", and it is " + wall_time(now) + " now",
                   2));
  } else {
    queue_.push_back(input.order);
  }
}

void ChangeBook::begin_next(Instant now) {
  while (!candidate_ && !queue_.empty() && !is_untying(now)) {
    ChangeOrder order = std::move(queue_.front());
    queue_.pop_front();
    if (begin(std::move(order), now)) judge(now);
  }
}

bool ChangeBook::begin(ChangeOrder order, Instant now) {
  const bool all_here = std::all_of(members_.begin(), members_.end(), [](const Member& m) {
    return m.presence == Presence::here || m.presence == Presence::finished;
  });
  const Duration soonest =
      std::max(offset(now) + kChangeLead + (all_here ? Duration{} : kAwayWait), last_soonest_);
  // An instant that passed while it was in the queue is moved, not refused.
  Duration at = order.at.value_or(soonest);
  if (at < offset(now)) at = soonest;
  at = std::max(at, Duration{});
  if (const auto why = objection(order, at, now)) {
    answer(order, *why);
    return false;
  }
  Candidate candidate;
  candidate.change = order.change;
  candidate.change.at = at;
  candidate.change.epoch = std::max(next_epoch_, timeline_.last_epoch() + 1);
  candidate.from_epoch = timeline_.epoch_at(at);
  candidate.begun = now;
  candidate.order = std::move(order);
  std::vector<Change> all = accepted_;
  all.push_back(candidate.change);
  candidate.timeline = with_last_change(setup_.planned, timeline_, all);
  next_epoch_ = candidate.timeline.last_epoch() + 1;
  candidate_ = std::move(candidate);
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].presence == Presence::here) ask(i, now);
  }
  return true;
}

std::optional<ChangeAnswer> ChangeBook::objection(const ChangeOrder& order, Duration at,
                                                  Instant now) const {
  const Segment& last = timeline_.segments.back();
  if (const Duration end = last.offset + last.length; at >= end) {
    return refusal("the run is over by then: it ends at " + wall_time(setup_.start + end) +
                       ", the change would be at " + wall_time(setup_.start + at),
                   2);
  }
  if (last.epoch == UINT32_MAX || timeline_.segments.size() >= kMaxSegments ||
      accepted_.size() >= kMaxChanges)
    return refusal("this run has been changed too often: start another one", 1);
  std::size_t oldest = latest();
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (!leases_.ended(i, now)) oldest = std::min(oldest, leases_.sure(i));
  }
  if (latest() - oldest + 1 >= kMaxVersions) {
    return refusal(std::to_string(latest() - oldest) +
                       " changes are not in effect on every agent yet: wait for them to be",
                   1);
  }
  if (!order.if_epoch) return std::nullopt;
  const std::uint32_t present = timeline_.epoch_at(offset(now));
  std::string why;
  if (*order.if_epoch != present) {
    why = "the run is in epoch " + std::to_string(present) + ", not in " +
          std::to_string(*order.if_epoch);
  }
  for (const Change& change : accepted_) {
    if (!why.empty() || change.at <= offset(now) || change.at > at) continue;
    why = "epoch " + std::to_string(change.epoch) + " is on its way since " +
          rfc3339(change.wall_ms) + ": " + by_whom(change);
  }
  if (why.empty()) return std::nullopt;
  ChangeAnswer answer = refusal("the epoch moved on: " + why, 4);
  answer.epoch = present;
  return answer;
}

void ChangeBook::judge(Instant now) {
  if (!candidate_ || candidate_->is_storing) return;
  std::vector<std::string> problems;
  bool waits_for_here = false;
  bool waits_for_away = false;
  std::size_t prepared = 0;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const Member& member = members_[i];
    const bool was_asked = member.asked && member.asked->epoch == candidate_->change.epoch;
    if (was_asked && member.asked->reply) {
      for (const AgentProblem& problem : *member.asked->reply)
        problems.push_back("agent " + setup_.agents[i] + ": " + describe(problem));
      ++prepared;
    } else if (member.presence == Presence::here) {
      waits_for_here = waits_for_here || now - candidate_->begun < kAnswerWait;
    } else if (member.presence == Presence::away) {
      waits_for_away = waits_for_away || now - candidate_->begun < kAwayWait;
    }
  }
  // All answers are awaited, so that the user learns of all problems at once.
  if (waits_for_here || (waits_for_away && problems.empty())) return;
  if (!problems.empty()) {
    refuse_candidate(std::move(problems), 2, now);
  } else if (prepared == 0) {
    refuse_candidate({"no agent of the run is there to take it"}, 1, now);
  } else {
    candidate_->is_storing = true;
    actions_.emplace_back(change_action::Store{candidate_->change});
  }
}

void ChangeBook::refuse_candidate(std::vector<std::string> problems, int exit_code, Instant now) {
  const Candidate candidate = *std::exchange(candidate_, std::nullopt);
  log(Severity::info, "change refused: " + by_whom(candidate.change) + ": " + problems.front());
  if (candidate.order.ticket == 0) redistribute_not_before_ = now + kRefusedRetry;
  ChangeAnswer answered;
  answered.problems = std::move(problems);
  answered.exit_code = exit_code;
  answer(candidate.order, std::move(answered));
}

void ChangeBook::on(const change_input::Stored& input, Instant now) {
  if (!candidate_ || !candidate_->is_storing || candidate_->change.epoch != input.epoch) return;
  Candidate stored = *std::exchange(candidate_, std::nullopt);
  ChangeAnswer accepted;
  accepted.epoch = stored.change.epoch;
  accepted.from_epoch = stored.from_epoch;
  accepted.at = stored.change.at;
  accepted.at_time = wall_time(setup_.start + stored.change.at);
  accepted.what = stored.change.what;
  accepted.guard = stored.change.guard;
  accepted.differences =
      differences(timeline_.epoch(stored.from_epoch), stored.timeline.epoch(stored.change.epoch),
                  concerned(stored.change, members_.size()));
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const Member& member = members_[i];
    if (member.asked && member.asked->epoch == input.epoch && member.asked->reply) {
      accepted.prepared.push_back(setup_.agents[i]);
    } else if (member.presence != Presence::finished) {
      accepted.away.push_back(setup_.agents[i]);
    }
  }
  if (stored.change.at - offset(now) > kAwayWait + kChangeLead) {
    log(Severity::info, "change accepted: epoch " + std::to_string(stored.change.epoch) +
                            " begins at " + wall_time(setup_.start + stored.change.at) + ": " +
                            by_whom(stored.change));
  }
  if (!stored.order.at) last_soonest_ = stored.change.at;
  timeline_ = std::move(stored.timeline);
  accepted_.push_back(std::move(stored.change));
  leases_.add(timeline_);
  answer(stored.order, std::move(accepted));
}

void ChangeBook::answer(const ChangeOrder& order, ChangeAnswer answer) {
  if (order.ticket != 0)
    actions_.emplace_back(change_action::Answer{order.ticket, std::move(answer)});
}

// Bringing one agent up to date.

void ChangeBook::pursue(std::size_t agent, Instant now) {
  Member& member = members_[agent];
  if (member.presence != Presence::here) return;
  if (candidate_) {
    // What it lacks of earlier changes is part of what it is asked now.
    if (candidate_->is_storing) return;
    const bool was_asked = member.asked && member.asked->epoch == candidate_->change.epoch;
    if (!was_asked || (!member.asked->reply && now - member.asked->at >= kChangeRetry))
      ask(agent, now);
    return;
  }
  if (leases_.sure(agent) == latest()) return;
  if (member.committed == latest()) {
    // It has been told; if nothing is heard of it, it is asked and told again.
    if (now < std::max(member.committed_at, last_missed(agent)) + kChangeRetry) return;
    member.committed = 0;
    member.asked.reset();
  }
  if (now < member.not_before) return;
  const bool was_asked = was_asked_for_latest(member);
  if (!was_asked || (!member.asked->reply && now - member.asked->at >= kChangeRetry)) {
    ask(agent, now);
  } else if (member.asked->reply && !member.asked->reply->empty()) {
    const std::string why = describe(member.asked->reply->front());
    if (member.refusal != why) {
      log(Severity::error, "agent " + setup_.agents[agent] + " cannot take epoch " +
                               std::to_string(accepted_.back().epoch) +
                               ", which others have: " + why);
    }
    member.refusal = why;
    member.asked.reset();
    member.not_before = now + kRefusedRetry;
  } else if (member.asked->reply && leases_.has_room(agent, first_missed(agent), now)) {
    commit(agent, std::nullopt, now);
  }
}

void ChangeBook::ask(std::size_t agent, Instant now) {
  Member& member = members_[agent];
  const Timeline& timeline = candidate_ ? candidate_->timeline : timeline_;
  Duration from = first_missed(agent);
  if (candidate_) from = std::min(from, candidate_->change.at);
  const std::uint32_t epoch =
      candidate_ ? candidate_->change.epoch : accepted_.at(latest() - 1).epoch;
  member.asked = Asked{epoch, now, std::nullopt};
  member.committed = 0;
  actions_.emplace_back(change_action::Send{
      agent, SendEpochPrepare{setup_.run, epoch, from, share_of(timeline, agent, from)}});
}

// Whoever is to do less is told always, whoever is to do more when the others leave room for it.
void ChangeBook::commit(std::size_t agent, std::optional<Duration> full_at, Instant now) {
  Member& member = members_[agent];
  member.committed = latest();
  member.committed_at = now;
  leases_.tell(agent, full_at);
  SendEpochCommit commit{setup_.run, member.asked->epoch, std::nullopt};
  if (full_at) commit.hold_from = *full_at - kLeaseMargin;
  actions_.emplace_back(change_action::Send{agent, std::move(commit)});
}

// When each is to do less now and more later, each waits for what the others are to do less. They
// are told all the same, to hold from when on there is no room yet; where that is soon for each of
// them, one at a time.
void ChangeBook::untie(Instant now) {
  if (candidate_) return;
  struct Waiting {
    std::size_t agent;
    std::optional<Duration> full_at;
  };
  std::vector<Waiting> all;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const Member& member = members_[i];
    if (member.presence == Presence::finished || leases_.sure(i) == latest()) continue;
    if (leases_.ended(i, now) && member.presence != Presence::here) continue;
    if (!member.refusal.empty()) continue;
    if (!waits_for_room(i)) return;  // it will make room, or there will be some when its lease ends
    all.push_back({i, leases_.full_at(i, first_missed(i), now)});
  }
  const auto tell = [&](const Waiting& one) {
    commit(one.agent, one.full_at, now);
    if (one.full_at) untied_at_ = now;
  };
  const bool can_hold = setup_.goes_on_after_lease;
  const auto is_far = [&](const Waiting& one) {
    return !one.full_at || (can_hold && *one.full_at - offset(now) >= kLeastLease + kLeaseMargin);
  };
  if (std::ranges::any_of(all, is_far)) {
    for (const Waiting& one : all)
      if (is_far(one)) tell(one);
  } else if (can_hold && !all.empty()) {
    tell(*std::ranges::max_element(all, {}, &Waiting::full_at));
  }
}

// Whoever was told to hold gets its lease when the others have made room: before the next change.
bool ChangeBook::is_untying(Instant now) const {
  if (now - kAnswerWait >= untied_at_) return false;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const Member& member = members_[i];
    if (member.presence == Presence::here && member.refusal.empty() && leases_.sure(i) != latest())
      return true;
  }
  return false;
}

bool ChangeBook::waits_for_room(std::size_t agent) const {
  const Member& member = members_[agent];
  return member.presence == Presence::here && member.committed != latest() &&
         was_asked_for_latest(member) && member.asked->reply && member.asked->reply->empty();
}

Duration ChangeBook::first_missed(std::size_t agent) const {
  Duration first = Duration::max();
  for (std::size_t i = leases_.sure(agent); i < latest(); ++i)
    first = std::min(first, accepted_[i].at);
  return first;
}

Instant ChangeBook::last_missed(std::size_t agent) const {
  Duration last{};
  for (std::size_t i = leases_.sure(agent); i < latest(); ++i)
    last = std::max(last, accepted_[i].at);
  return setup_.start + last;
}

Duration ChangeBook::lease(std::size_t agent, Instant now) {
  if (members_.at(agent).presence == Presence::finished) return {};
  return leases_.lease(agent, now);
}

void ChangeBook::settle() {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].presence != Presence::finished && leases_.sure(i) != latest()) return;
  }
  settled_ = latest();
}

std::uint64_t ChangeBook::allowed(Instant now) const {
  return leases_.history().most_in_all(settled_, offset(now));
}

// What is shown.

void ChangeBook::show_epoch(Instant now) {
  if (now < setup_.start) return;
  const Segment& segment = timeline_.segment_at(offset(now));
  if (segment.epoch == shown_epoch_) return;
  std::string why;
  Duration begins = segment.offset;
  for (const Segment& s : timeline_.segments) {
    if (s.epoch != segment.epoch) continue;
    begins = s.offset;
    break;
  }
  for (const Change& change : accepted_) {
    if (change.at == begins) why = by_whom(change);
  }
  if (why.empty()) {
    const Segment& before = timeline_.segment_at(begins - Duration(1));
    why = before.phase != segment.phase ? "phase " + setup_.phases.at(segment.phase)
                                        : "the rotation's next period";
  }
  log(Severity::info, "epoch " + std::to_string(segment.epoch) + " from " +
                          std::to_string(shown_epoch_) + ": " + why);
  shown_epoch_ = segment.epoch;
}

// The largest version whose instant has passed.
std::size_t ChangeBook::due(Instant now) const {
  for (std::size_t version = latest(); version > 0; --version) {
    if (accepted_[version - 1].at <= offset(now)) return version;
  }
  return 0;
}

void ChangeBook::show_spread(Instant now) {
  const std::size_t version = due(now);
  if (version == 0 || now < setup_.start + accepted_[version - 1].at + kSpreadGrace) return;
  const std::string text = behind(now);
  if (text.empty() && shown_spread_ != 0) {
    log(Severity::info, "epoch " + std::to_string(epoch(now)) + " on every agent that is there");
    shown_spread_ = 0;
  } else if (!text.empty() && shown_spread_ != version) {
    log(Severity::warning, text);
    shown_spread_ = version;
  }
}

// Another controller process told it what it has, and it has said nothing to this one.
bool ChangeBook::is_unheard(std::size_t agent) const {
  const Presence presence = members_[agent].presence;
  return leases_.is_assumed(agent) && (presence == Presence::away || presence == Presence::lost);
}

std::string ChangeBook::spread(Instant now) const {
  const std::string behind = this->behind(now);
  const std::string unheard = this->unheard(now);
  return behind + (behind.empty() || unheard.empty() ? "" : "; ") + unheard;
}

std::string ChangeBook::unheard(Instant now) const {
  std::vector<std::string> names;
  Instant until = Instant::min();
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const Member& member = members_[i];
    if (!is_unheard(i) || (member.presence == Presence::lost && leases_.ended(i, now))) continue;
    names.push_back(setup_.agents[i]);
    until = std::max(until, leases_.until(i));
  }
  if (names.empty()) return "";
  return "not back since the controller's restart: " + std::to_string(names.size()) + " of " +
         std::to_string(members_.size()) + " agents (" + list(names) + ")" +
         (until > now ? ", at work until " + wall_time(until) + " at the latest"
                      : std::string(", without a lease"));
}

std::string ChangeBook::behind(Instant now) const {
  const std::size_t version = due(now);
  std::vector<std::string> behind;
  std::size_t with = 0;
  std::size_t of = 0;
  std::uint32_t still_on = 0;
  Instant until = Instant::min();
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const Member& member = members_[i];
    if (member.presence == Presence::finished) continue;
    ++of;
    if (is_unheard(i)) continue;
    if (leases_.sure(i) >= version) {
      ++with;
    } else if (member.presence != Presence::lost || !leases_.ended(i, now)) {
      behind.push_back(setup_.agents[i]);
      still_on = leases_.history().epoch(leases_.sure(i), offset(now));
      until = std::max(until, leases_.until(i));
    }
  }
  if (behind.empty()) return "";
  std::string text = "epoch " + std::to_string(epoch(now)) + " on " + std::to_string(with) +
                     " of " + std::to_string(of) + " agents: " + list(behind) + " still on " +
                     std::to_string(still_on);
  return text + (until > now ? " until " + wall_time(until) + " at the latest"
                             : std::string(", without a lease"));
}

ChangeBook::AgentState ChangeBook::agent_state(std::size_t agent, Instant now) const {
  const Member& member = members_.at(agent);
  AgentState state;
  state.presence = member.presence == Presence::here   ? "here"
                   : member.presence == Presence::away ? "away"
                   : member.presence == Presence::lost ? "lost"
                                                       : "finished";
  if (!is_unheard(agent)) {
    const std::size_t version = leases_.sure(agent);
    state.epoch = leases_.history().epoch(version, offset(now));
    state.connections = leases_.history().connections(version, agent, offset(now));
    state.is_behind = version < due(now);
  }
  if (member.presence == Presence::finished) {
    state.is_behind = false;
    return state;
  }
  if (!leases_.ended(agent, now)) {
    state.lease_wall_ms =
        setup_.start_wall_ms + (leases_.until(agent) - setup_.start) / std::chrono::milliseconds(1);
  }
  if (is_unheard(agent)) {
    state.note = "not back since the controller's restart";
  } else if (!member.refusal.empty()) {
    state.note = "cannot take the last change: " + member.refusal;
  } else if (member.asked && member.asked->epoch > state.epoch && !member.asked->reply) {
    state.note = "asked for epoch " + std::to_string(member.asked->epoch);
  } else if (state.is_behind && member.committed == 0 && member.asked && member.asked->reply) {
    state.note = "waits until the others leave room for its raise";
  }
  return state;
}

std::string ChangeBook::wall_time(Instant at) const {
  return rfc3339(setup_.start_wall_ms + (at - setup_.start) / std::chrono::milliseconds(1));
}

void ChangeBook::log(Severity severity, std::string text) {
  actions_.emplace_back(change_action::Log{severity, std::move(text)});
}

// Redistribution: the connections of agents that are lost, and whose leases have surely ended, are
// the others' until they are back.

void ChangeBook::redistribute(Instant now) {
  if (setup_.redistribute == Redistribute::never || is_ending_ || candidate_ || !queue_.empty() ||
      now < std::max(redistribute_not_before_, setup_.start))
    return;
  const std::vector<std::uint32_t> before = absent();
  std::vector<std::uint32_t> wanted;
  std::vector<std::string> gone, returned;
  std::size_t here = 0;
  for (std::uint32_t i = 0; i < members_.size(); ++i) {
    const Member& member = members_[i];
    const bool was_absent = std::find(before.begin(), before.end(), i) != before.end();
    const bool is_fenced = member.presence == Presence::lost && leases_.ended(i, now);
    const bool is_back = member.presence == Presence::here && leases_.sure(i) == latest();
    if (is_fenced || (was_absent && !is_back)) wanted.push_back(i);
    if (is_fenced && !was_absent) gone.push_back(setup_.agents[i]);
    if (was_absent && is_back) returned.push_back(setup_.agents[i]);
    if (member.presence == Presence::here) ++here;
  }
  if (wanted == before || here == 0) return;
  ChangeOrder order;
  order.change.absent = wanted;
  order.change.guard = default_guard(order.change, setup_.rotation_guard);
  order.change.who = "controller";
  order.change.wall_ms = setup_.start_wall_ms + (now - setup_.start) / std::chrono::milliseconds(1);
  if (!gone.empty()) order.change.what = "connections of " + list(gone) + " to the others";
  if (!returned.empty()) {
    order.change.what +=
        (gone.empty() ? "" : ", ") + std::string("connections back to ") + list(returned);
  }
  order.change.reason = gone.empty() ? "there again" : "lost, and the lease has ended";
  queue_.push_back(std::move(order));
}

// By the latest change of it, in the order in which they count.
std::vector<std::uint32_t> ChangeBook::absent() const {
  const Change* last = nullptr;
  for (const Change& change : accepted_) {
    if (change.absent && (last == nullptr || change.at >= last->at)) last = &change;
  }
  return last == nullptr ? std::vector<std::uint32_t>{} : *last->absent;
}

}  // namespace spate::controller
