#pragma once

// What the coordinator is told, and what it wants done: values only. Whoever runs a coordinator
// (controller.cc in a process, the simulation in a test) turns the outside world into events and
// carries out the actions, in their order.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/result.h"
#include "controller/agent_events.h"
#include "controller/operator_api.h"
#include "controller/store_op.h"
#include "controller/store_space.h"

namespace spate::controller {

// Names one request of an operator until it is answered, or one watcher until it is told the end.
// Given by whoever runs the coordinator; never reused.
using Token = std::uint64_t;

namespace event {

struct StreamOpened {
  StreamId stream = 0;
};
struct StreamClosed {
  StreamId stream = 0;
};
struct FromAgent {
  StreamId stream = 0;
  AgentMessage message;
};

// The store has committed everything up to these marks.
struct Committed {
  std::vector<Mark> marks;
};
// Answers action::Barrier.
struct BarrierPassed {
  std::uint64_t barrier = 0;
};
struct StoreInTrouble {
  std::string why;
};
struct StoreRecovered {};
struct StoreNote {
  RunEvent::Severity severity = RunEvent::Severity::warning;
  std::string text;
};
struct StoreMeasured {
  StoreSpace space;
};
// Another controller has the store now: nothing more can be written.
struct StoreTakenOver {
  std::uint64_t term = 0;  // of the other one
};

// Answers action::StartSampling, again and again, and action::TakeFinalSample, once.
struct Sampled {
  std::string run;
  std::optional<TargetSample> sample;  // at_ns is left to the coordinator
  std::string error;                   // without a sample
  Instant at{};                        // of the answer
  bool is_final = false;
};

struct Submit {
  Token token = 0;
  SubmitOrder order;
  std::int64_t wall_ms = 0;
  std::uint64_t random = 0;  // for the run's id, and its seed if the plan has none
};
// The client of a Submit left before it was answered.
struct Withdraw {
  Token token = 0;
};
struct Watch {
  Token watcher = 0;
  std::string run;  // empty: any live one
};
struct WatcherLeft {
  Token watcher = 0;
};
struct Stop {
  Token token = 0;
  std::string run;
  bool at_once = false;
};
struct ChangeRun {
  Token token = 0;
  ChangeRequest request;
  std::int64_t wall_ms = 0;
};
struct AskStatus {
  Token token = 0;
  std::string run;
};
struct ListRuns {
  Token token = 0;
  std::string run;  // empty: all
};
struct ListAgents {
  Token token = 0;
};

// Every 100 ms or so.
struct Tick {
  std::int64_t wall_clock_offset_ns = 0;  // wall clock - this machine's clock; 0: not known
};
struct ShutDown {};

}  // namespace event

using Event =
    std::variant<event::StreamOpened, event::StreamClosed, event::FromAgent, event::Committed,
                 event::BarrierPassed, event::StoreInTrouble, event::StoreRecovered,
                 event::StoreNote, event::StoreMeasured, event::StoreTakenOver, event::Sampled,
                 event::Submit, event::Withdraw, event::Watch, event::WatcherLeft, event::Stop,
                 event::ChangeRun, event::AskStatus, event::ListRuns, event::ListAgents,
                 event::Tick, event::ShutDown>;

namespace action {

// A stream that broke a moment ago is ignored.
struct Send {
  StreamId stream = 0;
  ControllerMessage message;
};
// After what was sent before.
struct CloseStream {
  StreamId stream = 0;
  std::string reason;
};

struct Write {
  StoreOp op;
};
// To be answered by BarrierPassed when every Write before it is committed.
struct Barrier {
  std::uint64_t barrier = 0;
};

// Look at the target every `interval`, counted from `start`, and once at once.
struct StartSampling {
  std::string run;
  std::string probe;  // HOST:PORT
  Instant start{};
  Duration interval{};
};
// Ends the regular samples.
struct TakeFinalSample {
  std::string run;
};
struct StopSampling {
  std::string run;
};

struct AnswerSubmit {
  Token token = 0;
  SubmitAnswer answer;
};
struct AnswerStop {
  Token token = 0;
  Result<void> answer;
};
struct AnswerChange {
  Token token = 0;
  ChangeAnswer answer;
};
// What there is of it live; what only the store knows is added by whoever answers: all of a run
// that is not live, and the comparison of a canary.
struct AnswerStatus {
  Token token = 0;
  std::string run;
  std::optional<RunStatus> live;
};
// The live ones; what the store has besides is added by whoever answers.
struct AnswerRuns {
  Token token = 0;
  std::string wanted;
  std::vector<RunRow> live;
};
struct AnswerAgents {
  Token token = 0;
  std::vector<AgentRow> agents;
};

// WatchEnd is a watcher's last line.
struct Show {
  std::vector<Token> watchers;
  WatchLine line;
};
// The run has ended: its end is to be shown from the store.
struct ShowStoredEnd {
  Token watcher = 0;
  std::string run;
};
struct RefuseWatcher {
  Token watcher = 0;
  Error error;
};

// For the process's own log.
struct Log {
  RunEvent::Severity severity = RunEvent::Severity::info;
  std::string text;
};
// The last action: nothing is answered any more. With code 0 the process ends when everything
// written is committed, otherwise at once.
struct Exit {
  int code = 0;
  std::string reason;  // also what agents and clients are told
};

}  // namespace action

using Action =
    std::variant<action::Send, action::CloseStream, action::Write, action::Barrier,
                 action::StartSampling, action::TakeFinalSample, action::StopSampling,
                 action::AnswerSubmit, action::AnswerStop, action::AnswerChange,
                 action::AnswerStatus, action::AnswerRuns, action::AnswerAgents, action::Show,
                 action::ShowStoredEnd, action::RefuseWatcher, action::Log, action::Exit>;

}  // namespace spate::controller
