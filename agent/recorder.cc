#include "agent/recorder.h"

#include <utility>

#include "common/check.h"

namespace spate::agent {

Recorder::Recorder(std::shared_ptr<SlotRing> ring) : ring_(std::move(ring)) { take_slot(); }

void Recorder::take_slot() {
  slot_ = ring_ ? ring_->take() : nullptr;
  if (!slot_) {
    if (!own_) own_ = std::make_unique<OpenSlot>();
    slot_ = own_.get();
  }
  slot_->ordinal = closed_ + 1;
  slot_->connections_requested = requested_;
  slot_->connections_established = established_;
}

void Recorder::start(Instant t0, Instant begin, IntervalLabel label) {
  CHECK(!started_, "a recorder starts once");
  started_ = true;
  t0_ = t0;
  open(begin, label);
}

void Recorder::open(Instant begin, IntervalLabel label) {
  begin_ = begin;
  OpenSlot& s = *slot_;
  s.label = label;
  s.t0_ns = to_ns(t0_);
  s.start_ns = (begin - t0_).count();
  s.counters.in_flight_begin = in_flight_;
  s.has_begun = true;
  in_order();
  s.state.store(OpenSlot::open, std::memory_order_release);
}

Record Recorder::close(Instant at, IntervalLabel next) {
  CHECK(started_, "close() before start()");
  CHECK(at >= begin_, "an interval would end before it began");
  OpenSlot& s = *slot_;
  s.end_ns = (at - t0_).count();
  in_order();
  s.state.store(OpenSlot::closed, std::memory_order_release);
  // What is kept is what would be found after a kill: one way from a slot to a record.
  Result<Record> closed = record_of(s);
  CHECK(closed.has_value(), closed.error().message);
  CHECK(closed->counters.in_flight_end == in_flight_, std::to_string(in_flight_));
  closed->errors = std::exchange(errors_, {});
  ++closed_;
  if (slot_ == own_.get()) {
    own_->clear();
    own_->state.store(OpenSlot::free, std::memory_order_relaxed);
  }
  take_slot();
  open(at, next);
  return *std::move(closed);
}

void Recorder::add_error(Outcome outcome, std::uint32_t code, std::string_view text) {
  const std::size_t place = errors_.add(outcome, code, text);
  slot_->add_error(place, errors_.classes()[place]);
}

}  // namespace spate::agent
