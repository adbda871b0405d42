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
#include "common/parameters.h"

namespace spate {

inline constexpr std::uint64_t kMaxConnections = 10'000'000;
inline constexpr std::uint32_t kMaxAgents = 1'000;
inline constexpr std::uint32_t kMaxThreadsPerAgent = 256;
inline constexpr std::size_t kMaxPhases = 1'000;
inline constexpr std::size_t kMaxMessageBytes = 4 * 1024 * 1024;

// The bundled target that `spate run --local` starts, and its other side.
inline constexpr std::string_view kLocalUrl = "local";
inline constexpr std::string_view kLocalTlsUrl = "grpcs://local";
inline bool is_local_url(std::string_view url) { return url == kLocalUrl || url == kLocalTlsUrl; }

struct Target {
  std::string url;    // "grpc://host:port", "grpcs://host:port", or a local one
  std::string probe;  // host:port of the bundled target's statistics; empty: a foreign target

  bool is_local() const { return is_local_url(url); }
  bool operator==(const Target&) const = default;
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

// A rotation: parameter sets that take turns. In period k, agent i of n sets holds set (i + k) mod
// n across agents, or every agent holds set k mod n across the run.
struct Rotation {
  enum class Across { run, agents };
  struct Set {
    std::string name;      // as written, or "set-1" …
    ParameterPatch patch;  // over the plan's parameters; connections is the cluster's total
    bool operator==(const Set&) const = default;
  };
  Duration every{};       // length of a period; of those by wall clock, too
  std::vector<Set> sets;  // two or more
  Across across = Across::run;
  Duration guard{};  // after each change-over: not measured
  bool goes_by_wall_clock() const { return !at.empty(); }
  std::string at;            // "HH:MM": change-overs at this wall time (and every `every` from it);
                             // empty: by elapsed time
  std::string zone = "UTC";  // of `at`
  std::string zone_rules;    // the zone's, as they were when the plan was read; empty for UTC
  bool operator==(const Rotation&) const = default;
};

// What an agent does whose controller is away.
enum class OnControllerLoss {
  go_on,  // "continue": go on for `controller_loss_limit`, then ramp to zero and hold
  drain,  // end its part of the run in good order when the short lease has ended
  stop,   // cut it off when the short lease has ended
};

std::string name(OnControllerLoss loss);  // as in a plan: "continue" …

// Whether the share of a lost agent moves to the others once its lease has surely ended.
enum class Redistribute { never, after_fence };

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
  std::optional<Rotation> rotation;
  OnControllerLoss on_controller_loss = OnControllerLoss::go_on;
  Duration controller_loss_limit = std::chrono::minutes(10);
  Redistribute redistribute = Redistribute::never;

  Duration length() const;                // of all phases
  Duration measured_length() const;       // of the measured ones
  std::uint64_t max_connections() const;  // never more at any instant
  // Makes the measured phases last `total` together, each in proportion to its planned length.
  void set_measured_length(Duration total);
  bool operator==(const Plan&) const = default;
};

}  // namespace spate
