#include "cli/explain.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/table.h"
#include "common/plan_json.h"
#include "common/shares.h"
#include "common/units.h"

namespace spate::cli {
namespace {

std::string plural(std::uint64_t n, const std::string& word) {
  return format_count(n) + " " + word + (n == 1 ? "" : "s");
}

std::string loop_text(const Load& load) {
  if (load.calls_per_loop == 0) return "calls without pause";
  return fmt::format("{}, then {} pause", plural(load.calls_per_loop, "call"),
                     format_duration(load.pause));
}

std::string phases_table(const Plan& plan, const PhaseSchedule& schedule) {
  Table table({">", "phase", ">starts", ">length", "measured", ">epoch", ">connections",
               "each connection"});
  Duration start{};
  for (std::size_t i = 0; i < plan.phases.size(); ++i) {
    const Phase& phase = plan.phases[i];
    table.add({std::to_string(i + 1), phase.name, format_duration(start),
               format_duration(phase.length), phase.measured ? "yes" : "no",
               std::to_string(schedule.epoch_of_phase[i]), format_count(phase.load.connections),
               loop_text(phase.load)});
    start += phase.length;
  }
  return table.to_string();
}

// Equal neighbours share a line: the larger shares go to the first agents, so there are two at
// most.
std::string shares_table(const Plan& plan, const PhaseSchedule& schedule) {
  Table table({">epoch", "agents", ">connections each", "per thread", ">together"});
  for (const auto& epoch : schedule.epochs) {
    const auto shares = divide_equally(epoch.load.connections, plan.agents);
    for (std::size_t from = 0; from < shares.size();) {
      std::size_t to = from;
      while (to < shares.size() && shares[to] == shares[from]) ++to;
      const auto threads = divide_equally(shares[from], plan.threads);
      const std::string per_thread =
          threads.front() == threads.back()
              ? format_count(threads.front())
              : format_count(threads.back()) + " or " + format_count(threads.front());
      table.add({std::to_string(epoch.number),
                 to - from == 1 ? std::to_string(to) : fmt::format("{} to {}", from + 1, to),
                 format_count(shares[from]), per_thread, format_count(shares[from] * (to - from))});
      from = to;
    }
    table.add({std::to_string(epoch.number), "all", "", "", format_count(epoch.load.connections)});
  }
  return table.to_string();
}

}  // namespace

std::string explain_text(const Plan& plan) {
  const PhaseSchedule phases = schedule(plan);
  std::string out = "plan " + plan.name + "\n";
  if (!plan.description.empty()) out += plan.description + "\n";
  out += fmt::format("\ntarget    {}{}\n",
                     plan.target.is_local() ? "local: started with the run" : plan.target.url,
                     plan.target.probe.empty() ? "" : ", its statistics at " + plan.target.probe);
  out += fmt::format("call      {}, {} of JSON, given up after {}\n", plan.call.method,
                     plural(plan.call.message_json.size(), "byte"),
                     format_duration(plan.call.timeout));
  if (!plan.call.proto.empty()) out += "types     " + plan.call.proto + "\n";
  if (!plan.call.descriptor_set.empty()) out += "types     " + plan.call.descriptor_set + "\n";
  out += fmt::format("agents    {}, {} each\n", plan.agents, plural(plan.threads, "thread"));
  out += fmt::format("reported  every {}; at the end answers are awaited for {} at most\n\n",
                     format_duration(plan.interval), format_duration(plan.drain));
  out += phases_table(plan, phases) + "\n" + shares_table(plan, phases) + "\n";
  for (const auto& threshold : plan.thresholds) out += "threshold " + threshold.text + "\n";
  const std::uint64_t most = divide_equally(plan.max_connections(), plan.agents).front();
  out += fmt::format("together  {}, {} of them measured; at most {}, {} on one agent; {}\n",
                     format_duration(plan.length()), format_duration(plan.measured_length()),
                     plural(plan.max_connections(), "connection"), format_count(most),
                     plural(phases.epochs.size(), "epoch"));
  return out;
}

std::string explain_json(const Plan& plan) {
  const PhaseSchedule phases = schedule(plan);
  nlohmann::ordered_json out{{"explain_version", 1},
                             {"plan", nlohmann::ordered_json::parse(to_json(plan))},
                             {"length_ns", plan.length().count()},
                             {"measured_ns", plan.measured_length().count()},
                             {"max_connections", plan.max_connections()},
                             {"epoch_of_phase", phases.epoch_of_phase},
                             {"epochs", nlohmann::ordered_json::array()}};
  for (const auto& epoch : phases.epochs)
    out["epochs"].push_back({{"epoch", epoch.number},
                             {"connections", epoch.load.connections},
                             {"calls_per_loop", epoch.load.calls_per_loop},
                             {"pause_ns", epoch.load.pause.count()},
                             {"shares", divide_equally(epoch.load.connections, plan.agents)}});
  return out.dump(2) + "\n";
}

}  // namespace spate::cli
