#pragma once

// May a run's numbers be believed? Pure. The verdict is about the measurement, not about the
// target: a target that answers every request with an error gives a VALID run. The limits say why
// they are where they are.

#include <cstdint>
#include <string>
#include <vector>

#include "controller/aggregate.h"

namespace spate::controller {

// Fewer connections than this share of those asked for is another experiment than the plan's.
inline constexpr double kMinEstablishedShare = 0.99;
// A request that starts this much after its instant: the generator did not keep pace. 10 ms is a
// late wake-up on a busy machine and shows in a p99 of the same order; 100 ms is beyond what a
// person would call the same schedule.
inline constexpr std::int64_t kSendLagSuspectNs = 10'000'000;
inline constexpr std::int64_t kSendLagInvalidNs = 100'000'000;
// Above this share of what its workers can use, an agent queues its own work, and its latencies
// contain its own waiting.
inline constexpr double kAgentCpuShareMax = 0.90;
// Of an agent's requests. Connections that all begin at one instant, under a cap far above what
// they will do, are held back for a moment too: that is no other load than the plan's.
inline constexpr double kHeldShareMax = 0.01;
// Agents that start further apart than this do not load the target together in the first interval.
inline constexpr std::int64_t kStartSkewMaxNs = 50'000'000;
// A clock known only this well can put a record into the wrong interval of the shared time axis.
inline constexpr std::int64_t kClockBoundMaxNs = 100'000'000;
// Longer lists are cut, and say so.
inline constexpr std::size_t kMaxReasonsPerRule = 5;

struct VerdictFacts {
  bool ended = true;  // false while the run is live: what only an end can tell is not judged
  RunEnd end = RunEnd::completed;
  std::string end_reason;
  std::uint64_t finished_requests = 0;

  struct LostAgent {
    std::string agent;
    std::string reason;
    std::int64_t at_ns = 0;
    bool at_known = false;
  };
  std::vector<LostAgent> lost;
  std::vector<Gap> gaps;
  std::vector<Absence> absences;
  std::uint64_t broken_laws = 0;
  std::string first_broken_law;
  std::vector<std::string> error_events;
  Balance balance = Balance::balanced;
  std::string balance_line;  // the line that says why it is not balanced

  struct {
    std::uint64_t requested = 0;
    std::uint64_t established = 0;
    std::string phase;
    std::int64_t at_ns = 0;
  } worst_connections;  // of the measured intervals; requested 0: none
  std::int64_t send_lag_p99_ns = 0;
  struct {
    std::string agent;
    double share = 0;  // of the CPU that its workers could use
    std::uint32_t threads = 1;
  } busiest_agent;
  struct CappedAgent {
    std::string agent;
    double max_rate_per_s = 0;
    std::uint64_t sent = 0;
    std::uint64_t held = 0;
    std::int64_t held_ns_mean = 0;
  };
  std::vector<CappedAgent> capped;  // agents whose owners' caps were reached
  std::int64_t start_skew_ns = 0;
  std::int64_t start_skew_bound_ns = 0;
  struct {
    std::string agent;
    std::int64_t bound_ns = 0;
  } worst_clock;
  std::uint64_t target_restarts = 0;
};

struct Judgement {
  Verdict verdict = Verdict::valid;
  std::vector<std::string> reasons;  // sentences; those for INVALID first
};

Judgement judge(const VerdictFacts& facts);

}  // namespace spate::controller
