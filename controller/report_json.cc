// Everything a report shows, for programs. Version 1.

#include <nlohmann/json.hpp>

#include "controller/report_formats.h"
#include "controller/summary_json.h"

namespace spate::controller::report {
namespace {

using nlohmann::ordered_json;

constexpr int kReportVersion = 1;

double seconds(Duration d) { return static_cast<double>(d.count()) / 1e9; }

ordered_json outcomes_json(const std::array<std::uint64_t, kOutcomeCount>& outcomes) {
  ordered_json j;
  for (const auto o : kOutcomes) j[std::string(name(o))] = outcomes[index(o)];
  return j;
}

ordered_json latency_json(const Histogram& h) {
  return {{"count", h.count()},     {"mean", h.mean()},        {"p50", h.quantile(0.5)},
          {"p90", h.quantile(0.9)}, {"p99", h.quantile(0.99)}, {"p999", h.quantile(0.999)},
          {"max", h.max()}};
}

std::string_view severity(RunEvent::Severity s) {
  switch (s) {
    case RunEvent::Severity::info:
      return "info";
    case RunEvent::Severity::warning:
      return "warning";
    case RunEvent::Severity::error:
      return "error";
  }
  return "?";
}

ordered_json series_json(const Aggregate& run) {
  auto list = ordered_json::array();
  for (const auto& p : run.points())
    list.push_back({{"start_s", seconds(p.start)},
                    {"length_s", seconds(p.length)},
                    {"phase", p.phase},
                    {"epoch", p.epoch},
                    {"guard", p.guard},
                    {"agents", p.agents_reporting},
                    {"connections_requested", p.connections_requested},
                    {"connections_established", p.connections_established},
                    {"scheduled", p.counters.scheduled},
                    {"sent", p.counters.sent},
                    {"missed", p.counters.missed()},
                    {"held", p.counters.held},
                    {"outcomes", outcomes_json(p.outcomes)},
                    {"rate_per_s", p.rate_per_s()},
                    {"bytes_sent", p.counters.bytes_sent},
                    {"bytes_received", p.counters.bytes_received},
                    {"agents_cpu_ns", p.agent_cpu_ns},
                    {"latency_ns", latency_json(p.latency)}});
  return list;
}

ordered_json target_json(const Aggregate& run) {
  auto list = ordered_json::array();
  for (std::size_t i = 0; i < run.target_samples().size(); ++i) {
    const auto& s = run.target_samples()[i];
    list.push_back({{"at_s", static_cast<double>(s.at_ns) / 1e9},
                    {"boot", s.boot_id},
                    {"completed", run.completed_at_samples()[i]},
                    {"address_space_bytes", s.address_space_bytes},
                    {"rss_bytes", s.rss_bytes},
                    {"cpu_ns", s.cpu_ns},
                    {"threads", s.threads},
                    {"open_connections", s.open_connections}});
  }
  return list;
}

ordered_json agents_json(const Aggregate& run) {
  auto list = ordered_json::array();
  for (const auto& a : run.agents())
    list.push_back({{"agent", a.agent},
                    {"incarnation",
                     std::to_string(a.incarnation)},  // 64 bits do not fit a JSON reader's number
                    {"records", a.records},
                    {"last_seq", a.last_seq},
                    {"covered_s", seconds(a.covered)},
                    {"scheduled", a.counters.scheduled},
                    {"sent", a.counters.sent},
                    {"missed", a.counters.missed()},
                    {"max_rate_per_s", a.max_rate_per_s},
                    {"held", a.counters.held},
                    {"held_ns", a.counters.held_ns},
                    {"bytes_sent", a.counters.bytes_sent},
                    {"bytes_received", a.counters.bytes_received},
                    {"outcomes", outcomes_json(a.outcomes)},
                    {"connections_opened", a.counters.connections_opened},
                    {"connections_closed", a.counters.connections_closed},
                    {"cpu_ns", a.cpu_ns},
                    {"rss_bytes_max", a.rss_bytes_max},
                    {"latency_ns", latency_json(a.latency)}});
  return list;
}

}  // namespace

std::string json(const Aggregate& run) {
  const auto& info = run.info();
  auto phases = ordered_json::array();
  for (const auto& p : run.phases()) {
    const bool known = p.phase < info.plan.phases.size();
    phases.push_back({{"phase", p.phase},
                      {"name", known ? info.plan.phases[p.phase].name : ""},
                      {"measured", !known || info.plan.phases[p.phase].measured},
                      {"start_s", seconds(p.start)},
                      {"length_s", seconds(p.length)},
                      {"connections_requested", p.connections_requested},
                      {"connections_established", p.connections_established},
                      {"outcomes", outcomes_json(p.outcomes)},
                      {"rate_per_s", p.rate_per_s()},
                      {"latency_ns", latency_json(p.latency)},
                      {"service_time_ns", latency_json(p.service_time)},
                      {"send_lag_ns", latency_json(p.send_lag)}});
  }
  auto gaps = ordered_json::array();
  for (const auto& g : run.gaps())
    gaps.push_back({{"agent", g.agent},
                    {"from_s", seconds(g.from)},
                    {"to_s", seconds(g.to)},
                    {"cause", g.cause}});
  auto events = ordered_json::array();
  for (const auto& e : run.events())
    events.push_back({{"at_s", static_cast<double>(e.at_ns) / 1e9},
                      {"severity", severity(e.severity)},
                      {"text", e.text}});

  const EpochHistory history = epoch_history(run);
  auto epochs = ordered_json::array();
  for (const auto& e : history.epochs)
    epochs.push_back({{"epoch", e.number},
                      {"from_s", seconds(e.from)},
                      {"to_s", seconds(e.to)},
                      {"reason", e.reason}});
  auto guards = ordered_json::array();
  for (const auto& [from, to] : history.guards)
    guards.push_back({{"from_s", seconds(from)}, {"to_s", seconds(to)}});
  auto changes = ordered_json::array();
  for (const auto& c : info.changes)
    changes.push_back({{"epoch", c.epoch},
                       {"at_s", seconds(c.at)},
                       {"ordered_at", rfc3339(c.wall_ms)},
                       {"who", c.who},
                       {"what", c.what},
                       {"reason", c.reason},
                       {"canary", c.canary},
                       {"guard_s", seconds(c.guard)}});

  const ordered_json all = {{"report_version", kReportVersion},
                            {"summary", summary_json(run.summary())},
                            {"plan_text", info.plan_text},
                            {"overrides", info.overrides},
                            {"interval_s", seconds(info.plan.interval)},
                            {"series", series_json(run)},
                            {"phases", std::move(phases)},
                            {"epochs", std::move(epochs)},
                            {"guard_bands", std::move(guards)},
                            {"changes", std::move(changes)},
                            {"agents", agents_json(run)},
                            {"target", target_json(run)},
                            {"gaps", std::move(gaps)},
                            {"events", std::move(events)}};
  return all.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace spate::controller::report
