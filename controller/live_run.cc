#include "controller/live_run.h"

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

namespace spate::controller {
namespace {

namespace asio = boost::asio;
using Severity = RunEvent::Severity;

std::uint64_t content_hash(const std::string& bytes) {
  // Never 0, which the ledger uses for "not known". In memory only, so it need not be stable.
  return static_cast<std::uint64_t>(std::hash<std::string>{}(bytes)) | 1U;
}

}  // namespace

LiveRun::LiveRun(Outside outside, Run::Order order, std::unique_ptr<TargetSampler> sampler,
                 std::function<void(SubmitAnswer)> answer)
    : outside_(std::move(outside)),
      run_(std::move(order), BootClock::now()),
      aggregate_(run_.info()),
      progress_(run_.info().plan.interval, run_.info().plan.length()),
      sampler_(std::move(sampler)),
      answer_(std::move(answer)) {}

LiveRun::~LiveRun() = default;

void LiveRun::step(const RunInput& input) {
  // The last action lets the controller forget this run.
  const auto self = shared_from_this();
  for (const RunAction& action : run_.step(input, BootClock::now())) {
    std::visit([this](const auto& one) { act(one); }, action);
  }
}

void LiveRun::tick() {
  step(run_input::Tick{});
  show_progress(false);
}

// Records.

void LiveRun::take(const std::string& agent, AgentRecord taken) {
  const Record& record = taken.record;
  if (record.phase >= run_.info().plan.phases.size()) {
    log(Severity::error, "record refused agent=" + agent +
                             " seq=" + std::to_string(record.key.seq) + " cause=\"phase " +
                             std::to_string(record.phase) + " is not in the plan\"");
    return;
  }
  const Ledger::Entry entry = ledger_.offer(record, content_hash(taken.bytes));
  switch (entry.ruling) {
    case Ledger::Ruling::accepted:
      for (const std::string& law : entry.broken) {
        if (++law_events_ > kMaxLawEvents) break;
        log(Severity::error, "law broken agent=" + agent +
                                 " seq=" + std::to_string(record.key.seq) + " law=\"" + law + "\"");
      }
      finished_requests_ += record.finished();
      aggregate_.add(record);
      progress_.add(record);
      outside_.store.put_record(record, std::move(taken.bytes));
      show_progress(false);
      return;  // acknowledged when it is committed
    case Ledger::Ruling::quarantined:
      log(Severity::error, "record quarantined agent=" + agent +
                               " seq=" + std::to_string(record.key.seq) +
                               " cause=\"another record with this key is stored: is this agent a "
                               "copy of another?\"");
      [[fallthrough]];
    case Ledger::Ruling::duplicate:
      aggregate_.add_duplicates(1);
      [[fallthrough]];
    case Ledger::Ruling::gap:
      acknowledge(agent, record.key.incarnation);
      return;
  }
}

void LiveRun::committed(const Mark& mark) {
  ledger_.committed(mark.agent, mark.incarnation, mark.seq);
  acknowledge(mark.agent, mark.incarnation);
  step(run_input::Committed{mark.agent, mark.seq});
}

void LiveRun::acknowledge(const std::string& agent, std::uint64_t incarnation) {
  outside_.send(agent,
                SendRecordAck{id(), incarnation, ledger_.committed_mark(agent, incarnation)});
}

// What the run wants.

void LiveRun::act(const run_action::Send& action) { outside_.send(action.agent, action.message); }

void LiveRun::act(const run_action::Accepted&) {
  if (auto answer = std::exchange(answer_, nullptr)) answer({id(), {}, 0});
}

void LiveRun::act(const run_action::Refused& action) {
  if (auto answer = std::exchange(answer_, nullptr))
    answer({id(), action.problems, action.exit_code});
}

void LiveRun::act(const run_action::Log& action) { log(action.severity, action.text); }

void LiveRun::act(const run_action::Save&) {
  aggregate_.update(run_.info());
  outside_.store.put_run(run_.info(), {ledger_.duplicates(), "", finished_requests_});
}

void LiveRun::act(const run_action::StartSampling&) {
  place_events(*run_.start());
  if (!sampler_) return;
  sampler_->start(*run_.start(), run_.info().plan.interval,
                  [self = weak_from_this()](Result<TargetSample> sample, Instant at) {
                    if (const auto run = self.lock()) run->sampled(std::move(sample), at);
                  });
}

void LiveRun::act(const run_action::TakeFinalSample&) {
  if (!sampler_) return;  // the run does not wait for ever
  sampler_->take_final([self = weak_from_this()](Result<TargetSample> sample, Instant at) {
    const auto run = self.lock();
    if (!run) return;
    const bool is_ok = sample.has_value();
    run->sampled(std::move(sample), at);
    run->step(run_input::FinalSample{is_ok});
  });
}

void LiveRun::act(const run_action::Close&) {
  if (!run_.start()) place_events(BootClock::now());
  sampler_.reset();
  show_progress(true);
  aggregate_.update(run_.info());
  const Summary summary = aggregate_.summary();
  const bool has_row = !run_.info().agents.empty();
  if (has_row)
    outside_.store.put_run(run_.info(), {ledger_.duplicates(), std::string(name(summary.verdict)),
                                         finished_requests_});

  // Watchers hear of the end when it is stored, so that what they ask next finds it; but not never.
  auto end = [self = shared_from_this(),
              line = WatchEnd{summary.exit_code, to_json(summary), to_text(summary)}] {
    self->end_watchers(line);
  };
  auto timer = std::make_shared<asio::steady_timer>(outside_.loop, kFinalCommitDeadline);
  timer->async_wait([end, timer](const boost::system::error_code&) { end(); });
  outside_.store.when_committed(
      [&loop = outside_.loop, timer] { asio::post(loop, [timer] { timer->cancel(); }); });
  outside_.closed(*this);
}

// The target.

void LiveRun::sampled(Result<TargetSample> sample, Instant at) {
  if (!sample) {
    if (!std::exchange(is_target_silent_, true)) {
      log(Severity::warning, "target does not answer probe=" + run_.info().plan.target.probe +
                                 " cause=\"" + sample.error().message + "\"");
    }
    return;
  }
  if (std::exchange(is_target_silent_, false)) log(Severity::info, "target answers again");
  sample->at_ns = (at - *run_.start()).count();
  if (last_sample_ && last_sample_->boot_id != sample->boot_id) {
    log(Severity::warning, "target restarted boot=" + sample->boot_id);
  }
  aggregate_.add(*sample);
  outside_.store.put_sample(id(), *sample);
  last_sample_ = std::move(*sample);
}

// What people see.

void LiveRun::log(Severity severity, const std::string& text) {
  RunEvent event;
  event.severity = severity;
  event.text = text;
  const Instant now = BootClock::now();
  if (!run_.start()) {
    // Its place on the time axis is known later; for those who watch, "before the start" is enough.
    event.at_ns = -1;
    early_events_.push_back({now, event});
  } else {
    event.at_ns = (now - *run_.start()).count();
    aggregate_.add(event);
    outside_.store.put_event(id(), event);
  }
  show(event);
}

void LiveRun::place_events(Instant start) {
  const bool has_row = !run_.info().agents.empty();
  for (EarlyEvent& early : std::exchange(early_events_, {})) {
    early.event.at_ns = std::min<std::int64_t>((early.at - start).count(), -1);
    aggregate_.add(early.event);
    if (has_row) outside_.store.put_event(id(), early.event);
  }
}

void LiveRun::show_progress(bool is_over) {
  if (!run_.start()) return;
  const Plan& plan = run_.info().plan;
  for (Progress::Due& due :
       progress_.take_due(BootClock::now() - *run_.start(), run_.live_agents(), is_over)) {
    due.line.phase = due.drain ? "drain" : plan.phases[due.phase].name;
    due.line.measured = !due.drain && plan.phases[due.phase].measured;
    due.line.agents = static_cast<std::uint32_t>(run_.info().agents.size());
    if (last_sample_) {
      due.line.target_address_space_bytes = last_sample_->address_space_bytes;
      due.line.target_rss_bytes = last_sample_->rss_bytes;
    }
    show(due.line);
  }
}

Result<void> LiveRun::watch(std::shared_ptr<WatchSink> sink) {
  std::erase_if(watchers_, [](const auto& w) { return !w->is_open(); });
  if (watchers_.size() >= kMaxWatchers) {
    return Error{ErrorCode::unavailable, "run " + id() + " has " + std::to_string(kMaxWatchers) +
                                             " watchers already: end one of them first"};
  }
  for (const RunEvent& event : aggregate_.events()) sink->put(event);
  for (const EarlyEvent& early : early_events_) sink->put(early.event);
  watchers_.push_back(std::move(sink));
  return {};
}

void LiveRun::show(const WatchLine& line) {
  for (const auto& watcher : watchers_) watcher->put(line);
}

void LiveRun::end_watchers(const WatchEnd& end) {
  if (std::exchange(has_ended_, true)) return;
  show(end);
  watchers_.clear();
}

RunRow LiveRun::row() const {
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
    row.duration_s =
        std::max(std::chrono::duration<double>(BootClock::now() - *run_.start()).count(), 0.0);
  }
  return row;
}

}  // namespace spate::controller
