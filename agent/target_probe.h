#pragma once

// Asks a target, before any load, whether it is there, speaks HTTP/2 and knows the method, without
// making a call that it would execute: the request is opened and never finished.

#include "agent/assignment.h"
#include "common/clock.h"
#include "common/result.h"

namespace spate::agent {

// Blocking; call it on a thread of its own choosing. Uses the call's route, method path and
// metadata (without the spate-* keys), not its message. Takes about 300 ms when all is well, at
// most `timeout`.
Result<void> probe_target(const PreparedCall& call, Duration timeout);

}  // namespace spate::agent
