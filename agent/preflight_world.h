#pragma once

#include "agent/drivers/tls.h"
#include "agent/preflight.h"

namespace spate::agent {

// The real world for a pre-flight: this process, getaddrinfo, the flood's own template and probe.
// `tls` are the agent's files; without them a grpcs:// target is refused.
PreflightWorld real_world(TlsFiles tls);

}  // namespace spate::agent
