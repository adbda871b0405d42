#pragma once

// Parameters: everything that may change while a run is live. A plan gives the first ones; phases,
// rotations and changes made during the run each patch some of them. Values only; reading them from
// JSON or from `path=value` is plan_json.h.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"

namespace spate {

using Metadata = std::vector<std::pair<std::string, std::string>>;  // lower-case keys

struct Call {
  std::string method;          // "package.Service/Method"
  std::string message_json;    // one JSON object, with templates, compact
  std::string proto;           // path of a .proto file that has the method; read by the client
  std::string descriptor_set;  // path of a FileDescriptorSet that has it
  Duration timeout = std::chrono::seconds(10);
  bool compress = false;  // gzip the messages that are sent
  Metadata metadata;

  bool operator==(const Call&) const = default;
};

struct Load {
  std::uint64_t connections = 1;
  std::uint64_t calls_per_loop = 0;  // 0: calls without pause
  Duration pause{};                  // between two loops of one connection

  bool operator==(const Load&) const = default;
};

struct Parameters {
  std::string target_url;  // "grpc://host:port", "grpcs://host:port"
  Call call;
  Load load;
  std::uint32_t threads = 1;  // workers per agent
  bool paused = false;        // connections stay, no request is sent

  bool operator==(const Parameters&) const = default;
};

// Some parameters' new values; absent: unchanged. What is not here may not change during a run.
struct ParameterPatch {
  std::optional<std::string> target_url;
  std::optional<std::string> method;
  std::optional<std::string> message_json;
  std::optional<Duration> timeout;
  std::optional<bool> compress;
  std::optional<Metadata> metadata;
  std::optional<std::uint64_t> connections;  // total of the agents that the patch is for
  std::optional<std::uint64_t> calls_per_loop;
  std::optional<Duration> pause;
  std::optional<std::uint32_t> threads;
  std::optional<bool> paused;

  bool operator==(const ParameterPatch&) const = default;
};

// `connections` is taken as it stands: dividing a total among agents is the timeline's business.
Parameters patched(Parameters parameters, const ParameterPatch& patch);

}  // namespace spate
