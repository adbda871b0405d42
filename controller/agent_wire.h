#pragma once

// Between agent.proto and the controller's own values. Pure.

#include "controller/agent_events.h"

namespace spate::agent::v1 {
class AgentMessage;
class ControllerMessage;
}  // namespace spate::agent::v1

namespace spate::controller {

// What cannot be right becomes AgentNonsense.
AgentMessage from_wire(const agent::v1::AgentMessage& message);
// `now_ns` is the third stamp of a heartbeat reply.
agent::v1::ControllerMessage to_wire(const ControllerMessage& message, std::uint64_t term,
                                     std::int64_t now_ns);

}  // namespace spate::controller
