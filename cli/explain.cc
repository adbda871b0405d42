#include "cli/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cli/table.h"
#include "common/patch_json.h"
#include "common/plan_json.h"
#include "common/rotation.h"
#include "common/shares.h"
#include "common/time_zone.h"
#include "common/timeline.h"
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

// "1", or "2 to 5": those of a phase.
std::string epochs_of(const Timeline& timeline, std::uint32_t phase) {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  for (const Segment& segment : timeline.segments) {
    if (segment.phase != phase) continue;
    if (first == 0) first = segment.epoch;
    last = segment.epoch;
  }
  return first == last ? std::to_string(first) : fmt::format("{} to {}", first, last);
}

std::string phases_table(const Plan& plan, const Timeline& timeline) {
  Table table({">", "phase", ">starts", ">length", "measured", ">epoch", ">connections",
               "each connection"});
  Duration start{};
  for (std::uint32_t i = 0; i < plan.phases.size(); ++i) {
    const Phase& phase = plan.phases[i];
    table.add({std::to_string(i + 1), phase.name, format_duration(start),
               format_duration(phase.length), phase.measured ? "yes" : "no", epochs_of(timeline, i),
               format_count(phase.load.connections), loop_text(phase.load)});
    start += phase.length;
  }
  return table.to_string();
}

// Equal neighbours share a line: the larger shares go to the first agents, so there are two at
// most.
std::string shares_table(const Timeline& timeline) {
  Table table({">epoch", "agents", ">connections each", "per thread", ">together"});
  for (const Epoch& epoch : timeline.epochs) {
    const auto& shares = epoch.shares;
    for (std::size_t from = 0; from < shares.size();) {
      const Parameters& own = shares[from].parameters;
      std::size_t to = from;
      while (to < shares.size() && shares[to].parameters == own) ++to;
      const auto threads = divide_equally(own.load.connections, own.threads);
      const std::string per_thread =
          threads.front() == threads.back()
              ? format_count(threads.front())
              : format_count(threads.back()) + " or " + format_count(threads.front());
      table.add({std::to_string(epoch.number),
                 to - from == 1 ? std::to_string(to) : fmt::format("{} to {}", from + 1, to),
                 format_count(own.load.connections), per_thread,
                 format_count(own.load.connections * (to - from))});
      from = to;
    }
    table.add({std::to_string(epoch.number), "all", "", "", format_count(epoch.connections())});
  }
  return table.to_string();
}

// ---- rotation

constexpr std::size_t kMaxShownPeriods = 40;
constexpr std::size_t kMaxShownAgents = 16;

std::string sets_table(const Plan& plan) {
  Table table({">set", "name", "what it changes"});
  for (std::size_t i = 0; i < plan.rotation->sets.size(); ++i) {
    const Rotation::Set& set = plan.rotation->sets[i];
    const std::string changes = describe(set.patch);
    table.add({std::to_string(i + 1), set.name, changes.empty() ? "nothing" : changes});
  }
  return table.to_string();
}

// "2026-12-01 00:00:00 +0100"
std::string local_time(const TimeZone& zone, std::int64_t wall_ms) {
  const std::int64_t unix_s = wall_ms / 1'000;
  const std::int32_t offset = zone.offset_at(unix_s);
  std::string text = rfc3339((unix_s + offset) * 1'000);
  text[10] = ' ';
  text.pop_back();
  const int minutes = std::abs(offset) / 60;
  return text + fmt::format(" {}{:02}{:02}", offset < 0 ? '-' : '+', minutes / 60, minutes % 60);
}

struct Period {
  Duration offset{};
  std::uint32_t epoch = 1;
  std::vector<std::uint32_t> sets;  // by agent
};

std::vector<Period> periods_of(const Plan& plan, const Timeline& timeline,
                               std::int64_t start_wall_ms) {
  std::vector<Duration> offsets = {Duration::zero()};
  // It was good enough for the timeline.
  const auto changes = change_overs(*plan.rotation, plan.length(), start_wall_ms).value();
  offsets.insert(offsets.end(), changes.begin(), changes.end());
  std::vector<Period> periods;
  for (const Duration offset : offsets) {
    Period period{offset, timeline.epoch_at(offset), {}};
    for (const AgentShare& share : timeline.epoch(period.epoch).shares)
      period.sets.push_back(share.set);
    periods.push_back(std::move(period));
  }
  return periods;
}

std::string agents_heading(const Rotation& rotation, std::size_t agents) {
  if (rotation.across == Rotation::Across::run) return "all agents hold set";
  return agents == 1 ? "agent 1 holds set" : fmt::format("agents 1 to {} hold set", agents);
}

std::string periods_table(const Plan& plan, const std::vector<Period>& periods,
                          std::int64_t start_wall_ms) {
  const Rotation& rotation = *plan.rotation;
  const bool per_agent = rotation.across == Rotation::Across::agents;
  const std::size_t agents =
      per_agent ? std::min<std::size_t>(plan.agents, kMaxShownAgents) : std::size_t{1};
  const TimeZone zone =
      rotation.zone_rules.empty() ? TimeZone::utc() : *TimeZone::from_rules(rotation.zone_rules);
  const std::size_t width = std::to_string(rotation.sets.size()).size();
  Table table(
      {">period", ">starts", "if it were started now", ">epoch", agents_heading(rotation, agents)});
  for (std::size_t k = 0; k < std::min(periods.size(), kMaxShownPeriods); ++k) {
    const Period& period = periods[k];
    std::string held;
    for (std::size_t i = 0; i < agents; ++i)
      held += fmt::format("{}{:>{}}", i == 0 ? "" : "  ", period.sets[i] + 1, width);
    table.add({std::to_string(k), format_duration(period.offset),
               local_time(zone, start_wall_ms + period.offset / std::chrono::milliseconds(1)),
               std::to_string(period.epoch), held});
  }
  std::string out = table.to_string();
  if (periods.size() > kMaxShownPeriods)
    out += fmt::format("… and {} more periods\n", periods.size() - kMaxShownPeriods);
  if (agents < plan.agents && per_agent)
    out += fmt::format("… and so on: in period k, agent i holds set (i + k - 1) mod {} + 1\n",
                       rotation.sets.size());
  return out;
}

std::string rotation_text(const Plan& plan, const Timeline& timeline, std::int64_t start_wall_ms) {
  const Rotation& rotation = *plan.rotation;
  const auto periods = periods_of(plan, timeline, start_wall_ms);
  std::string out = fmt::format(
      "rotation  every {}{}{}; {} take turns {}\n", format_duration(rotation.every),
      rotation.at.empty() ? "" : " at " + rotation.at + " " + rotation.zone,
      rotation.guard == Duration::zero()
          ? ""
          : ", " + format_duration(rotation.guard) + " after each change are not measured",
      plural(rotation.sets.size(), "set"),
      rotation.across == Rotation::Across::agents ? "across the agents" : "across the run");
  if (periods.size() == 1)
    out += "          the plan ends before the first change: only one set per agent is used\n";
  else if (periods.size() < rotation.sets.size())
    out += fmt::format("          {} are too few for all sets to have their turn\n",
                       plural(periods.size(), "period"));
  return out + "\n" + sets_table(plan) + "\n" + periods_table(plan, periods, start_wall_ms) + "\n";
}

std::uint64_t most_on_one_agent(const Timeline& timeline) {
  std::uint64_t most = 0;
  for (const Epoch& epoch : timeline.epochs) {
    for (const AgentShare& share : epoch.shares)
      most = std::max(most, share.parameters.load.connections);
  }
  return most;
}

std::uint64_t most_connections(const Timeline& timeline) {
  std::uint64_t most = 0;
  for (const Epoch& epoch : timeline.epochs) most = std::max(most, epoch.connections());
  return most;
}

std::string without_controller(const Plan& plan) {
  switch (plan.on_controller_loss) {
    case OnControllerLoss::go_on:
      return "go on for " + format_duration(plan.controller_loss_limit) + ", then hold";
    case OnControllerLoss::drain:
      return "end their part in good order";
    case OnControllerLoss::stop:
      return "stop";
  }
  return "";
}

}  // namespace

Result<std::string> explain_text(const Plan& plan, std::int64_t start_wall_ms) {
  const auto timeline = planned_timeline(plan, start_wall_ms);
  if (!timeline) return timeline.error();
  std::string out = "plan " + plan.name + "\n";
  if (!plan.description.empty()) out += plan.description + "\n";
  out += fmt::format("\ntarget    {}{}\n",
                     plan.target.is_local() ? "local: started with the run" : plan.target.url,
                     plan.target.probe.empty() ? "" : ", its statistics at " + plan.target.probe);
  out += fmt::format("call      {}, {} of JSON{}, given up after {}\n", plan.call.method,
                     plural(plan.call.message_json.size(), "byte"),
                     plan.call.compress ? ", compressed" : "", format_duration(plan.call.timeout));
  if (!plan.call.proto.empty()) out += "types     " + plan.call.proto + "\n";
  if (!plan.call.descriptor_set.empty()) out += "types     " + plan.call.descriptor_set + "\n";
  out += fmt::format("agents    {}, {} each; without a controller they {}\n", plan.agents,
                     plural(plan.threads, "thread"), without_controller(plan));
  out += fmt::format("reported  every {}; at the end answers are awaited for {} at most\n\n",
                     format_duration(plan.interval), format_duration(plan.drain));
  out += phases_table(plan, *timeline) + "\n";
  out += plan.rotation ? rotation_text(plan, *timeline, start_wall_ms)
                       : shares_table(*timeline) + "\n";
  for (const auto& threshold : plan.thresholds) out += "threshold " + threshold.text + "\n";
  out += fmt::format("together  {}, {} of them measured; at most {}, {} on one agent; {}\n",
                     format_duration(plan.length()), format_duration(plan.measured_length()),
                     plural(most_connections(*timeline), "connection"),
                     format_count(most_on_one_agent(*timeline)),
                     plural(timeline->epochs.size(), "epoch"));
  return out;
}

Result<std::string> explain_json(const Plan& plan, std::int64_t start_wall_ms) {
  using Json = nlohmann::ordered_json;
  const auto timeline = planned_timeline(plan, start_wall_ms);
  if (!timeline) return timeline.error();
  Json out{{"explain_version", 2},
           {"plan", Json::parse(to_json(plan))},
           {"length_ns", plan.length().count()},
           {"measured_ns", plan.measured_length().count()},
           {"max_connections", most_connections(*timeline)},
           {"epochs", Json::array()},
           {"segments", Json::array()}};
  for (const Epoch& epoch : timeline->epochs) {
    Json shares = Json::array();
    for (const AgentShare& share : epoch.shares) {
      const Parameters& own = share.parameters;
      Json one{{"connections", own.load.connections},
               {"calls_per_loop", own.load.calls_per_loop},
               {"pause_ns", own.load.pause.count()},
               {"threads", own.threads}};
      if (share.set != kNoSet) one["set"] = plan.rotation->sets[share.set].name;
      shares.push_back(std::move(one));
    }
    out["epochs"].push_back({{"epoch", epoch.number},
                             {"connections", epoch.connections()},
                             {"shares", std::move(shares)}});
  }
  for (const Segment& segment : timeline->segments)
    out["segments"].push_back(
        {{"offset_ns", segment.offset.count()},
         {"length_ns", segment.length.count()},
         {"starts_at", rfc3339(start_wall_ms + segment.offset / std::chrono::milliseconds(1))},
         {"phase", plan.phases[segment.phase].name},
         {"epoch", segment.epoch},
         {"guard", segment.guard}});
  return out.dump(2) + "\n";
}

}  // namespace spate::cli
