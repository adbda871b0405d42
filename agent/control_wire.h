#pragma once

// proto/agent.proto <-> agent/messages.h. Pure. Only the control client and its tests include this.

#include "agent/messages.h"
#include "common/result.h"

namespace spate::agent::v1 {
class AgentMessage;
class ControllerMessage;
}  // namespace spate::agent::v1

namespace spate::agent {

v1::AgentMessage to_wire(const AgentMessage& message);
// `received` is the fourth stamp of a heartbeat. Errors: a body this version does not know, or an
// incomplete one.
Result<FromController> from_wire(const v1::ControllerMessage& message, Instant received);

}  // namespace spate::agent
