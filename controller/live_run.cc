#include "controller/live_run.h"

#include <algorithm>

namespace spate::controller {
namespace {

using Severity = RunEvent::Severity;

std::uint64_t content_hash(const std::string& bytes) {
  // Never 0, which the ledger uses for "not known". In memory only, so it need not be stable.
  return static_cast<std::uint64_t>(std::hash<std::string>{}(bytes)) | 1U;
}

}  // namespace

LiveRun::LiveRun(Outside outside, const Run::Order& order, Token submitter, Instant now)
    : outside_(outside),
      run_(order, now),
      aggregate_(run_.info()),
      progress_(run_.info().plan.interval, run_.info().plan.length()),
      submitter_(submitter) {
  act(run_action::Save{}, now);
  if (!order.descriptor_set.empty()) write(store_op::PutDescriptors{id(), order.descriptor_set});
}

LiveRun::LiveRun(Outside outside, Restored::Run restored, Run::Adopted adopted, Instant now)
    : outside_(outside),
      run_(std::move(adopted), now),
      aggregate_(std::move(*restored.aggregate)),
      progress_(run_.info().plan.interval, run_.info().plan.length()),
      finished_requests_(restored.finished_requests),
      covered_to_(std::move(restored.covered_to)) {
  for (const Mark& mark : restored.marks) ledger_.restore(mark.agent, mark.incarnation, mark.seq);
  ledger_.add_duplicates(restored.duplicates);
  const Duration elapsed = now - *run_.start();
  progress_.resume(elapsed, finished_requests_);
  adoption_ = Adoption{elapsed, {}, 0};
  for (const RunAgent& agent : run_.info().agents) {
    if (!agent.last_seq && agent.lost_reason.empty()) adoption_->awaited.insert(agent.name);
  }
  begin_book(true, now);
  start_sampling();
}

void LiveRun::step(const RunInput& input, Instant now) {
  const std::optional<Instant> start = run_.start();
  for (const RunAction& action : run_.step(input, now)) {
    std::visit([&](const auto& one) { act(one, now); }, action);
  }
  if (start && *start != *run_.start()) start_moved(*start - *run_.start(), now);
  tell_book_of(input, now);
}

// It was a guess.
void LiveRun::start_moved(Duration earlier_by, Instant now) {
  progress_.resume(now - *run_.start(), finished_requests_);
  if (adoption_) adoption_->at += earlier_by;
  if (book_) book_->set_start(*run_.start());
  start_sampling();
}

void LiveRun::start_sampling() {
  const Plan& plan = run_.info().plan;
  if (has_probe())
    outside_.actions.emplace_back(
        action::StartSampling{id(), plan.target.probe, *run_.start(), plan.interval});
}

void LiveRun::tick(Instant now) {
  step(run_input::Tick{}, now);
  if (is_finished()) return;
  follow_presence(now);
  tell_book(change_input::Tick{}, now);
  show_progress(false, now);
  if (!adoption_) return;
  for (const RunAgent& agent : run_.info().agents) {
    if (agent.last_seq || !agent.lost_reason.empty()) adoption_->awaited.erase(agent.name);
  }
  if (adoption_->awaited.empty()) say_late(now);
}

// Records.

void LiveRun::take(const std::string& agent, AgentRecord taken, Instant now) {
  const Record& record = taken.record;
  if (record.phase >= run_.info().plan.phases.size()) {
    log(Severity::error,
        "record refused agent=" + agent + " seq=" + std::to_string(record.key.seq) +
            " cause=\"phase " + std::to_string(record.phase) + " is not in the plan\"",
        now);
    return;
  }
  const Ledger::Entry entry = ledger_.offer(record, content_hash(taken.bytes));
  switch (entry.ruling) {
    case Ledger::Ruling::accepted:
      for (const std::string& law : entry.broken) {
        if (++law_events_ > kMaxLawEvents) break;
        log(Severity::error,
            "law broken agent=" + agent + " seq=" + std::to_string(record.key.seq) + " law=\"" +
                law + "\"",
            now);
      }
      finished_requests_ += record.finished();
      aggregate_.add(record);
      progress_.add(record);
      note_return(record, now);
      count_late(record, now);
      write(store_op::PutRecord{std::move(taken.record), std::move(taken.bytes)});
      show_progress(false, now);
      return;  // acknowledged when it is committed
    case Ledger::Ruling::quarantined:
      log(Severity::error,
          "record quarantined agent=" + agent + " seq=" + std::to_string(record.key.seq) +
              " cause=\"another record with this key is stored: is this agent a "
              "copy of another?\"",
          now);
      [[fallthrough]];
    case Ledger::Ruling::duplicate:
      aggregate_.add_duplicates(1);
      [[fallthrough]];
    case Ledger::Ruling::gap:
      acknowledge(agent, record.key.incarnation);
      return;
  }
}

// The first record of a process that took over from one that died.
void LiveRun::note_return(const Record& record, Instant now) {
  Duration& covered = covered_to_[record.key.agent];
  const auto& agents = run_.info().agents;
  const auto agent = std::find_if(agents.begin(), agents.end(), [&](const RunAgent& a) {
    return a.name == record.key.agent && a.incarnation == record.key.incarnation;
  });
  if (agent != agents.end() && !agent->dead.empty() && record.first() == 1) {
    const Duration gap = std::max(record.start - covered, Duration{});
    const std::int64_t tenths = gap / std::chrono::milliseconds(100);
    log(Severity::info,
        "agent back in its share agent=" + agent->name + " gap_s=" + std::to_string(tenths / 10) +
            "." + std::to_string(tenths % 10) + " cause=\"" + agent->dead.back().cause + "\"",
        now);
  }
  if (!record.drain) covered = std::max(covered, record.start + record.length);
}

// What agents closed while the controller was away.
void LiveRun::count_late(const Record& record, Instant now) {
  if (!adoption_) return;
  if (record.start + record.length <= adoption_->at) {
    ++adoption_->late_records;
    return;
  }
  adoption_->awaited.erase(record.key.agent);
  if (adoption_->awaited.empty()) say_late(now);
}

void LiveRun::say_late(Instant now) {
  if (!adoption_) return;
  log(Severity::info,
      "records came late after the controller's restart count=" +
          std::to_string(adoption_->late_records),
      now);
  adoption_.reset();
}

void LiveRun::committed(const Mark& mark, Instant now) {
  ledger_.committed(mark.agent, mark.incarnation, mark.seq);
  acknowledge(mark.agent, mark.incarnation);
  step(run_input::Committed{mark.agent, mark.seq, mark.incarnation}, now);
}

void LiveRun::acknowledge(const std::string& agent, std::uint64_t incarnation) {
  send(agent, SendRecordAck{id(), incarnation, ledger_.committed_mark(agent, incarnation)});
}

// What the run wants.

void LiveRun::act(const run_action::Send& action, Instant now) {
  const auto* prepare = std::get_if<SendPrepare>(&action.message);
  const auto agent = position_of(action.agent);
  if (prepare == nullptr || !book_ || !agent) {
    send(action.agent, action.message);
    return;
  }
  // Another process of an agent takes up its share; its lease is one among the others'.
  tell_book(change_input::Restarted{*agent}, now);
  rejoining_.insert(*agent);
  SendPrepare with_lease = *prepare;
  // None would be "for ever": one that has ended is what holds it until there is room.
  with_lease.lease = std::max(book_->lease(*agent, now), Duration(1));
  send(action.agent, std::move(with_lease));
}

// Whoever is told of a run finds it in the store, whatever happens to this process.
void LiveRun::act(const run_action::Accepted&, Instant) { acceptance_ = barrier(); }

void LiveRun::act(const run_action::Refused& action, Instant) {
  answer_submitter(action.problems, action.exit_code);
}

void LiveRun::answer_submitter(std::vector<std::string> problems, int exit_code) {
  if (const auto token = std::exchange(submitter_, std::nullopt))
    outside_.actions.emplace_back(
        action::AnswerSubmit{*token, {id(), std::move(problems), exit_code}});
}

void LiveRun::act(const run_action::Log& action, Instant now) {
  log(action.severity, action.text, now);
}

void LiveRun::act(const run_action::Save&, Instant) {
  aggregate_.update(run_.info());
  write(store_op::PutRun{run_.info(), {ledger_.duplicates(), "", finished_requests_}});
}

void LiveRun::act(const run_action::StoreStart&, Instant now) {
  act(run_action::Save{}, now);
  start_ = barrier();
}

void LiveRun::act(const run_action::StartSampling&, Instant now) {
  place_events(*run_.start());
  begin_book(false, now);
  start_sampling();
}

void LiveRun::act(const run_action::TakeFinalSample&, Instant) {
  if (has_probe()) outside_.actions.emplace_back(action::TakeFinalSample{id()});
}

void LiveRun::act(const run_action::Close&, Instant now) {
  if (!run_.start()) place_events(now);
  give_up_changes();
  // Accepted, and its row could not be stored.
  answer_submitter({run_.info().end_reason}, 1);
  say_late(now);
  if (has_probe()) outside_.actions.emplace_back(action::StopSampling{id()});
  show_progress(true, now);
  aggregate_.update(run_.info());
  const Summary summary = aggregate_.summary();
  write(store_op::PutRun{
      run_.info(), {ledger_.duplicates(), std::string(name(summary.verdict)), finished_requests_}});
  end_ = WatchEnd{summary.exit_code, to_json(summary), to_text(summary)};
}

// The target.

void LiveRun::sampled(event::Sampled sample, Instant now) {
  const bool is_ok = sample.sample.has_value();
  const bool is_final = sample.is_final;
  // One that was placed by a guessed T would tell when the target restarted, and be wrong.
  if (run_.start() && run_.is_start_known()) add_sample(sample, now);
  if (is_final) step(run_input::FinalSample{is_ok}, now);
}

void LiveRun::add_sample(event::Sampled& answer, Instant now) {
  if (!answer.sample) {
    if (!std::exchange(is_target_silent_, true)) {
      log(Severity::warning,
          "target does not answer probe=" + run_.info().plan.target.probe + " cause=\"" +
              answer.error + "\"",
          now);
    }
    return;
  }
  TargetSample& sample = *answer.sample;
  if (std::exchange(is_target_silent_, false)) log(Severity::info, "target answers again", now);
  sample.at_ns = (answer.at - *run_.start()).count();
  if (last_sample_ && last_sample_->boot_id != sample.boot_id) {
    log(Severity::warning, "target restarted boot=" + sample.boot_id, now);
  }
  aggregate_.add(sample);
  last_sample_ = sample;
  write(store_op::PutSample{id(), std::move(sample)});
}

// What people see.

void LiveRun::log(Severity severity, const std::string& text, Instant now) {
  RunEvent event;
  event.severity = severity;
  event.text = text;
  if (!run_.start()) {
    // Its place on the time axis is known later; for those who watch, "before the start" is enough.
    event.at_ns = -1;
    early_events_.push_back({now, event});
  } else {
    event.at_ns = (now - *run_.start()).count();
    aggregate_.add(event);
    write(store_op::PutEvent{id(), event});
  }
  show(std::move(event));
}

void LiveRun::place_events(Instant start) {
  for (EarlyEvent& early : std::exchange(early_events_, {})) {
    early.event.at_ns = std::min<std::int64_t>((early.at - start).count(), -1);
    aggregate_.add(early.event);
    write(store_op::PutEvent{id(), std::move(early.event)});
  }
}

void LiveRun::show_progress(bool is_over, Instant now) {
  if (!run_.start()) return;
  const Plan& plan = run_.info().plan;
  for (Progress::Due& due : progress_.take_due(now - *run_.start(), run_.live_agents(), is_over)) {
    due.line.phase = due.drain ? "drain" : plan.phases[due.phase].name;
    due.line.measured = !due.drain && plan.phases[due.phase].measured;
    due.line.agents = static_cast<std::uint32_t>(run_.info().agents.size());
    if (last_sample_) {
      due.line.target_address_space_bytes = last_sample_->address_space_bytes;
      due.line.target_rss_bytes = last_sample_->rss_bytes;
    }
    show(std::move(due.line));
  }
}

Result<void> LiveRun::watch(Token watcher) {
  if (watchers_.size() >= kMaxWatchers) {
    return Error{ErrorCode::unavailable, "run " + id() + " has " + std::to_string(kMaxWatchers) +
                                             " watchers already: end one of them first"};
  }
  for (const RunEvent& event : aggregate_.events())
    outside_.actions.emplace_back(action::Show{{watcher}, event});
  for (const EarlyEvent& early : early_events_)
    outside_.actions.emplace_back(action::Show{{watcher}, early.event});
  watchers_.push_back(watcher);
  return {};
}

void LiveRun::unwatch(Token watcher) { std::erase(watchers_, watcher); }

void LiveRun::show(WatchLine line) {
  if (!watchers_.empty()) outside_.actions.emplace_back(action::Show{watchers_, std::move(line)});
}

void LiveRun::send(const std::string& agent, ControllerMessage message) {
  const auto& agents = run_.info().agents;
  const auto member = std::find_if(agents.begin(), agents.end(),
                                   [&](const RunAgent& a) { return a.name == agent; });
  if (member == agents.end()) return;
  const AgentEntry* entry = outside_.registry.find_id(member->agent_id);
  if (entry != nullptr && entry->stream)
    outside_.actions.emplace_back(action::Send{*entry->stream, std::move(message)});
}

std::uint64_t LiveRun::barrier() {
  outside_.actions.emplace_back(action::Barrier{outside_.next_barrier});
  return outside_.next_barrier++;
}

void LiveRun::write(StoreOp op) { outside_.actions.emplace_back(action::Write{std::move(op)}); }

RunRow LiveRun::row(Instant now) const {
  const RunInfo& info = run_.info();
  RunRow row;
  row.run = id();
  row.plan = info.plan.name;
  row.state = std::string(name(run_.stage()));
  row.requests = finished_requests_;
  row.agents = static_cast<std::uint32_t>(info.agents.size());
  row.reason = info.end_reason;
  if (run_.start()) {
    row.started_at = rfc3339(info.started_wall_ms);
    row.duration_s = std::max(std::chrono::duration<double>(now - *run_.start()).count(), 0.0);
  }
  return row;
}

}  // namespace spate::controller
