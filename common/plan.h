#pragma once

// A plan: what a user asks for. Values only; reading one from JSON is plan_json.h. Numbers are
// totals for the cluster. A Plan that plan_json returned is valid in itself; whether agents and a
// target can serve it is found out by the pre-flight.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"

namespace spate {

inline constexpr std::uint64_t kMaxConnections = 10'000'000;
inline constexpr std::uint32_t kMaxAgents = 1'000;
inline constexpr std::uint32_t kMaxThreadsPerAgent = 256;
inline constexpr std::size_t kMaxPhases = 1'000;
inline constexpr std::size_t kMaxMessageBytes = 4 * 1024 * 1024;

struct Target {
  std::string url;    // "grpc://host:port", "grpcs://host:port", or "local"
  std::string probe;  // host:port of the bundled target's statistics; empty: a foreign target

  bool is_local() const { return url == "local"; }
  bool operator==(const Target&) const = default;
};

struct Call {
  std::string method;          // "package.Service/Method"
  std::string message_json;    // one JSON object, with templates, compact
  std::string proto;           // path of a .proto file that has the method; read by the client
  std::string descriptor_set;  // path of a FileDescriptorSet that has it
  Duration timeout = std::chrono::seconds(10);
  std::vector<std::pair<std::string, std::string>> metadata;  // lower-case keys

  bool operator==(const Call&) const = default;
};

// What may change from phase to phase; each change is a new epoch.
struct Load {
  std::uint64_t connections = 1;
  std::uint64_t calls_per_loop = 0;  // 0: calls without pause
  Duration pause{};                  // between two loops of one connection

  bool operator==(const Load&) const = default;
};

struct Phase {
  std::string name;
  Duration length{};
  bool measured = true;
  Load load;  // the plan's load with this phase's changes applied

  bool operator==(const Phase&) const = default;
};

// "p(99)<50ms", "max<1s", "mean<5ms" on latency, service_time, send_lag; "rate<0.1%" on errors;
// "rate>1000/s" on requests.
struct Threshold {
  enum class Metric { latency, service_time, send_lag, errors, requests };
  enum class Statistic { quantile, mean, max, rate };
  enum class Comparison { less, greater };
  Metric metric = Metric::latency;
  Statistic statistic = Statistic::quantile;
  double quantile = 0.99;  // for Statistic::quantile
  Comparison comparison = Comparison::less;
  double bound = 0;  // ns; share of 1 for errors; per second for requests
  std::string text;  // as written: "latency p(99)<50ms"

  bool operator==(const Threshold&) const = default;
};

struct Plan {
  std::string name;
  std::string description;
  Target target;
  Call call;
  std::uint32_t agents = 1;
  std::uint32_t threads = 1;  // workers per agent
  Duration interval = std::chrono::seconds(1);
  Duration drain = std::chrono::seconds(5);  // longest wait for answers at the end
  std::uint64_t seed = 0;                    // 0: drawn when the run starts, and stored
  std::vector<Phase> phases;                 // never empty
  std::vector<Threshold> thresholds;

  Duration length() const;           // of all phases
  Duration measured_length() const;  // of the measured ones
  std::uint64_t max_connections() const;
  // Makes the measured phases last `total` together, each in proportion to its planned length.
  void set_measured_length(Duration total);
  bool operator==(const Plan&) const = default;
};

// One epoch per change of the load along the phases: equal neighbours share one. Numbers from 1.
struct PlannedEpoch {
  std::uint32_t number = 1;
  Load load;
};
struct PhaseSchedule {
  std::vector<PlannedEpoch> epochs;
  std::vector<std::uint32_t> epoch_of_phase;  // same size as plan.phases
};
PhaseSchedule schedule(const Plan& plan);

}  // namespace spate
