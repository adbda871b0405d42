#pragma once

// What is written to the store, as values: the coordinator makes them, the store commits them in
// the order in which they came.

#include <cstdint>
#include <string>
#include <variant>

#include "common/record.h"
#include "common/timeline.h"
#include "controller/run_info.h"

namespace spate::controller {

// What the list of runs shows besides RunInfo.
struct RunOutcome {
  std::uint64_t duplicates = 0;
  std::string verdict;  // empty while the run is live
  std::uint64_t requests = 0;
};

// Everything of one incarnation of an agent up to `seq` is stored.
struct Mark {
  std::string run;
  std::string agent;
  std::uint64_t incarnation = 0;
  std::uint64_t seq = 0;

  bool operator==(const Mark&) const = default;
};

namespace store_op {

// Makes the run's row, or brings it up to date.
struct PutRun {
  RunInfo info;
  RunOutcome outcome;
};
// The record and its mark, in one transaction.
struct PutRecord {
  Record record;
  std::string bytes;     // as they came
  bool is_late = false;  // of a run that has ended: its row is brought up to date, too
};
// A process of an agent that died in a run that has ended, known only now.
struct PutDead {
  std::string run;
  std::string agent;
  DeadIncarnation dead;
};
struct PutSample {
  std::string run;
  TargetSample sample;
};
struct PutEvent {
  std::string run;
  RunEvent event;
};
struct PutChange {
  std::string run;
  Change change;
};
// What there is of these already stays.
struct PutEpochs {
  std::string run;
  Timeline timeline;
};

// The types that the run's messages are made of; once per run.
struct PutDescriptors {
  std::string run;
  std::string descriptor_set;
};
// The controller is alive.
struct PutAlive {
  std::int64_t wall_ms = 0;
};

}  // namespace store_op

using StoreOp = std::variant<store_op::PutRun, store_op::PutRecord, store_op::PutDead,
                             store_op::PutSample, store_op::PutEvent, store_op::PutChange,
                             store_op::PutEpochs, store_op::PutDescriptors, store_op::PutAlive>;

}  // namespace spate::controller
