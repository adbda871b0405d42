#include <algorithm>

#include "controller/change_orders.h"
#include "controller/live_run.h"
#include "controller/run_shares.h"

// The part of a live run that is about changes: what its book is told, what it wants, the status.

namespace spate::controller {
namespace {

ChangeAnswer refused(std::string problem, int exit_code) {
  ChangeAnswer answer;
  answer.problems.push_back(std::move(problem));
  answer.exit_code = exit_code;
  return answer;
}

}  // namespace

// The book.

void LiveRun::begin_book(bool is_adopted, Instant now) {
  const RunInfo& info = run_.info();
  auto planned = planned_timeline_of(info);
  if (!planned) return;  // no run gets a T with such a plan
  ChangeBook::Setup setup;
  setup.run = id();
  for (const RunAgent& agent : info.agents) setup.agents.push_back(agent.name);
  for (const Phase& phase : info.plan.phases) setup.phases.push_back(phase.name);
  setup.planned = *std::move(planned);
  setup.start = *run_.start();
  setup.start_wall_ms = info.started_wall_ms;
  setup.lease = lease_length(info.plan);
  setup.goes_on_after_lease = info.plan.on_controller_loss == OnControllerLoss::go_on;
  setup.redistribute = info.plan.redistribute;
  if (info.plan.rotation) setup.rotation_guard = info.plan.rotation->guard;
  setup.is_adopted = is_adopted;
  setup.accepted = info.changes;
  book_.emplace(std::move(setup), now);
  for (std::size_t i = 0; i < info.agents.size(); ++i)
    if (info.agents[i].last_seq) tell_book(change_input::Finished{i}, now);
  write(store_op::PutEpochs{id(), book_->timeline()});
}

void LiveRun::tell_book(const ChangeInput& input, Instant now) {
  if (!book_) return;
  for (ChangeAction& action : book_->step(input, now))
    std::visit([&](auto& one) { act(std::move(one), now); }, action);
}

// What the run has just heard, as far as it matters to changes.
void LiveRun::tell_book_of(const RunInput& input, Instant now) {
  if (!book_) return;
  const auto tell = [&](const std::string& agent, const auto& make) {
    if (const auto i = position_of(agent)) tell_book(make(*i), now);
  };
  if (const auto* lost = std::get_if<run_input::Lost>(&input)) {
    tell(lost->agent, [](std::size_t i) { return change_input::Lost{i}; });
  } else if (const auto* done = std::get_if<run_input::Finished>(&input)) {
    tell(done->agent, [](std::size_t i) { return change_input::Finished{i}; });
  } else if (const auto* back = std::get_if<run_input::Back>(&input); back && back->has_run) {
    tell(back->agent, [&](std::size_t i) {
      const AgentEntry* entry = outside_.registry.find_id(run_.info().agents[i].agent_id);
      silent_.erase(i);
      return entry == nullptr ? change_input::Back{i}
                              : change_input::Back{i, entry->hello.epoch, entry->hello.committed};
    });
  } else if (const auto* armed = std::get_if<run_input::Armed>(&input)) {
    // Not when it has started: its share may have nothing to send until a change gives it
    // something.
    const auto i = position_of(armed->agent);
    if (i && rejoining_.erase(*i) > 0) tell_book(change_input::Back{*i}, now);
  }
  if (run_.stage() >= RunStage::draining) tell_book(change_input::Ending{}, now);
}

// Streams that break, and agents that fall silent on one, long before they are lost.
void LiveRun::follow_presence(Instant now) {
  if (!book_) return;
  const auto& agents = run_.info().agents;
  for (std::size_t i = 0; i < agents.size(); ++i) {
    const AgentEntry* entry = outside_.registry.find_id(agents[i].agent_id);
    const bool has_stream = entry != nullptr && entry->stream.has_value() &&
                            entry->hello.incarnation == agents[i].incarnation;
    const bool is_there = has_stream && entry->state == AgentState::online;
    if (book_->is_here(i) && !is_there) {
      if (has_stream) silent_.insert(i);
      tell_book(change_input::Away{i}, now);
    } else if (!has_stream) {
      silent_.erase(i);
    } else if (is_there && silent_.erase(i) > 0) {
      tell_book(change_input::Back{i, entry->hello.epoch, {}}, now);
    }
  }
}

void LiveRun::act(const change_action::Send& action, Instant) {
  send(run_.info().agents.at(action.agent).name, action.message);
}

void LiveRun::act(const change_action::Store& action, Instant) {
  write(store_op::PutChange{id(), action.change});
  changes_in_store_.emplace(barrier(), action.change);
}

void LiveRun::act(change_action::Answer action, Instant) {
  change_tokens_.erase(action.ticket);
  outside_.actions.emplace_back(action::AnswerChange{action.ticket, std::move(action.answer)});
}

void LiveRun::act(const change_action::Log& action, Instant now) {
  log(action.severity, action.text, now);
}

void LiveRun::barrier_passed(std::uint64_t barrier, Instant now) {
  if (acceptance_ == barrier) answer_submitter({}, 0);
  if (start_ == barrier) step(run_input::StartStored{}, now);
  const auto node = changes_in_store_.extract(barrier);
  if (node.empty()) return;
  const std::uint32_t epoch = node.mapped().epoch;
  run_.add_change(node.mapped());
  aggregate_.update(run_.info());
  tell_book(change_input::Stored{epoch}, now);
  write(store_op::PutEpochs{id(), book_->timeline()});
}

void LiveRun::refuse_changes(const std::string& why, Instant now) {
  tell_book(change_input::Unstorable{why}, now);
}

// The run has ended: whoever waits is told so.
void LiveRun::give_up_changes() {
  for (const Token token : std::exchange(change_tokens_, {})) {
    outside_.actions.emplace_back(
        action::AnswerChange{token, refused("the run ended before the change was stored", 4)});
  }
}

// What agents say.

void LiveRun::epoch_replied(const std::string& agent, AgentEpochReply reply, Instant now) {
  if (const auto i = position_of(agent))
    tell_book(change_input::Reply{*i, reply.epoch, std::move(reply.problems)}, now);
}

void LiveRun::epoch_applied(const std::string& agent, const AgentEpochApplied& applied,
                            Instant now) {
  if (const auto i = position_of(agent)) tell_book(change_input::Has{*i, applied.epoch}, now);
}

void LiveRun::heard_of_epoch(const std::string& agent_id, std::uint32_t epoch, Instant now) {
  if (!book_) return;
  const auto i = static_cast<std::size_t>(run_.member(agent_id) - run_.info().agents.data());
  if (book_->is_news(i, epoch)) tell_book(change_input::Has{i, epoch}, now);
}

// What a process was armed for is in its state folder from then on, and in the hellos of it and its
// successors.
bool LiveRun::is_of_a_copy(const AgentHello& hello, Instant now) const {
  const RunAgent* member = run_.member(hello.agent_id);
  if (!book_ || member == nullptr || member->last_seq || !run_.was_armed(hello.agent_id))
    return false;
  const auto i = static_cast<std::size_t>(member - run_.info().agents.data());
  const bool is_later = member->incarnation < hello.incarnation;
  if (is_later ? book_->lease_ended(i, now) : hello.running == id()) return false;
  return std::ranges::none_of(hello.accounts, [&](const AgentAccount& a) {
    return a.run == id() && a.incarnation == member->incarnation;
  });
}

Duration LiveRun::lease(const std::string& agent_id, std::uint64_t incarnation, Instant now) {
  if (!run_.is_start_known()) return {};  // what is due now is not known either
  const auto due = run_.lease_of(agent_id, incarnation);
  if (!due || !book_) return due.value_or(Duration{});
  return book_->lease(static_cast<std::size_t>(run_.member(agent_id) - run_.info().agents.data()),
                      now);
}

// What operators ask.

void LiveRun::change(const ChangeRequest& request, Token token, std::int64_t wall_ms, Instant now) {
  const auto refuse = [&](ChangeAnswer answer) {
    outside_.actions.emplace_back(action::AnswerChange{token, std::move(answer)});
  };
  if (!book_ || now < *run_.start())
    return refuse(refused("run " + id() + " has not started yet, it is " +
                              std::string(name(run_.stage())) + ": try again when it runs",
                          4));
  if (!run_.is_start_known())
    return refuse(refused("run " + id() +
                              " has not been heard of since the controller's machine was "
                              "restarted: try again when an agent is back",
                          1));
  ChangeOrderOrProblems made = make_change(request, run_.info(), now - *run_.start(), wall_ms);
  if (!made.problems.empty()) {
    ChangeAnswer answer;
    answer.problems = std::move(made.problems);
    answer.exit_code = 2;
    return refuse(std::move(answer));
  }
  made.order.ticket = token;
  change_tokens_.insert(token);
  tell_book(change_input::Order{std::move(made.order)}, now);
}

RunStatus LiveRun::status(Instant now) {
  RunStatus status;
  status.run = row(now);
  LiveStatus& live = status.live.emplace();
  const RunInfo& info = run_.info();
  live.planned = info.plan.length();
  for (std::size_t i = 0; i < info.agents.size(); ++i) live.agents.push_back(agent_status(i, now));
  if (!book_) return status;
  live.elapsed = std::clamp(now - *run_.start(), Duration{}, live.planned);
  live.phase = info.plan.phases.at(book_->timeline().segment_at(live.elapsed).phase).name;
  live.epoch = book_->epoch(now);
  live.connections = book_->timeline().epoch(live.epoch).connections();
  live.leased = book_->leased(now);
  live.spread = book_->spread(now);
  if (const Change* change = book_->under_way()) live.under_way = change->what;
  live.queued = static_cast<std::uint32_t>(book_->queued());
  for (const Change& change : book_->accepted())
    status.changes.push_back(to_row(change, info, now - *run_.start()));
  return status;
}

AgentStatus LiveRun::agent_status(std::size_t i, Instant now) const {
  const RunAgent& agent = run_.info().agents[i];
  AgentStatus status;
  status.name = agent.name;
  status.incarnation = agent.incarnation;
  status.records_stored = ledger_.committed_mark(agent.name, agent.incarnation);
  if (const AgentEntry* entry = outside_.registry.find_id(agent.agent_id)) {
    status.state = std::string(name(entry->state));
    status.clock_offset_ns = entry->offset_ns;
    status.clock_bound_ns = entry->offset_bound_ns;
    status.note = note_of(*entry);
    for (const AgentAccount& account : entry->hello.accounts) {
      if (account.run != id()) continue;
      const std::uint64_t stored = ledger_.committed_mark(agent.name, account.incarnation);
      status.records_waiting += account.last_seq - std::min(stored, account.last_seq);
    }
  }
  // What has come and cannot be stored stays with the agent, too.
  status.records_waiting =
      std::max(status.records_waiting,
               ledger_.offered_mark(agent.name, agent.incarnation) - status.records_stored);
  if (!book_) return status;
  const ChangeBook::AgentState state = book_->agent_state(i, now);
  if (state.presence != "here") status.state = state.presence;
  status.epoch = state.epoch;
  status.connections = state.connections;
  if (state.presence != "finished") {
    const auto covered = covered_to_.find(agent.name);
    const Duration until = covered == covered_to_.end() ? Duration{} : covered->second;
    const Duration elapsed = std::min<Duration>(now - *run_.start(), run_.info().plan.length());
    status.lag = std::max(elapsed - until, Duration{});
  }
  if (state.lease_wall_ms != 0) status.lease_until = rfc3339(state.lease_wall_ms);
  if (!state.note.empty()) status.note += (status.note.empty() ? "" : "; ") + state.note;
  return status;
}

std::optional<std::size_t> LiveRun::position_of(const std::string& agent) const {
  const auto& agents = run_.info().agents;
  const auto it = std::find_if(agents.begin(), agents.end(),
                               [&](const RunAgent& a) { return a.name == agent; });
  if (it == agents.end()) return std::nullopt;
  return static_cast<std::size_t>(it - agents.begin());
}

}  // namespace spate::controller
