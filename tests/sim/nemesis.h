#pragma once

// What goes wrong. Faults are drawn for a stretch of the history, each with its own duration; when
// the stretch is over everything is healed, and stays so.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/sim/cluster.h"

namespace spate::sim {

class Nemesis {
 public:
  // `only`: no other kinds than those whose name contains one of these, which are separated by
  // commas; empty: all.
  Nemesis(Cluster& cluster, const std::string& only);

  // `count` faults between now and `end`; all is healed at `end`.
  void plan(std::size_t count, Duration until);
  std::uint64_t faults() const { return faults_; }
  std::uint64_t power_cuts() const { return power_cuts_; }

 private:
  // A fault does its worst, and returns how to heal it; empty: nothing to heal.
  using Heal = std::function<void()>;
  struct Kind {
    const char* name;
    double weight;
    Heal (Nemesis::*strike)(Duration duration);
  };
  static const std::vector<Kind>& all_kinds();

  void strike(Duration left);
  AgentHost& any_agent() { return *cluster_.agents()[world_.pick(cluster_.agents().size())]; }

  Heal kill_controller(Duration duration);
  Heal power_cut_controller(Duration duration);
  Heal freeze_controller(Duration duration);
  Heal kill_agent(Duration duration);
  Heal power_cut_agent(Duration duration);
  Heal freeze_agent(Duration duration);
  Heal partition(Duration duration);
  Heal one_way(Duration duration);
  Heal clog_all(Duration duration);
  Heal cut_stream(Duration duration);
  Heal slow_link(Duration duration);
  Heal store_full(Duration duration);
  Heal store_slow(Duration duration);
  Heal disk_full(Duration duration);
  Heal disk_broken(Duration duration);
  Heal disk_slow(Duration duration);
  Heal kill_in_commit(Duration duration);
  Heal old_controller(Duration duration);
  Heal clone_agent(Duration duration);
  Heal target_restart(Duration duration);
  Heal target_unreachable(Duration duration);
  Heal probe_unreachable(Duration duration);
  Heal step_wall_clock(Duration duration);

  Cluster& cluster_;
  World& world_;
  std::vector<Kind> kinds_;
  std::vector<Heal> open_;
  std::uint64_t faults_ = 0;
  std::uint64_t power_cuts_ = 0;
  std::map<Network::LinkId, LinkQuality> usual_quality_;  // of links that were slow
  bool has_old_controller_ = false;
};

}  // namespace spate::sim
