#pragma once

// Do the agents and the target count the same? Pure. Per agent and incarnation, with the agent's
// totals from its stored records and the target's own counters, summed over the target's boots:
//
//   answered (ok + application errors + bad responses)  <=  received by the target  <=  sent
//
// with equality on the right when everything was answered. BALANCED: equal. EXPLAINED: not equal,
// and no further apart than the requests whose fate allows it (timed out, refused, reset, protocol
// error, cancelled, in flight), or records or target counters are known to be missing. UNBALANCED:
// anything else.
//
// Each process of an agent (incarnation) is checked by itself. What was in flight when one died has
// an unknown outcome: listed, and EXPLAINED. So is what it sent in the interval it died in, if that
// died with it (power loss).

#include <cstdint>
#include <string>
#include <vector>

#include "controller/aggregate.h"

namespace spate::controller {

// With more agents than this, only those that do not balance get a line.
inline constexpr std::size_t kMaxBalancedLines = 50;

struct BalanceFacts {
  struct Agent {
    std::string agent;
    std::uint64_t incarnation = 0;
    std::uint64_t sent = 0;
    std::array<std::uint64_t, kOutcomeCount> outcomes{};
    std::uint64_t in_flight_end = 0;
    bool lost = false;                // its last records never came
    bool records_missing = false;     // gaps: more was sent than is stored
    std::string died;                 // not empty: this process died in the run, of that
    bool last_interval_kept = false;  // what it did in the interval it died in is stored
    std::uint64_t received = 0;       // by the target, of this agent
    std::uint64_t completed = 0;
  };
  std::vector<Agent> agents;

  bool ended = true;
  bool target_known = false;   // there are samples
  bool probe_planned = false;  // the plan names a probe
  std::string target;          // for the text
  std::uint64_t target_restarts = 0;
  bool head_unseen = false;           // it was first seen after the run's start
  bool tail_unseen = false;           // the target's last sample is older than the last records
  std::uint64_t sent_unseen_max = 0;  // sent while no sample could see it: at most so many
  std::uint64_t records = 0;
  std::uint64_t gaps = 0;
  std::uint64_t duplicates = 0;
  std::uint64_t broken_laws = 0;
  std::vector<std::string> broken_law_texts;

  bool has_blind_spots() const { return target_restarts > 0 || head_unseen || tail_unseen; }
};

struct BalanceResult {
  Balance balance = Balance::balanced;
  std::vector<std::string> lines;  // what was checked; each difference with its cause
  std::string worst_line;          // the first line that is not balanced
};

BalanceResult check_balance(const BalanceFacts& facts);

}  // namespace spate::controller
