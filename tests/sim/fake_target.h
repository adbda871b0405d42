#pragma once

// The server under flood, as far as counting goes: what it received and completed of each agent's
// process in each run, exactly, like the bundled target does from request metadata. It may restart
// (another boot id, its counters lost, connections broken), and an agent may be cut off from it.
//
// It also keeps what no restart takes away: the truth that the product's balance is held against.

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "common/outcome.h"
#include "controller/run_info.h"
#include "tests/sim/world.h"

namespace spate::sim {

// One process of one agent in one run.
struct Client {
  std::string run;
  std::string agent;
  std::uint64_t incarnation = 0;
  auto operator<=>(const Client&) const = default;
};

// What a client really did; written by the fake workers.
struct Truth {
  std::uint64_t sent = 0;
  std::array<std::uint64_t, kOutcomeCount> outcomes{};
  std::uint64_t received = 0;  // by the target, over all its boots
  std::map<std::uint32_t, std::uint64_t> sent_in_epoch;
  // Sent requests that no record need tell of: an open interval that went with a power cut.
  std::uint64_t may_be_lost = 0;
  // Counts went that were not on a disk; with them outcomes of requests that had been sent before.
  bool has_lost_counts = false;
  // A copied machine was served, as this process: its records may have gone with it.
  bool is_of_a_copy = false;
};

class FakeTarget {
 public:
  // Workers that have connections. `broke` comes before the counters change.
  struct Listener {
    std::function<void()> settle;  // count everything up to now
    std::function<void()> broke;   // all connections are gone
    std::function<void()> is_back;
  };

  explicit FakeTarget(World& world);

  std::uint64_t listen(Listener listener);
  void forget(std::uint64_t listener) { listeners_.erase(listener); }

  bool is_up() const { return is_up_; }
  // A client's truth, and the counters of this boot. Stays where it is.
  struct Account {
    Truth truth;
    std::uint64_t received = 0;
    std::uint64_t completed = 0;
  };
  Account& account(const Client& client) { return accounts_[client]; }
  static void received(Account& account, std::uint64_t count);
  static void completed(Account& account, std::uint64_t count);
  void restart(Duration down);

  Truth& truth(const Client& client) { return accounts_[client].truth; }
  const std::map<Client, Account>& accounts() const { return accounts_; }
  void settle();
  // As the statistics service would answer now. Requires is_up().
  controller::TargetSample sample(const std::string& run);
  std::uint64_t restarts() const { return boot_ - 1; }

 private:
  World& world_;
  bool is_up_ = true;
  std::uint64_t boot_ = 1;
  std::map<Client, Account> accounts_;
  std::map<std::uint64_t, Listener> listeners_;
  std::uint64_t last_listener_ = 0;
};

}  // namespace spate::sim
