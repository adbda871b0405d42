#include "agent/recorder.h"

#include <utility>

#include "common/check.h"

namespace spate::agent {
namespace {

void put_label(Record& record, const IntervalLabel& label) {
  record.epoch = label.epoch;
  record.phase = label.phase;
  record.drain = label.drain;
  record.guard = label.guard;
}

}  // namespace

void Recorder::start(Instant t0, Instant begin, IntervalLabel label) {
  CHECK(!started_, "a recorder starts once");
  started_ = true;
  t0_ = t0;
  begin_ = begin;
  open_.counters.in_flight_begin = in_flight_;
  put_label(open_, label);
}

Record Recorder::close(Instant at, IntervalLabel next) {
  CHECK(started_, "close() before start()");
  CHECK(at >= begin_, "an interval would end before it began");
  Record closed = std::exchange(open_, Record{});
  closed.start = begin_ - t0_;
  closed.length = at - begin_;
  closed.counters.in_flight_end = in_flight_;
  closed.gauges.connections_requested = requested_;
  closed.gauges.connections_established = established_;
  begin_ = at;
  open_.counters.in_flight_begin = in_flight_;
  put_label(open_, next);
  return closed;
}

}  // namespace spate::agent
