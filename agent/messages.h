#pragma once

// What an agent and its controller say to each other, as values: the mirror of proto/agent.proto,
// which only the control client knows. Records are common/record.h's.

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "agent/assignment.h"
#include "common/clock.h"
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

struct Hello {
  std::uint32_t protocol = 0;
  std::string version;
  std::string name;
  std::uint64_t incarnation = 0;
  std::uint32_t cpus = 0;
  std::uint64_t max_descriptors = 0;
  std::string host;
  std::string running;  // run that is still live here, or whose records are not all acknowledged
  bool operator==(const Hello&) const = default;
};

struct Heartbeat {
  Instant sent;       // t1
  Duration offset{};  // controller clock - agent clock, best estimate so far
  Duration bound{};   // of the offset; negative: no estimate yet
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

using AgentMessage = std::variant<Hello, Heartbeat, PrepareReply, Armed, Started, Record, Finished>;

// --- controller to agent

struct Welcome {
  std::string name;  // this agent's from now on
  Duration heartbeat{};
};

struct Rejected {
  std::string reason;
};

struct HeartbeatReply {
  Instant sent;  // t1
  ControllerInstant received;
  ControllerInstant replied;
  Instant answered;  // t4, taken by the control client on receipt
};

struct Prepare {
  std::string run;
  std::string target_url;
  std::string method;  // "package.Service/Method"
  std::string message_json;
  std::string descriptor_set;
  Duration timeout{};
  std::vector<std::pair<std::string, std::string>> metadata;
  std::uint32_t threads = 1;
  Duration interval{};
  std::vector<EpochPart> epochs;
  std::vector<PhasePart> phases;
  std::uint64_t seed = 1;
  std::uint64_t first_connection = 0;
  Duration drain = std::chrono::seconds(5);
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

using ControllerMessage =
    std::variant<Welcome, Rejected, HeartbeatReply, Prepare, Start, RecordAck, Stop>;

}  // namespace spate::agent
