#pragma once

// Whether this machine can do its share, found out before any load: descriptors, local ports, the
// owner's list of targets, the message, and a target that answers. Everything that is wrong is
// listed at once, each with the number needed and the number there is.
//
// check() blocks (names, the target): call it on a thread of its own. It keeps no state; the world
// comes in through PreflightWorld, so that tests can feed numbers.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/assignment.h"
#include "agent/messages.h"
#include "common/endpoint.h"
#include "common/result.h"

namespace spate::agent {

struct PortRange {
  std::uint32_t low = 0;
  std::uint32_t high = 0;  // included

  std::uint64_t size() const { return high < low ? 0 : std::uint64_t{high} - low + 1; }
};

// What the pre-flight asks of the world. real_world() is the only other implementation than the
// tests'.
struct PreflightWorld {
  // Raises the soft limit of open descriptors to the hard one, and returns it.
  std::function<std::uint64_t()> descriptors;
  std::function<PortRange()> local_ports;
  std::function<Result<std::vector<IpAddress>>(const std::string& host)> resolve;
  std::function<Result<std::shared_ptr<const MessageTemplate>>(const std::string& method,
                                                               const std::string& descriptor_set,
                                                               const std::string& message_json)>
      compile;
  std::function<Result<std::shared_ptr<const TlsContext>>(const Endpoint& target)> tls;
  // Whether the call's target answers. Errors name it and its address; not_found: it does not know
  // the method.
  std::function<Result<void>(const PreparedCall&, Duration timeout)> probe;
};

struct PreflightRules {
  AllowList allow;
  std::optional<std::uint64_t> max_connections;  // the owner's caps
  double max_rate_per_s = 0;                     // of requests; 0: none
};

struct PreflightRequest {
  Prepare prepare;
  std::string agent;
  std::uint64_t incarnation = 0;
};

// A change of a run that is live: `run` is what it was prepared with, `assignments` what it has now
// and will have by the changes that are on their way; never empty.
struct ChangeRequest {
  PreflightRequest run;
  EpochPrepare change;
  std::vector<std::shared_ptr<const Assignment>> assignments;
};

struct PreflightResult {
  std::vector<Problem> problems;                 // empty: accepted
  std::shared_ptr<const Assignment> assignment;  // null if refused
};

inline constexpr Duration kProbeTimeout = std::chrono::seconds(5);
// Beside the connections: epoll, timers and wake-ups of each worker; logs, the control stream,
// libraries.
inline constexpr std::uint64_t kDescriptorsPerWorker = 8;
inline constexpr std::uint64_t kDescriptorsOfAgent = 64;

// Connections of the largest epoch, the workers' own, the agent's own.
std::uint64_t descriptors_needed(const Prepare& prepare);

PreflightResult check(const PreflightRequest& request, const PreflightRules& rules,
                      const PreflightWorld& world);
// The same checks, of what is new in it; the assignment is the change's own part of the timeline,
// and shares with the present ones what stays. Nothing has changed yet.
PreflightResult check(const ChangeRequest& request, const PreflightRules& rules,
                      const PreflightWorld& world);

}  // namespace spate::agent
