#pragma once

// What crosses the control stream, as the controller's own values. The wire form is
// proto/agent.proto; the conversion is control_service.cc.

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/clock.h"
#include "common/record.h"

namespace spate::controller {

using StreamId = std::uint64_t;  // of one control stream; never reused

// From an agent.

struct AgentHello {
  std::uint32_t protocol = 0;
  std::string version;
  std::string name;
  std::uint64_t incarnation = 0;
  std::uint32_t cpus = 0;
  std::uint64_t max_descriptors = 0;
  std::string host;
  std::string running;  // run id, if a run is still live on this agent
  std::string peer;     // address the stream came from, without the port; set by the service
};

struct AgentHeartbeat {
  std::int64_t t1_agent_ns = 0;
  std::int64_t offset_ns = 0;  // controller clock - agent clock, the agent's best estimate
  std::int64_t offset_bound_ns = 0;
  std::int64_t t2_controller_ns = 0;  // set by the service on receipt
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

// A message that cannot be right: the stream is closed with this reason.
struct AgentNonsense {
  std::string reason;
};

using AgentMessage = std::variant<AgentHello, AgentHeartbeat, AgentPrepareReply, AgentArmed,
                                  AgentStarted, AgentRecord, AgentFinished, AgentNonsense>;

// To an agent.

struct SendWelcome {
  std::string name;
  Duration heartbeat{};
};

struct SendRejected {
  std::string reason;
};

struct SendHeartbeatReply {
  std::int64_t t1_agent_ns = 0;
  std::int64_t t2_controller_ns = 0;  // t3 is stamped when the message is written
};

struct EpochShare {
  std::uint32_t epoch = 1;
  std::uint64_t connections = 0;
  std::uint64_t calls_per_loop = 0;
  Duration pause{};
};

struct PreparePhase {
  std::uint32_t index = 0;
  std::string name;
  bool measured = true;
  Duration offset{};
  Duration length{};
  std::uint32_t epoch = 1;
};

struct SendPrepare {
  std::string run;
  std::string target_url;
  std::string method;
  std::string message_json;
  std::string descriptor_set;
  Duration timeout{};
  std::vector<std::pair<std::string, std::string>> metadata;
  std::uint32_t threads = 1;
  Duration interval{};
  std::vector<EpochShare> epochs;
  std::vector<PreparePhase> phases;
  std::uint64_t seed = 0;
  std::uint64_t first_connection = 0;
  Duration drain{};
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

using ControllerMessage = std::variant<SendWelcome, SendRejected, SendHeartbeatReply, SendPrepare,
                                       SendStart, SendRecordAck, SendStop>;

}  // namespace spate::controller
