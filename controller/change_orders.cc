#include "controller/change_orders.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "common/patch_json.h"
#include "common/units.h"

namespace spate::controller {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kNamesShown = 10;
constexpr Duration kGuardMax = std::chrono::hours(24);

std::string names_of(const RunInfo& run) {
  std::string text;
  for (std::size_t i = 0; i < run.agents.size() && i < kNamesShown; ++i)
    text += (i == 0 ? "" : ", ") + run.agents[i].name;
  return run.agents.size() > kNamesShown ? text + ", …" : text;
}

// Problems are added to the list; positions are ascending and each there once.
std::vector<std::uint32_t> positions(const std::vector<std::string>& names, const RunInfo& run,
                                     std::vector<std::string>& problems) {
  std::set<std::uint32_t> found;
  std::vector<std::string> known;
  for (const RunAgent& agent : run.agents) known.push_back(agent.name);
  for (const std::string& name : names) {
    const auto it = std::find(known.begin(), known.end(), name);
    if (it != known.end()) {
      found.insert(static_cast<std::uint32_t>(it - known.begin()));
      continue;
    }
    const std::string near = nearest(name, known);
    problems.push_back("--agent " + name + ": this run has no such agent" +
                       (near.empty() ? "" : ", did you mean " + near + "?") + "; its agents are " +
                       names_of(run));
  }
  return {found.begin(), found.end()};
}

std::optional<Duration> instant(const std::string& at, const RunInfo& run, Duration elapsed,
                                std::vector<std::string>& problems) {
  if (at.empty()) return std::nullopt;
  if (at.starts_with("+")) {
    const auto after = parse_duration(at.substr(1));
    if (after) return elapsed + *after;
    problems.push_back("--at " + at + ": " + after.error().message);
    return std::nullopt;
  }
  const auto wall_ms = parse_rfc3339(at);
  if (wall_ms) return milliseconds(*wall_ms - run.started_wall_ms);
  problems.push_back("--at " + at + ": " + wall_ms.error().message);
  return std::nullopt;
}

// Nothing if the request does not say.
std::optional<Duration> guard_of(const ChangeRequest& request, std::vector<std::string>& problems) {
  if (request.guard.empty()) return std::nullopt;
  const auto guard = parse_duration(request.guard);
  if (guard && *guard >= Duration::zero() && *guard <= kGuardMax) return *guard;
  problems.push_back("--guard " + request.guard + ": " +
                     (guard ? "from 0s to " + format_duration(kGuardMax) : guard.error().message));
  return std::nullopt;
}

ParameterPatch patch_of(const ChangeRequest& request, std::vector<std::string>& problems) {
  ParameterPatch patch;
  if (request.verb != ChangeRequest::Verb::set) {
    patch.paused = request.verb == ChangeRequest::Verb::pause;
    return patch;
  }
  const PatchOrProblems parsed = parse_patch(request.assignments);
  for (const PlanProblem& problem : parsed.problems) problems.push_back(problem.to_string(""));
  return parsed.patch;
}

// The first agents of the run, rounded up: at least one, never all.
std::vector<std::uint32_t> canaries(const ChangeRequest& request, const RunInfo& run,
                                    std::vector<std::string>& problems) {
  std::vector<std::uint32_t> chosen;
  if (!(request.canary_percent > 0 && request.canary_percent < 100)) {
    problems.emplace_back("--canary: a share of the agents between 0% and 100%, like 10%");
  } else if (!request.agents.empty()) {
    problems.emplace_back("--canary chooses the agents itself: leave out --agent, or --canary");
  } else {
    const auto count = static_cast<std::uint32_t>(
        std::ceil(request.canary_percent / 100 * static_cast<double>(run.agents.size())));
    if (count >= run.agents.size()) {
      problems.push_back("--canary: of " + std::to_string(run.agents.size()) +
                         " agents that would be all; nobody would be left to compare with");
    }
    for (std::uint32_t i = 0; i < count; ++i) chosen.push_back(i);
  }
  return chosen;
}

std::string described(const ChangeRequest& request, const ParameterPatch& patch,
                      const std::vector<std::uint32_t>& agents, const RunInfo& run) {
  std::string text = request.verb == ChangeRequest::Verb::set     ? describe(patch)
                     : request.verb == ChangeRequest::Verb::pause ? "pause"
                                                                  : "resume";
  if (agents.empty()) return text;
  text += request.canary_percent > 0 ? " on trial on" : " on";
  for (std::size_t i = 0; i < agents.size() && i < kNamesShown; ++i)
    text += (i == 0 ? " " : ", ") + run.agents[agents[i]].name;
  return agents.size() > kNamesShown ? text + ", …" : text;
}

std::vector<std::string> agents_of(const Change& change, const RunInfo& info) {
  std::set<std::uint32_t> positions;
  for (const Change::Part& part : change.parts) {
    if (part.agents.empty()) return {};
    positions.insert(part.agents.begin(), part.agents.end());
  }
  if (change.absent) positions.insert(change.absent->begin(), change.absent->end());
  std::vector<std::string> names;
  for (const std::uint32_t i : positions) names.push_back(info.agents.at(i).name);
  return names;
}

}  // namespace

ChangeOrderOrProblems make_change(const ChangeRequest& request, const RunInfo& run,
                                  Duration elapsed, std::int64_t wall_ms) {
  ChangeOrderOrProblems made;
  const ParameterPatch patch = patch_of(request, made.problems);
  const bool is_canary = request.canary_percent != 0;
  const auto agents = is_canary ? canaries(request, run, made.problems)
                                : positions(request.agents, run, made.problems);
  made.order.at = instant(request.at, run, elapsed, made.problems);
  const auto guard = guard_of(request, made.problems);
  if (request.reason.size() > kMaxReason)
    made.problems.push_back("--reason: at most " + std::to_string(kMaxReason) + " bytes");
  if (!made.problems.empty()) return made;
  made.order.if_epoch = request.if_epoch;
  Change& change = made.order.change;
  change.parts.push_back({agents, patch});
  change.guard = guard.value_or(
      default_guard(change, run.plan.rotation ? run.plan.rotation->guard : Duration::zero()));
  change.canary = is_canary;
  change.who = request.who.empty() ? "operator" : request.who;
  change.reason = request.reason;
  change.what = described(request, patch, agents, run);
  change.wall_ms = wall_ms;
  return made;
}

ChangeRow to_row(const Change& change, const RunInfo& info, Duration elapsed) {
  ChangeRow row;
  row.change = change;
  row.at_time = rfc3339(info.started_wall_ms + change.at / std::chrono::milliseconds(1));
  row.agents = agents_of(change, info);
  row.is_due = change.at <= elapsed;
  return row;
}

Result<std::int64_t> parse_rfc3339(const std::string& text) {
  const auto wrong = [&] {
    return invalid("a time like 2026-12-01T06:00:00Z or 2026-12-01T07:00:00+01:00, or +24h");
  };
  tm parts{};
  int used = 0;
  if (std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d%n", &parts.tm_year, &parts.tm_mon,
                  &parts.tm_mday, &parts.tm_hour, &parts.tm_min, &parts.tm_sec, &used) != 6)
    return wrong();
  std::string rest = text.substr(static_cast<std::size_t>(used));
  std::int64_t ms = 0;
  if (rest.starts_with(".")) {
    const std::size_t end = rest.find_first_not_of("0123456789", 1);
    const std::string digits = (rest.substr(1, end - 1) + "000").substr(0, 3);
    if (end == std::string::npos || end == 1) return wrong();
    ms = std::stol(digits);
    rest = rest.substr(end);
  }
  std::int64_t zone_minutes = 0;
  if (rest != "Z" && rest != "z") {
    int hours = 0, minutes = 0;
    char sign = 0;
    int all = 0;
    if (std::sscanf(rest.c_str(), "%c%2d:%2d%n", &sign, &hours, &minutes, &all) != 3 ||
        static_cast<std::size_t>(all) != rest.size() || (sign != '+' && sign != '-') ||
        hours > 23 || minutes > 59)
      return wrong();
    zone_minutes = (sign == '-' ? -1 : 1) * (hours * 60 + minutes);
  }
  const tm asked = parts;
  parts.tm_year -= 1900;
  parts.tm_mon -= 1;
  const std::int64_t seconds = timegm(&parts);
  // timegm() makes 3 March of 31 February.
  if (parts.tm_mon + 1 != asked.tm_mon || parts.tm_mday != asked.tm_mday ||
      parts.tm_hour != asked.tm_hour || parts.tm_min != asked.tm_min)
    return wrong();
  return (seconds - zone_minutes * 60) * 1000 + ms;
}

}  // namespace spate::controller
