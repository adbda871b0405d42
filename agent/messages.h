#pragma once

// What an agent and its controller say to each other, as values: the mirror of proto/agent.proto,
// which only the control client knows. Records are common/record.h's.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "agent/assignment.h"
#include "common/clock.h"
#include "common/plan.h"
#include "common/record.h"

namespace spate::agent {

// The controller's CLOCK_BOOTTIME. A type of its own: it can be compared with an Instant of this
// machine only through ClockSync.
struct ControllerClock {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<ControllerClock>;
  static constexpr bool is_steady = true;
};
using ControllerInstant = ControllerClock::time_point;

// --- agent to controller

// One incarnation's records of one run that are not all acknowledged yet.
struct Account {
  std::string run;
  std::uint64_t incarnation = 0;
  std::uint64_t last_seq = 0;
  std::string cause;     // why that incarnation ended; empty: it lives
  bool waiting = false;  // some of its records are not acknowledged
  bool operator==(const Account&) const = default;
};

struct Hello {
  std::uint32_t protocol = 0;
  std::string version;
  std::string name;
  std::uint64_t incarnation = 0;
  std::uint32_t cpus = 0;
  std::uint64_t max_descriptors = 0;
  std::string host;
  std::string running;   // run that is still live here, or whose records are not all acknowledged
  std::string agent_id;  // of the state folder; the name is only a label
  std::uint64_t nonce = 0;           // of this process
  std::string cluster;               // what `term` belongs to; empty: none seen yet
  std::uint64_t term = 0;            // highest seen
  std::uint32_t epoch = 0;           // in effect in `running`
  std::uint32_t committed = 0;       // as of EpochBook
  std::optional<Instant> run_start;  // T of `running`
  std::vector<Account> accounts;
  bool operator==(const Hello&) const = default;
};

struct Heartbeat {
  Instant sent;                  // t1
  Duration offset{};             // controller clock - agent clock, best estimate so far
  Duration bound{};              // of the offset; negative: no estimate yet
  std::string trouble = {};      // why the spool cannot be written; empty: it can
  std::uint32_t certain = 0;     // as of EpochBook
  Duration wall_clock_offset{};  // of this machine; set by the control client when it is sent
  bool operator==(const Heartbeat&) const = default;
};

// A reason why this agent cannot do its share.
struct Problem {
  std::string what;  // "descriptors", "connections", "ports", "allow", "target", "method",
                     // "message", "plan", "busy"
  std::string text;  // what was wrong, where, what to do
  std::uint64_t needed = 0;
  std::uint64_t available = 0;
  bool operator==(const Problem&) const = default;
};

struct PrepareReply {
  std::string run;
  std::vector<Problem> problems;
  double max_rate_per_s = 0;  // the owner's cap on requests; 0: none
  bool operator==(const PrepareReply&) const = default;
};

struct Armed {
  std::string run;
  std::uint64_t established = 0;
  std::uint64_t requested = 0;
  ErrorTally errors;
  bool operator==(const Armed&) const = default;
};

struct Started {
  std::string run;
  ControllerInstant at;  // the first request's instant
  Duration bound{};
  bool operator==(const Started&) const = default;
};

struct Finished {
  std::string run;
  std::uint64_t last_seq = 0;  // 0: no record
  std::string reason;          // "completed", "stopped", or what went wrong
  bool operator==(const Finished&) const = default;
};

// Whether a change can be served; nothing has changed yet.
struct EpochReply {
  std::string run;
  std::uint32_t epoch = 0;
  std::vector<Problem> problems;
  bool operator==(const EpochReply&) const = default;
};

struct EpochApplied {
  std::string run;
  std::uint32_t epoch = 0;
  Duration at{};  // since T, when the workers changed over
  bool operator==(const EpochApplied&) const = default;
};

using AgentMessage = std::variant<Hello, Heartbeat, PrepareReply, Armed, Started, Record, Finished,
                                  EpochReply, EpochApplied>;

// --- controller to agent

struct Welcome {
  std::string name;  // this agent's from now on
  Duration heartbeat{};
  std::string cluster = {};
};

struct Rejected {
  std::string reason;
};

struct HeartbeatReply {
  Instant sent;  // t1
  ControllerInstant received;
  ControllerInstant replied;
  Instant answered;  // t4, taken by the control client on receipt
  // The right to generate load for `leased_run` until sent + lease.
  std::string leased_run = {};
  Duration lease{};
};

struct Prepare {
  std::string run;
  ShareTimeline timeline;
  std::string descriptor_set;
  Duration interval{};
  std::uint64_t seed = 1;
  std::uint64_t first_connection = 0;
  Duration drain = std::chrono::seconds(5);
  OnControllerLoss on_controller_loss = OnControllerLoss::go_on;
  Duration lease = std::chrono::minutes(10);  // the first one, from the start on; 0: none is needed
};

// A change: the timeline from `from` on. Nothing changes before the commit.
struct EpochPrepare {
  std::string run;
  std::uint32_t epoch = 0;  // the first one it makes
  Duration from{};          // since T
  ShareTimeline timeline;
};

struct EpochCommit {
  std::string run;
  std::uint32_t epoch = 0;
  // Since T: the lease ends there, if it would end later.
  std::optional<Duration> hold_from = {};
};

struct Start {
  std::string run;
  ControllerInstant at;
};

struct RecordAck {
  std::string run;
  std::uint64_t incarnation = 0;
  std::uint64_t seq = 0;  // everything up to and including this one is committed
};

struct Stop {
  std::string run;
  Duration drain{};  // 0: cut off at once
  std::string reason;
};

using ControllerMessage = std::variant<Welcome, Rejected, HeartbeatReply, Prepare, Start, RecordAck,
                                       Stop, EpochPrepare, EpochCommit>;

// What a controller said, and in which term; 0: it said none.
struct FromController {
  std::uint64_t term = 0;
  ControllerMessage message;
};

}  // namespace spate::agent
