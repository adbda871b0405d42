#include "tests/sim/history.h"

#include <algorithm>

#include "tests/sim/cluster.h"
#include "tests/sim/crash_point.h"
#include "tests/sim/laws.h"
#include "tests/sim/nemesis.h"

namespace spate::sim {

using namespace std::chrono_literals;

namespace {

std::string whole_seconds(Duration d) { return std::to_string(d / 1s) + "s"; }

// Leases are long enough for the longest fault, or short enough to end in many.
std::string draw_controller_loss(World& world) {
  const double draw = world.random().unit();
  if (draw < 0.5) return R"("on_controller_loss": "continue")";
  if (draw < 0.8)
    return R"("controller_loss_limit": ")" + whole_seconds(world.between(2s, 60s)) + "\"";
  return draw < 0.9 ? R"("on_controller_loss": "drain")" : R"("on_controller_loss": "stop")";
}

// Parameter sets that take turns; empty: none do. Mostly of different numbers of connections.
std::string draw_rotation(World& world, std::uint32_t agents) {
  if (world.chance(0.8)) return "";
  const auto draw_load = [&]() -> std::string {
    if (world.chance(0.5)) return "";
    return R"("load": {"connections": )" + std::to_string(agents * (1 + world.pick(6))) + "}, ";
  };
  const Duration every = std::chrono::seconds(world.random().between(6, 40));
  return R"(, "rotate": {"every": ")" + whole_seconds(every) + R"(", "across": ")" +
         (world.chance(0.7) ? "agents" : "run") + R"(", "guard": ")" +
         whole_seconds(world.between(0s, 4s)) + R"(", "sets": [{"name": "plain"},
    {"name": "gzip", )" +
         draw_load() + R"("call": {"compress": true}}, {"name": "slow", )" + draw_load() +
         R"("call": {"timeout": "9s"}}]})";
}

Cluster::Order draw_order(World& world, std::size_t agents) {
  Cluster::Order order;
  order.agents = static_cast<std::uint32_t>(world.chance(0.8) ? agents : 1 + world.pick(agents));
  const std::uint64_t connections = order.agents * (1 + world.pick(6));
  const Duration interval = std::vector<Duration>{1s, 2s, 5s, 10s}[world.pick(4)];
  std::string phases;
  const std::size_t count = 1 + world.pick(3);
  for (std::size_t i = 0; i < count; ++i) {
    const Duration length = std::chrono::seconds(world.random().between(5, i == 0 ? 180 : 60));
    order.length += length;
    phases += (i ? ", " : "") + std::string(R"({"name": "p)") + std::to_string(i) +
              R"(", "for": ")" + whole_seconds(length) + R"(", "load": {"connections": )" +
              std::to_string(connections + order.agents * world.pick(3)) + "}}";
  }
  order.plan =
      R"({"name": "sim", "target": {"url": "grpc://10.0.0.100:7000", "probe": "10.0.0.100:7001"},
    "call": {"method": "spate.target.v1.Calls/Call", "message": {}, "timeout": "10s"},
    "load": {"connections": )" +
      std::to_string(connections) + R"(}, "agents": {"count": )" + std::to_string(order.agents) +
      R"(, "threads": )" + std::to_string(1 + world.pick(3)) + R"(, "redistribute": ")" +
      (world.chance(0.3) ? "after_fence" : "never") + "\"}, " + draw_controller_loss(world) +
      R"(, "interval": ")" + whole_seconds(interval) + R"(", "phases": [)" + phases + "]" +
      draw_rotation(world, order.agents) + "}";
  return order;
}

bool is_quiet(Cluster& cluster) {
  if (cluster.is_waiting_for_answer()) return false;
  for (const auto& [id, run] : cluster.controller().file().runs)
    if (run.info.state != controller::RunState::finished) return false;
  for (const auto& agent : cluster.agents()) {
    const agent::Session* s = agent->session();
    // One that is not there may have something to say when it is.
    if (!s || s->state() != agent::Session::State::idle || s->spool().size() > 0) return false;
  }
  return true;
}

}  // namespace

HistoryResult run_history(const HistoryOptions& options) {
  World world(options.seed, options.tracing);
  Cluster cluster(world);
  Nemesis nemesis(cluster, options.only);
  const std::size_t agents = 1 + world.pick(world.chance(0.2) ? 8 : 5);
  cluster.add_agents(agents);
  cluster.controller().start_process();
  for (const auto& agent : cluster.agents())
    world.after(world.between(0s, 3s), [&a = *agent] { a.start_process(); });

  const Cluster::Order order = draw_order(world, agents);
  world.after(world.between(0s, 5s), [&] { cluster.submit(order); });
  const bool is_undisturbed = world.chance(0.1) && !options.crash;
  CrashPoints crash_points(cluster, options.crash);
  // Most runs end in the middle of it; some have time to come to rest.
  const Duration trouble =
      world.chance(0.6) ? order.length + 30s : world.between(10s, order.length + 20s);
  if (!is_undisturbed && !options.crash) nemesis.plan(1 + world.pick(12), trouble);

  const std::size_t changes = is_undisturbed ? 0 : world.pick(5);
  for (std::size_t i = 0; i < changes; ++i)
    world.after(world.between(5s, order.length), [&] { cluster.meddle(); });

  if (!options.crash) {
    world.after(trouble + kLoadBackWithin, [&] { check_load_back(cluster); });
    world.after(trouble + kDrainedWithin, [&] { check_drained(cluster); });
  }
  // Healed; what is left must come to its end by itself.
  const Moment healed = world.now() + trouble;
  const Moment latest = healed + order.length + 15min;
  while (world.step(healed)) {
  }
  while (world.now() < latest && !is_quiet(cluster))
    for (const Moment next = world.now() + 1s; world.step(next);) {
    }
  check_laws(cluster, is_undisturbed, healed);

  HistoryResult result;
  result.violations = world.violations();
  result.story = world.story();
  result.faults = nemesis.faults();
  result.power_cuts = nemesis.power_cuts();
  result.events = world.events();
  result.spool_commits = crash_points.spool_commits();
  result.store_commits = crash_points.store_commits();
  result.simulated = world.elapsed();
  for (const auto& [id, run] : cluster.controller().file().runs)
    result.records += run.records.size();
  return result;
}

}  // namespace spate::sim
