#pragma once

// What the wire does between the two ends' values, without the wire. proto/agent.proto is in
// between in a process; tests/unit checks that it keeps every field.

#include "agent/messages.h"
#include "controller/agent_events.h"

namespace spate::sim {

// `received` is the second stamp of a heartbeat; `peer` where the stream came from.
controller::AgentMessage to_controller(agent::AgentMessage message, Instant received,
                                       const std::string& peer);
// `replied` and `answered` are the third and the fourth one.
agent::ControllerMessage to_agent(controller::ControllerMessage message, Instant replied,
                                  Instant answered);

// Says what a message is about, for the trace.
std::string describe(const agent::AgentMessage& message);
std::string describe(const controller::ControllerMessage& message);

}  // namespace spate::sim
