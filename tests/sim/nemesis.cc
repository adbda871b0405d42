#include "tests/sim/nemesis.h"

#include <algorithm>
#include <utility>

namespace spate::sim {

using namespace std::chrono_literals;

namespace {

// Whether one of the names in `list`, which are separated by commas, is part of `name`.
bool is_listed(const std::string& name, const std::string& list) {
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin && name.find(list.substr(begin, end - begin)) != std::string::npos) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

const std::vector<Nemesis::Kind>& Nemesis::all_kinds() {
  static const std::vector<Kind> all = {
      {"kill controller", 2, &Nemesis::kill_controller},
      {"power cut of the controller", 1, &Nemesis::power_cut_controller},
      {"stop controller", 1, &Nemesis::freeze_controller},
      {"kill agent", 2, &Nemesis::kill_agent},
      {"power cut of an agent", 2, &Nemesis::power_cut_agent},
      {"stop agent", 1.5, &Nemesis::freeze_agent},
      {"partition", 2, &Nemesis::partition},
      {"one-way partition", 1.5, &Nemesis::one_way},
      {"clog all links", 1, &Nemesis::clog_all},
      {"cut stream", 2, &Nemesis::cut_stream},
      {"agent's disk full", 1, &Nemesis::disk_full},
      {"agent's disk broken", 1, &Nemesis::disk_broken},
      {"agent's disk slow", 1, &Nemesis::disk_slow},
      {"agent killed in a commit", 1.5, &Nemesis::kill_in_commit},
      {"slow link", 1, &Nemesis::slow_link},
      {"store full", 1, &Nemesis::store_full},
      {"slow store", 1, &Nemesis::store_slow},
      {"old controller", 0.7, &Nemesis::old_controller},
      {"cloned agent", 0.7, &Nemesis::clone_agent},
      {"target restart", 1, &Nemesis::target_restart},
      {"target unreachable", 1, &Nemesis::target_unreachable},
      {"probe unreachable", 0.5, &Nemesis::probe_unreachable},
      {"wall clock stepped", 1, &Nemesis::step_wall_clock},
  };
  return all;
}

Nemesis::Nemesis(Cluster& cluster, const std::string& only)
    : cluster_(cluster), world_(cluster.world()) {
  for (const Kind& k : all_kinds())
    if (only.empty() || is_listed(k.name, only)) kinds_.push_back(k);
}

void Nemesis::plan(std::size_t count, Duration until) {
  for (std::size_t i = 0; i < count && !kinds_.empty(); ++i) {
    const Duration at = world_.between(0s, until);
    world_.after(at, [this, left = until - at] { strike(left); });
  }
  world_.after(until, [this] {
    world_.tell("nemesis", "heals everything");
    for (Heal& heal : std::exchange(open_, {}))
      if (heal) heal();
  });
}

void Nemesis::strike(Duration left) {
  double sum = 0;
  for (const Kind& k : kinds_) sum += k.weight;
  double draw = world_.random().unit() * sum;
  const Kind* kind = &kinds_.back();
  for (const Kind& k : kinds_) {
    if ((draw -= k.weight) >= 0) continue;
    kind = &k;
    break;
  }
  // Short ones are common, long ones happen.
  const Duration longest = world_.chance(0.7) ? 8s : 150s;
  const Duration duration = std::min(left, world_.between(10ms, longest));
  world_.tell("nemesis", std::string(kind->name) + " for " + seconds_text(duration));
  ++faults_;
  Heal heal = (this->*kind->strike)(duration);
  if (!heal) return;
  const std::size_t slot = open_.size();
  open_.push_back(std::move(heal));
  world_.after(duration, [this, slot] {
    if (slot >= open_.size()) return;  // all is healed
    if (Heal mine = std::exchange(open_[slot], nullptr)) mine();
  });
}

// --- processes and machines

Nemesis::Heal Nemesis::kill_controller(Duration) {
  ControllerHost& c = cluster_.controller();
  c.kill(false);
  return [&c] { c.start_process(); };
}

Nemesis::Heal Nemesis::power_cut_controller(Duration) {
  ControllerHost& c = cluster_.controller();
  ++power_cuts_;
  c.kill(true);
  return [&c] { c.start_process(); };
}

Nemesis::Heal Nemesis::freeze_controller(Duration) {
  ControllerHost& c = cluster_.controller();
  c.freeze();
  return [&c] { c.thaw(); };
}

Nemesis::Heal Nemesis::kill_agent(Duration) {
  AgentHost& a = any_agent();
  a.kill(false);
  return [&a] { a.start_process(); };
}

Nemesis::Heal Nemesis::power_cut_agent(Duration) {
  AgentHost& a = any_agent();
  ++power_cuts_;
  a.kill(true);
  return [&a] { a.start_process(); };
}

Nemesis::Heal Nemesis::freeze_agent(Duration) {
  AgentHost& a = any_agent();
  a.freeze();
  return [&a] { a.thaw(); };
}

// --- network

Nemesis::Heal Nemesis::partition(Duration) {
  const auto link = any_agent().link();
  Network& n = cluster_.network();
  n.block(link, Direction::to_agent);
  n.block(link, Direction::to_controller);
  return [&n, link] {
    n.unblock(link, Direction::to_agent);
    n.unblock(link, Direction::to_controller);
  };
}

Nemesis::Heal Nemesis::one_way(Duration) {
  const auto link = any_agent().link();
  const Direction direction = world_.chance(0.5) ? Direction::to_agent : Direction::to_controller;
  Network& n = cluster_.network();
  n.block(link, direction);
  return [&n, link, direction] { n.unblock(link, direction); };
}

// Swizzle: links stop one after another, and come back in another order.
Nemesis::Heal Nemesis::clog_all(Duration duration) {
  Network& n = cluster_.network();
  for (const auto& agent : cluster_.agents()) {
    const auto link = agent->link();
    const Duration begin = world_.between(0s, duration / 2);
    const Duration end = world_.between(duration / 2, duration);
    for (const Direction d : {Direction::to_agent, Direction::to_controller}) {
      world_.after(begin, [&n, link, d] { n.block(link, d); });
      world_.after(end, [&n, link, d] { n.unblock(link, d); });
    }
  }
  return nullptr;
}

// Each end finds out by and by.
Nemesis::Heal Nemesis::cut_stream(Duration duration) {
  Network& n = cluster_.network();
  const Duration latest = std::min<Duration>(duration, 20s);
  if (const auto stream = n.any_stream(any_agent().link()))
    n.cut(stream, world_.between(0s, latest), world_.between(0s, latest));
  return nullptr;
}

Nemesis::Heal Nemesis::slow_link(Duration) {
  Network& n = cluster_.network();
  const auto link = any_agent().link();
  LinkQuality& q = n.quality(link);
  // One that is slow already would be left so by whichever of the two is healed last.
  const LinkQuality usual = usual_quality_.try_emplace(link, q).first->second;
  q.delay = world_.between(50ms, 1500ms);
  q.jitter = q.delay;
  q.per_message = world_.between(0s, 300ms);
  return [&n, &q, link, usual] {
    q = usual;
    n.hurry(link);
  };
}

// --- store, target, clocks

Nemesis::Heal Nemesis::store_full(Duration) {
  StoreFaults& f = cluster_.controller().faults();
  f.refuses = true;
  return [&f] { f.refuses = false; };
}

Nemesis::Heal Nemesis::store_slow(Duration) {
  StoreFaults& f = cluster_.controller().faults();
  f.commit_takes = world_.between(100ms, 4s);
  return [&f] { f.commit_takes = 2ms; };
}

Nemesis::Heal Nemesis::disk_full(Duration) {
  DiskState& disk = any_agent().disk();
  disk.fault = world_.chance(0.5) ? DiskFault::full : DiskFault::read_only;
  return [&disk] { disk.fault = DiskFault::none; };
}

Nemesis::Heal Nemesis::disk_broken(Duration) {
  DiskState& disk = any_agent().disk();
  disk.fault = DiskFault::io_error;
  return [&disk] { disk.fault = DiskFault::none; };
}

Nemesis::Heal Nemesis::disk_slow(Duration) {
  AgentHost& a = any_agent();
  // Often slower than an interval, and sometimes for so long that all slots of a worker are
  // waiting.
  a.slow_disk(world_.between(10ms, world_.chance(0.8) ? 2s : 30s));
  return [&a] { a.slow_disk({}); };
}

// Just before or just after the transaction is on the disk, with nobody to hear of it.
Nemesis::Heal Nemesis::kill_in_commit(Duration) {
  AgentHost& a = any_agent();
  const bool is_after = world_.chance(0.5);
  const bool is_power_cut = world_.chance(0.3);
  a.disk().at_commit = [&a, is_after, is_power_cut](bool after) {
    if (after != is_after) return;
    a.disk().at_commit = nullptr;
    throw ProcessDied{is_power_cut};
  };
  return [&a] {
    a.disk().at_commit = nullptr;
    a.start_process();
  };
}

// Somebody starts a controller from a copy of the store, while the real one has moved on: its term
// is lower, and whoever dials the address reaches it.
Nemesis::Heal Nemesis::old_controller(Duration duration) {
  ControllerHost& real = cluster_.controller();
  if (std::exchange(has_old_controller_, true) || !real.is_running()) return nullptr;
  ControllerHost& old = cluster_.clone_controller();
  for (int i = 0; i < 2; ++i) {
    real.kill(false);
    real.start_process();
  }
  world_.after(duration / 2, [this, &real, &old] {
    // An agent that knows of neither may follow the old one: nobody can tell it better.
    const StoreFile& file = real.file();
    for (const auto* hosts : {&std::as_const(cluster_.agents()), &cluster_.clones()})
      for (const auto& agent : *hosts)
        if (agent->highest_term(file.cluster) < file.term) return;
    world_.tell("nemesis", "starts " + old.name() + " from an old copy of the store");
    cluster_.route_to(old);
    old.start_process();
    for (const auto& agent : cluster_.agents())
      if (const auto stream = cluster_.network().any_stream(agent->link());
          world_.chance(0.5) && stream)
        cluster_.network().cut(stream, world_.between(0s, 2s), world_.between(0s, 2s));
  });
  return [this, &real, &old] {
    old.kill(false);
    cluster_.route_to(real);
  };
}

// A machine is copied while no agent runs on it; then one runs on each. Somebody reads the alarm,
// takes the copy away and starts the other one again.
Nemesis::Heal Nemesis::clone_agent(Duration duration) {
  AgentHost& a = any_agent();
  a.kill(false);
  AgentHost& copy = cluster_.clone_agent(a);
  const Duration later = world_.between(0s, duration / 2);
  const bool is_copy_first = world_.chance(0.5);
  world_.after(is_copy_first ? 0s : later, [&copy] { copy.start_process(); });
  world_.after(is_copy_first ? later : 0s, [&a] { a.start_process(); });
  return [&a, &copy] {
    copy.discard();
    a.kill(false);
    a.start_process();
  };
}

Nemesis::Heal Nemesis::target_restart(Duration duration) {
  cluster_.target().restart(duration);
  return nullptr;
}

Nemesis::Heal Nemesis::target_unreachable(Duration) {
  AgentHost& a = any_agent();
  a.set_reaches_target(false);
  return [&a] { a.set_reaches_target(true); };
}

Nemesis::Heal Nemesis::probe_unreachable(Duration) {
  ControllerHost& c = cluster_.controller();
  c.reaches_target = false;
  return [&c] { c.reaches_target = true; };
}

Nemesis::Heal Nemesis::step_wall_clock(Duration) {
  const Duration by = std::chrono::seconds(world_.random().between(-7200, 7200));
  if (world_.chance(0.4))
    cluster_.controller().clock().step_wall(by);
  else
    any_agent().clock().step_wall(by);
  return nullptr;
}

}  // namespace spate::sim
