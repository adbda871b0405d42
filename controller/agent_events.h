#pragma once

// What crosses the control stream, as the controller's own values. The wire form is
// proto/agent.proto; the conversion is control_service.cc.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/clock.h"
#include "common/record.h"
#include "common/timeline.h"

namespace spate::controller {

using StreamId = std::uint64_t;  // of one control stream; never reused

// From an agent.

struct AgentAccount {
  std::string run;
  std::uint64_t incarnation = 0;
  std::uint64_t last_seq = 0;
  std::string cause;     // why that incarnation ended; empty: it lives
  bool waiting = false;  // some of its records are not acknowledged
};

struct AgentHello {
  std::uint32_t protocol = 0;
  std::string version;
  std::string name;
  std::uint64_t incarnation = 0;
  std::uint32_t cpus = 0;
  std::uint64_t max_descriptors = 0;
  std::string host;
  std::string running;                  // run id, if a run is still live on this agent
  std::string agent_id;                 // of its state folder; the name is only a label
  std::uint64_t nonce = 0;              // of the process
  std::string cluster;                  // the store that `term` belongs to; empty: none seen yet
  std::uint64_t term = 0;               // highest seen
  std::uint32_t epoch = 0;              // in effect in `running`
  std::uint32_t committed = 0;          // of the last change that it has, or the last it began with
  std::int64_t run_start_agent_ns = 0;  // T of `running`, its own clock; 0: not started
  std::vector<AgentAccount> accounts;   // records that are not all acknowledged
  std::string peer;  // address the stream came from, without the port; set by the service
};

struct AgentHeartbeat {
  std::int64_t t1_agent_ns = 0;
  std::int64_t offset_ns = 0;  // controller clock - agent clock, the agent's best estimate
  std::int64_t offset_bound_ns = 0;
  std::int64_t t2_controller_ns = 0;      // set by the service on receipt
  std::int64_t wall_clock_offset_ns = 0;  // wall clock - agent clock; 0: not known
  std::string trouble = {};               // why the spool cannot be written; empty: it can
  std::uint32_t certain = 0;  // of the last change that it has; not of one that came late before it
                              // is in effect
};

struct AgentProblem {
  std::string what;
  std::string text;
  std::uint64_t needed = 0;
  std::uint64_t available = 0;
};

struct AgentPrepareReply {
  std::string run;
  std::vector<AgentProblem> problems;
  double max_rate_per_s = 0;  // its owner's cap on requests; 0: none
};

struct AgentArmed {
  std::string run;
  std::uint64_t connections_established = 0;
  std::uint64_t connections_requested = 0;
  std::vector<ErrorClass> connect_errors;
};

struct AgentStarted {
  std::string run;
  std::int64_t at_controller_ns = 0;
  std::int64_t offset_bound_ns = 0;
};

struct AgentRecord {
  Record record;
  std::string bytes;  // as they came, for the store
};

struct AgentFinished {
  std::string run;
  std::uint64_t last_seq = 0;
  std::string reason;
};

struct AgentEpochReply {
  std::string run;
  std::uint32_t epoch = 0;
  std::vector<AgentProblem> problems;  // empty: prepared
};

struct AgentEpochApplied {
  std::string run;
  std::uint32_t epoch = 0;
  Duration at{};  // since T, when its workers changed over
};

// A message that cannot be right: the stream is closed with this reason.
struct AgentNonsense {
  std::string reason;
};

using AgentMessage =
    std::variant<AgentHello, AgentHeartbeat, AgentPrepareReply, AgentArmed, AgentStarted,
                 AgentRecord, AgentFinished, AgentEpochReply, AgentEpochApplied, AgentNonsense>;

// To an agent.

struct SendWelcome {
  std::string name;
  Duration heartbeat{};
  std::string cluster = {};
};

struct SendRejected {
  std::string reason;
};

struct SendHeartbeatReply {
  std::int64_t t1_agent_ns = 0;
  std::int64_t t2_controller_ns = 0;  // t3 is stamped when the message is written
  // The right to generate load for `leased_run` for `lease` from t1 on; empty: none.
  std::string leased_run = {};
  Duration lease{};
};

struct SendPrepare {
  std::string run;
  ShareTimeline timeline;
  std::string descriptor_set;
  Duration interval{};
  std::uint64_t seed = 0;
  std::uint64_t first_connection = 0;
  Duration drain{};
  OnControllerLoss on_controller_loss = OnControllerLoss::go_on;
  Duration lease{};
};

struct SendEpochPrepare {
  std::string run;
  std::uint32_t epoch = 0;  // the first one that the newest change in it makes
  Duration from{};          // since T
  ShareTimeline timeline;
};

struct SendEpochCommit {
  std::string run;
  std::uint32_t epoch = 0;
  std::optional<Duration> hold_from = {};  // since T: the agent's lease ends there
};

struct SendStart {
  std::string run;
  std::int64_t at_controller_ns = 0;
};

struct SendRecordAck {
  std::string run;
  std::uint64_t incarnation = 0;
  std::uint64_t seq = 0;
};

struct SendStop {
  std::string run;
  Duration drain{};
  std::string reason;
};

using ControllerMessage =
    std::variant<SendWelcome, SendRejected, SendHeartbeatReply, SendPrepare, SendStart,
                 SendRecordAck, SendStop, SendEpochPrepare, SendEpochCommit>;

}  // namespace spate::controller
