#include "tests/sim/fake_worker.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace spate::sim {

using namespace std::chrono_literals;

FakeWorker::FakeWorker(Setting setting, ShareTimeline timeline)
    : setting_(std::move(setting)),
      account_(setting_.target.account(setting_.client)),
      timeline_(std::move(timeline)),
      recorder_(setting_.ring),
      random_(setting_.seed) {
  latency_ = Duration(random_.between(5'000'000, 400'000'000));
}

const Parameters& FakeWorker::parameters() const {
  const std::uint32_t number = timeline_.segments[segment_].epoch;
  const auto it = std::find_if(timeline_.epochs.begin(), timeline_.epochs.end(),
                               [&](const EpochShare& e) { return e.epoch == number; });
  CHECK(it != timeline_.epochs.end(), "a segment of epoch " + std::to_string(number));
  return it->parameters;
}

agent::IntervalLabel FakeWorker::label() const {
  const Segment& s = timeline_.segments[segment_];
  agent::IntervalLabel l;
  l.epoch = s.epoch;
  l.phase = s.phase;
  l.guard = s.guard;
  l.drain = state_ == State::draining || state_ == State::done;
  return l;
}

void FakeWorker::open() {
  state_ = State::opening;
  if (setting_.target.is_up() && setting_.reaches_target()) fit_connections(now());
}

void FakeWorker::start_at(Instant t0, Instant begin, Duration drain) {
  state_ = State::opening;
  t0_ = t0;
  begin_ = begin;
  drain_ = drain;
  next_border_ = begin;
}

void FakeWorker::change(ShareTimeline next, std::uint32_t epoch, Instant at) {
  settle();
  if (state_ == State::opening && at < begin_) {
    // What it was to join later is not going to be.
    begin_ = next_border_ = at;
  }
  while (!changes_.empty() && changes_.back().at >= at) changes_.pop_back();
  changes_.push_back({std::move(next), epoch, at});
  if (state_ == State::running) set_next_border(interval_begin_);
  settle();
}

void FakeWorker::lease(Instant end) {
  settle();
  lease_end_ = end;
}

void FakeWorker::stop(Instant at, Duration drain) {
  settle();
  if (state_ == State::running) {
    drain_ = drain;
    stop_at_ = std::min(stop_at_, cut_at(at));
    next_border_ = std::min(next_border_, stop_at_);
  } else if (state_ == State::draining) {
    drain_deadline_ = std::min(drain_deadline_, std::max(at + drain, interval_begin_));
    next_border_ = drain_deadline_;
  } else if (state_ == State::opening) {  // it was to join later
    state_ = State::done;
    next_border_ = kNever;
    setting_.drained();
  }
  settle();
}

void FakeWorker::settle() {
  const Instant until = now();
  while (next_border_ <= until) {
    const Instant border = next_border_;
    pass(border);
    cross(border);
  }
  pass(until);
}

void FakeWorker::cross(Instant border) {
  switch (state_) {
    case State::opening:
      return begin();
    case State::running: {
      const Segment& last = timeline_.segments.back();
      if (border >= stop_at_ || border >= t0_ + last.offset + last.length)
        return begin_drain(border);
      const std::uint32_t epoch_before = timeline_.segments[segment_].epoch;
      const std::size_t segment_before = segment_;
      const bool is_changed = make_changes(border);
      if (!is_changed && segment_ == segment_before && recorder_.should_go_on()) {
        interval_begin_ = border;
        set_next_border(border);
        return;
      }
      Record record = recorder_.close(border, label());
      interval_begin_ = border;
      const std::uint32_t epoch = timeline_.segments[segment_].epoch;
      if (epoch != epoch_before && established_ > 0) fit_connections(border);
      set_next_border(border);
      setting_.closed(std::move(record));
      if (is_changed) setting_.changed_over(epoch, border);
      return;
    }
    case State::draining:
      return end(border);
    case State::created:
    case State::done:
      next_border_ = kNever;
      return;
  }
}

void FakeWorker::begin() {
  state_ = State::running;
  const bool is_changed = make_changes(begin_);
  recorder_.start(t0_, begin_, label());
  interval_begin_ = passed_ = quiet_since_ = begin_;
  if (setting_.target.is_up() && setting_.reaches_target()) fit_connections(begin_);
  set_next_border(begin_);
  if (is_changed) setting_.changed_over(timeline_.segments[segment_].epoch, begin_);
}

// The changes that are due, and the segment in effect at `border`. True: there were changes.
bool FakeWorker::make_changes(Instant border) {
  bool is_changed = false;
  for (; !changes_.empty() && changes_.front().at <= border; changes_.pop_front()) {
    timeline_ = std::move(changes_.front().timeline);
    is_changed = true;
  }
  segment_ = 0;
  while (segment_ + 1 < timeline_.segments.size() &&
         border >= t0_ + timeline_.segments[segment_ + 1].offset)
    ++segment_;
  return is_changed;
}

void FakeWorker::set_next_border(Instant from) {
  const Duration interval = setting_.interval;
  const Instant on_grid = t0_ + ((from - t0_) / interval + 1) * interval;
  const Segment& s = timeline_.segments[segment_];
  // A worker that joins late may do so after the end.
  next_border_ = std::max(from, std::min({on_grid, t0_ + s.offset + s.length, stop_at_}));
  if (!changes_.empty()) next_border_ = std::min(next_border_, cut_at(changes_.front().at));
}

// As agent/worker_loop.cc does it.
Instant FakeWorker::cut_at(Instant at) const {
  return at > interval_begin_ ? at : std::max(now(), interval_begin_);
}

void FakeWorker::fit_connections(Instant now) {
  const std::uint64_t wanted = parameters().load.connections;
  recorder_.set_connections_requested(wanted);
  for (; established_ < wanted; ++established_) recorder_.connection_opened();
  for (; established_ > wanted; --established_) {
    if (in_flight_ >= established_)
      finish(setting_.reaches_target() ? draw_outcome() : Outcome::cancelled, now);
    recorder_.connection_closed(true);
  }
  next_answer_ = kNever;  // another rhythm
}

void FakeWorker::begin_drain(Instant at) {
  state_ = State::draining;
  Record record = recorder_.close(at, label());
  interval_begin_ = quiet_since_ = at;
  drain_deadline_ = at + drain_;
  next_border_ = in_flight_ == 0 ? at : std::min(drain_deadline_, at + latency_);
  setting_.closed(std::move(record));
}

void FakeWorker::end(Instant at) {
  if (in_flight_ > 0 && at < drain_deadline_) {  // still waiting for answers that are late
    next_border_ = drain_deadline_;
    return;
  }
  while (in_flight_ > 0) finish(Outcome::cancelled, at);
  state_ = State::done;
  next_border_ = kNever;
  setting_.closed(recorder_.close(at, label()));
  setting_.drained();
}

// What the connections did between passed_ and `until`: nothing else happens in between.
void FakeWorker::pass(Instant until) {
  if (state_ != State::running && state_ != State::draining) return;
  if (until <= passed_) return;
  const Instant from = std::max(std::exchange(passed_, until), asleep_until_);
  if (until <= from) return;
  if (!setting_.reaches_target()) {
    if (stuck_since_ == kNever) stuck_since_ = from;
    if (may_call() && from < lease_end_)
      while (in_flight_ < established_) send(from);
    if (until - stuck_since_ >= kCallTimeout) lose_connections(Outcome::timed_out, until);
    return;
  }
  if (std::exchange(stuck_since_, kNever) != kNever)
    FakeTarget::received(account_, std::exchange(unheard_, 0));
  // It may have been stopped while the target was lost and came back.
  if (established_ == 0 && setting_.target.is_up() && state_ == State::running &&
      parameters().load.connections > 0)
    fit_connections(from);
  const Instant may_until = may_call() ? std::min(until, lease_end_) : from;
  if (may_until > from) call(from, may_until);
  if (may_until < until) be_quiet(until);
}

// No new requests: what is in flight is answered.
void FakeWorker::be_quiet(Instant until) {
  if (until - quiet_since_ < latency_) return;
  while (in_flight_ > 0) finish(draw_outcome(), until);
}

void FakeWorker::call(Instant from, Instant until) {
  quiet_since_ = until;
  if (established_ == 0) return;
  while (in_flight_ < established_) send(from);
  const Duration rhythm = latency_ / static_cast<std::int64_t>(established_);
  if (next_answer_ == kNever || next_answer_ < from) next_answer_ = from + rhythm;
  for (; next_answer_ <= until; next_answer_ += rhythm) {
    finish(draw_outcome(), next_answer_);
    send(next_answer_);
  }
}

void FakeWorker::send(Instant at) {
  recorder_.request_sent({at, at});
  ++in_flight_;
  Truth& truth = account_.truth;
  ++truth.sent;
  ++truth.sent_in_epoch[timeline_.segments[segment_].epoch];
  if (setting_.reaches_target())
    FakeTarget::received(account_, 1);
  else
    ++unheard_;
  if (!std::exchange(first_request_said_, true)) setting_.first_request(at);
}

void FakeWorker::finish(Outcome outcome, Instant at) {
  const agent::RequestTimes times{at - latency_, at - latency_};
  if (outcome == Outcome::ok)
    recorder_.request_ok(times, at);
  else
    recorder_.request_failed(outcome, 3, name(outcome), times, at);
  --in_flight_;
  ++account_.truth.outcomes[index(outcome)];
  if (outcome == Outcome::ok || outcome == Outcome::application_error)
    FakeTarget::completed(account_, 1);
}

Outcome FakeWorker::draw_outcome() {
  const double draw = random_.unit();
  if (draw < 0.005) return Outcome::timed_out;
  if (draw < 0.01) return Outcome::bad_response;
  return draw < 0.03 ? Outcome::application_error : Outcome::ok;
}

void FakeWorker::lose_connections(Outcome outcome, Instant at) {
  while (in_flight_ > 0) finish(outcome, at);
  unheard_ = 0;
  for (; established_ > 0; --established_) recorder_.connection_closed(true);
  next_answer_ = kNever;
}

void FakeWorker::target_broke() {
  if (state_ != State::running && state_ != State::draining) {
    while (established_ > 0) {
      recorder_.connection_closed(true);
      --established_;
    }
    return;
  }
  lose_connections(Outcome::reset, now());
}

void FakeWorker::target_is_back() {
  const bool wants = state_ == State::opening || state_ == State::running;
  if (wants && setting_.reaches_target()) fit_connections(now());
}

}  // namespace spate::sim
