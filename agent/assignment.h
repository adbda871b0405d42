#pragma once

// What a worker has to do: its part of the agent's share of a run. Values; made on the control
// thread, immutable afterwards, shared by the workers of a run.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/endpoint.h"
#include "common/timeline.h"

namespace spate::agent {

class MessageTemplate;  // message_template.h; immutable, shared
class TlsContext;       // drivers/tls.h; immutable, shared

struct Assignment {
  std::string run;
  std::string agent;
  std::uint64_t incarnation = 0;
  IpAddress address;        // resolved, and allowed by the agent's owner: the one to connect to
  Endpoint target;          // as the plan names it: the authority
  std::string method_path;  // "/package.Service/Method"
  std::vector<std::pair<std::string, std::string>>
      metadata;  // plan's own, then spate-run, spate-agent, spate-incarnation
  std::shared_ptr<const MessageTemplate> message;
  std::shared_ptr<const TlsContext> tls;  // null: plain
  Duration timeout{};
  Duration interval{};
  ShareTimeline timeline;
  std::uint64_t seed = 1;
  std::uint64_t first_connection = 0;  // cluster-wide number of the agent's first connection
  std::uint32_t workers = 1;
};

}  // namespace spate::agent
