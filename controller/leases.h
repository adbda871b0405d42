#pragma once

// What the agents of one run may be doing, and until when: the controller's own account of it, by
// its own clock. Pure.
//
// An agent's lease is granted by a heartbeat's reply and counts from the heartbeat's own stamp on
// the agent; here it counts from the reply, and a margin is added, so the agent has always stopped
// before its lease ends here. Between a change being sent and being confirmed an agent may be doing
// the old or the new: the larger counts.
//
// The law: the sum over live leases never exceeds what the run allows at that moment. It is kept by
// asking may_hold() before anything that lets an agent do more: a raise, and a lease for an agent
// whose last one has ended.

#include <cstdint>
#include <vector>

#include "common/clock.h"

namespace spate::controller {

// Of OnControllerLoss drain and stop; `go_on` has the plan's controller_loss_limit.
inline constexpr Duration kShortLease = std::chrono::seconds(10);
// For the ramp to zero at a lease's end, and for clocks that do not run equally fast.
inline constexpr Duration kLeaseMargin = std::chrono::seconds(2);

class Leases {
 public:
  // Nobody has a lease yet.
  explicit Leases(std::size_t agents) : agents_(agents) {}

  // A lease of `length` is on its way to the agent. Never shortens one.
  void renew(std::size_t agent, Duration length, Instant now);
  // The agent knows that its lease ends here.
  void shorten(std::size_t agent, Instant until);
  // The most that the agent may be doing while its lease lives.
  void hold(std::size_t agent, std::uint64_t connections);
  // It has said that it is done: it needs no lease and has none.
  void release(std::size_t agent);

  bool ended(std::size_t agent, Instant now) const { return now >= agents_.at(agent).until; }
  // Of the last lease; long ago if there was none.
  Instant until(std::size_t agent) const { return agents_.at(agent).until; }
  // 0 without a live lease.
  std::uint64_t held(std::size_t agent, Instant now) const;
  std::uint64_t sum(Instant now) const;
  // Whether the sum stays within `limit` if this agent may do `connections`.
  bool may_hold(std::size_t agent, std::uint64_t connections, std::uint64_t limit,
                Instant now) const;

 private:
  struct One {
    std::uint64_t connections = 0;
    Instant until = Instant::min();
  };
  std::vector<One> agents_;
};

}  // namespace spate::controller
