#pragma once

// The offset between the controller's clock and this machine's, from four-stamp exchanges. Pure.
//
// An exchange with a short round trip bounds the offset tightly: it is right to within half the
// round trip, however asymmetric the path was. The estimate is the exchange whose bound, widened by
// what two crystals may have drifted since (kDrift), is smallest; so an old good one gives way to a
// fresh one in the end.

#include <deque>
#include <optional>

#include "agent/messages.h"
#include "common/clock.h"

namespace spate::agent {

class ClockSync {
 public:
  static constexpr std::int64_t kDriftPerMillion = 100;  // both crystals together
  static constexpr Duration kWindow = std::chrono::minutes(5);
  static constexpr std::size_t kMaxExchanges = 512;

  struct Estimate {
    Duration offset{};  // controller - agent
    Duration bound{};   // |error| is at most this
  };

  // False: the stamps contradict each other (a clock that ran backwards, a forged reply); ignored.
  bool add(const HeartbeatReply& reply);
  // A new stream may lead to another machine, or to one whose clock began anew: nothing is known
  // until the first exchange.
  void restart() { exchanges_.clear(); }

  std::optional<Estimate> estimate(Instant now) const;
  std::optional<Instant> to_agent(ControllerInstant at, Instant now) const;
  std::optional<ControllerInstant> to_controller(Instant at, Instant now) const;

 private:
  struct Exchange {
    Instant taken;
    Duration offset;
    Duration half_round_trip;
  };
  static Duration widened(const Exchange& e, Instant now);

  std::deque<Exchange>
      exchanges_;  // ascending by taken; at most kMaxExchanges of kWindow, never emptied by age
};

}  // namespace spate::agent
