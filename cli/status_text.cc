#include "cli/status_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/table.h"
#include "common/units.h"
#include "proto/operator.pb.h"
#include "spdlog/fmt/fmt.h"

namespace spate::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string seconds(std::int64_t ms) {
  return format_duration(std::chrono::round<std::chrono::seconds>(std::chrono::milliseconds(ms)));
}

std::string or_dash(const std::string& text) { return text.empty() ? "-" : text; }

std::string agents_of(const ops::v1::ChangeRow& change) {
  if (change.agents().empty()) return "all";
  std::string text;
  for (const std::string& name : change.agents()) text += (text.empty() ? "" : ", ") + name;
  return text + (change.canary() ? " (canary)" : "");
}

std::string head(const ops::v1::StatusReply& reply) {
  const auto& run = reply.run();
  std::string text = run.run() + ": " + run.state();
  if (!reply.has_live()) {
    if (!run.verdict().empty()) text += ", " + run.verdict();
    if (!run.reason().empty()) text += ", " + run.reason();
    return text + "\n" + or_dash(run.started_at()) + ", " +
           seconds(static_cast<std::int64_t>(run.duration_s() * 1000)) + ", " +
           format_count(run.requests()) + " requests, " + std::to_string(run.agents()) +
           " agents\n";
  }
  const auto& live = reply.live();
  text += ", epoch " + std::to_string(live.epoch()) + ", phase " + or_dash(live.phase()) + "\n";
  text += seconds(live.elapsed_ms()) + " of " + seconds(live.planned_ms()) + ", " +
          format_count(run.requests()) + " requests, " + format_count(live.connections()) +
          " connections (" + format_count(live.leased()) + " under a lease)\n";
  if (!live.store_trouble().empty()) {
    std::uint64_t waiting = 0;
    for (const auto& a : live.agents()) waiting += a.records_waiting();
    text += "TROUBLE: " + live.store_trouble() + " (" + format_count(waiting) +
            " records wait on the agents, or more)\n";
  }
  if (!live.store_space().empty()) text += "store: " + live.store_space() + "\n";
  if (!live.spread().empty()) text += live.spread() + "\n";
  if (!live.under_way().empty()) text += "being prepared: " + live.under_way() + "\n";
  if (live.queued() > 0) text += std::to_string(live.queued()) + " more changes wait\n";
  return text;
}

std::string agents(const ops::v1::LiveStatus& live) {
  Table table({"agent", "state", ">epoch", ">connections", "lease until", ">incarnation",
               ">records", ">waiting", ">lag", ">clock", ""});
  for (const auto& a : live.agents()) {
    // After a restart the controller does not know what an agent has before it is heard of.
    const bool is_known = a.epoch() != 0;
    table.add({a.name(), a.state(), is_known ? std::to_string(a.epoch()) : "-",
               is_known ? format_count(a.connections()) : "-", or_dash(a.lease_until()),
               std::to_string(a.incarnation()), format_count(a.records_stored()),
               format_count(a.records_waiting()), a.lag_ms() > 0 ? seconds(a.lag_ms()) : "-",
               a.clock_bound_ns() > 0 ? format_latency(a.clock_offset_ns()) + " +-" +
                                            format_latency(a.clock_bound_ns())
                                      : "-",
               a.note()});
  }
  return table.to_string();
}

std::string changes(const ops::v1::StatusReply& reply) {
  Table table({">epoch", "at", "who", "agents", "what", "reason", ""});
  for (const auto& c : reply.changes()) {
    table.add({std::to_string(c.epoch()), c.at_time(), c.who(), agents_of(c), c.what(),
               or_dash(c.reason()), c.is_due() ? "" : "to come"});
  }
  return table.to_string();
}

std::string canary(const ops::v1::StatusReply& reply) {
  Table table({"", ">agents", ">requests", ">req/s per connection", ">p50", ">p99", ">failed"});
  for (const auto& g : reply.canary()) {
    table.add({g.name(), std::to_string(g.agents()), format_count(g.requests()),
               fmt::format("{:.2f}", g.rate_per_connection()),
               format_latency(static_cast<std::int64_t>(g.latency_p50_ns())),
               format_latency(static_cast<std::int64_t>(g.latency_p99_ns())),
               fmt::format("{:.3f}%", g.failed_share() * 100)});
  }
  return table.to_string();
}

Json json_of(const ops::v1::RunRow& run) {
  return {{"run", run.run()},
          {"plan", run.plan()},
          {"state", run.state()},
          {"started_at", run.started_at()},
          {"duration_s", run.duration_s()},
          {"verdict", run.verdict()},
          {"requests", run.requests()},
          {"agents", run.agents()},
          {"reason", run.reason()}};
}

Json json_of(const ops::v1::LiveStatus& live) {
  Json out{{"epoch", live.epoch()},
           {"phase", live.phase()},
           {"elapsed_ms", live.elapsed_ms()},
           {"planned_ms", live.planned_ms()},
           {"connections", live.connections()},
           {"leased", live.leased()},
           {"spread", live.spread()},
           {"under_way", live.under_way()},
           {"queued", live.queued()},
           {"store_trouble", live.store_trouble()},
           {"store_space", live.store_space()},
           {"agents", Json::array()}};
  for (const auto& a : live.agents()) {
    out["agents"].push_back({{"agent", a.name()},
                             {"state", a.state()},
                             {"epoch", a.epoch()},
                             {"connections", a.connections()},
                             {"lease_until", a.lease_until()},
                             {"incarnation", a.incarnation()},
                             {"records_stored", a.records_stored()},
                             {"records_waiting", a.records_waiting()},
                             {"lag_ms", a.lag_ms()},
                             {"clock_offset_ns", a.clock_offset_ns()},
                             {"clock_bound_ns", a.clock_bound_ns()},
                             {"note", a.note()}});
  }
  return out;
}

Json json_of(const ops::v1::ChangeRow& c) {
  Json row{{"epoch", c.epoch()},
           {"at", c.at_time()},
           {"at_ms", c.at_ms()},
           {"who", c.who()},
           {"what", c.what()},
           {"reason", c.reason()},
           {"accepted_at", c.accepted_at()},
           {"canary", c.canary()},
           {"due", c.is_due()},
           {"guard_ms", c.guard_ms()},
           {"agents", Json::array()}};
  for (const std::string& name : c.agents()) row["agents"].push_back(name);
  return row;
}

Json json_of(const ops::v1::CanaryGroup& g) {
  return {{"name", g.name()},
          {"agents", g.agents()},
          {"requests", g.requests()},
          {"rate_per_connection", g.rate_per_connection()},
          {"latency_p50_ns", g.latency_p50_ns()},
          {"latency_p99_ns", g.latency_p99_ns()},
          {"failed_share", g.failed_share()}};
}

}  // namespace

std::string runs_text(const ops::v1::ListRunsReply& reply) {
  if (reply.runs().empty()) return "";
  Table table({"run", "state", "verdict", "started", ">length", ">requests", ">agents", "reason"});
  for (const auto& run : reply.runs())
    table.add({run.run(), run.state(), or_dash(run.verdict()), run.started_at(),
               seconds(static_cast<std::int64_t>(run.duration_s() * 1000)),
               format_count(run.requests()), std::to_string(run.agents()), run.reason()});
  return table.to_string();
}

std::string runs_json(const ops::v1::ListRunsReply& reply) {
  Json runs = Json::array();
  for (const auto& run : reply.runs()) runs.push_back(json_of(run));
  return Json{{"status_version", 1}, {"runs", std::move(runs)}}.dump(2) + "\n";
}

std::string status_text(const ops::v1::StatusReply& reply) {
  std::string text = head(reply);
  if (reply.has_live() && !reply.live().agents().empty()) text += "\n" + agents(reply.live());
  if (!reply.changes().empty()) text += "\n" + changes(reply);
  if (!reply.canary().empty()) text += "\n" + canary(reply);
  return text;
}

std::string status_json(const ops::v1::StatusReply& reply) {
  Json out{{"status_version", 1}, {"runs", Json::array({json_of(reply.run())})}};
  if (reply.has_live()) out["live"] = json_of(reply.live());
  out["changes"] = Json::array();
  for (const auto& c : reply.changes()) out["changes"].push_back(json_of(c));
  if (!reply.canary().empty()) {
    out["canary"] = Json::array();
    for (const auto& g : reply.canary()) out["canary"].push_back(json_of(g));
  }
  return out.dump(2) + "\n";
}

}  // namespace spate::cli
