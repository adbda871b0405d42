#pragma once

// What each agent of one run may be doing, and until when: what it has been told of the run's
// timeline, and its lease. Pure; on the control loop.
//
// Version n is the run's timeline after n changes. An agent works by one version for sure, or by a
// later one that it was told of and has not confirmed: at every instant the larger share counts.
//
// The law is that of leases.h: at no instant of anybody's lease is the sum more than the newest
// version has. So a lease is shorter if there is no room later, and one who is told to do more
// later than there is room for is told to hold from then on: its lease ends there, and goes on when
// the others have made room.

#include <cstdint>
#include <optional>
#include <vector>

#include "common/clock.h"
#include "common/timeline.h"
#include "controller/leases.h"
#include "controller/share_history.h"

namespace spate::controller {

// Outlives a heartbeat that is late.
inline constexpr Duration kLeastLease = std::chrono::seconds(3);

class LeaseBook {
 public:
  struct Setup {
    std::size_t agents = 0;
    Instant start{};  // T; what is called `at` is since then
    Duration length{};
    // An agent whose lease ends may have another one: it holds until then.
    bool goes_on_after_lease = false;
  };
  explicit LeaseBook(Setup setup) : setup_(setup), leases_(setup.agents), agents_(setup.agents) {}

  // T is known better.
  void set_start(Instant start) { setup_.start = start; }
  // The next version.
  void add(const Timeline& timeline) { history_.add(timeline); }
  const ShareHistory& history() const { return history_; }
  std::size_t latest() const { return history_.newest(); }

  // The first lease runs from `from`.
  void begin(std::size_t agent, Instant from) { leases_.renew(agent, setup_.length, from); }
  // Another controller process told it what it has, and gave it its lease: it may have any version,
  // and all of a lease.
  void assume(std::size_t agent, Instant now);
  // Another process of the agent is given the newest version, and has no lease yet.
  void restarted(std::size_t agent);
  // It is done: it has no lease.
  void release(std::size_t agent) { leases_.release(agent); }

  // It is told the newest version, with a lease that ends kLeaseMargin before `full_at`.
  void tell(std::size_t agent, std::optional<Duration> full_at);
  // It has said that it has this version, or a later one that it was told of.
  void confirm(std::size_t agent, std::size_t version);
  // Of what it was told it has nothing later than this version, and will not get it.
  void lacks_all_after(std::size_t agent, std::size_t version);
  // It has said in which epoch it is: narrows down what was assumed.
  void learn(std::size_t agent, std::uint32_t epoch, Instant now);

  // The version that it works by at least.
  std::size_t sure(std::size_t agent) const { return agents_.at(agent).sure; }
  bool is_assumed(std::size_t agent) const { return agents_.at(agent).is_assumed; }

  // Whether the agent, which lacks what begins at `from`, can be told the newest version: while
  // anybody's lease lives it would do no more by it than it does in any case, or there is room.
  bool has_room(std::size_t agent, Duration from, Instant now);
  // When it would do more by it than it may be doing, and there is no room; nothing: never.
  std::optional<Duration> full_at(std::size_t agent, Duration from, Instant now);
  // The lease for a heartbeat's reply; zero: none. Whoever calls this sends it.
  Duration lease(std::size_t agent, Instant now);

  bool ended(std::size_t agent, Instant now) const { return leases_.ended(agent, now); }
  Instant until(std::size_t agent) const { return leases_.until(agent); }
  // By all leases that live.
  std::uint64_t sum(Instant now);

 private:
  struct Told {
    std::size_t version = 0;
    Duration full_at = Duration::max();  // it does not work by this one from then on
  };
  struct Agent {
    std::size_t sure = 0;
    std::vector<Told> told;          // later ones, ascending
    bool is_assumed = false;         // sure and told: all that there is
    bool has_assumed_lease = false;  // nobody knows whether
    bool has_bounded_lease = false;  // there will be no room for it some time: look again
  };
  Duration offset(Instant now) const { return now - setup_.start; }
  std::vector<Duration> instants(std::size_t agent, Duration from, Instant now) const;
  // Within what the run is to be, not what it was: so the sum can only fall until the next change.
  bool fits(std::size_t agent, std::uint64_t connections, Duration at, std::uint64_t limit,
            Instant now);
  std::size_t oldest_version(std::size_t agent, Instant now) const;
  void hold_at(Duration at);
  std::uint64_t most(std::size_t agent, Duration at) const;
  std::uint64_t least(std::size_t agent, Duration at) const;
  std::optional<Duration> first_without_room(std::size_t agent, std::uint64_t present,
                                             bool lacks_some, Instant now);

  Setup setup_;
  ShareHistory history_;
  Leases leases_;
  std::vector<Agent> agents_;
};

}  // namespace spate::controller
