// A summary as JSON for programs and as a table for people.

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/units.h"
#include "controller/aggregate.h"
#include "controller/summary_json.h"

namespace spate::controller {
namespace {

using nlohmann::ordered_json;

constexpr int kSummaryVersion = 1;
// A person reads so many; the report and the JSON have all.
constexpr std::size_t kMaxShownErrors = 8;
constexpr std::size_t kMaxShownPhases = 60;
constexpr std::size_t kMaxShownLines = 6;

ordered_json latency_json(const LatencySummary& l) {
  return {{"mean", l.mean}, {"p50", l.p50},   {"p90", l.p90},
          {"p99", l.p99},   {"p999", l.p999}, {"max", l.max}};
}

std::string rate(double per_s) {
  return per_s >= 100 ? format_count(static_cast<std::uint64_t>(per_s + 0.5)) + "/s"
                      : fmt::format("{:.1f}/s", per_s);
}

std::string latency_row(std::string_view label, const LatencySummary& l) {
  return fmt::format("  {:<14}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n", label,
                     format_latency(static_cast<std::int64_t>(l.mean)), format_latency(l.p50),
                     format_latency(l.p90), format_latency(l.p99), format_latency(l.p999),
                     format_latency(l.max));
}

std::string row(std::string_view label, const std::string& text) {
  return fmt::format("  {:<14}{}\n", label, text);
}

std::string requests_text(const Summary& s) {
  std::string text =
      row("requests", fmt::format("{} sent, {} in the measured phases",
                                  format_count(s.requests.sent), rate(s.rate_per_s)));
  text += row("", fmt::format("{} ok, {} failed, {} timed out, {} cancelled, {} missed",
                              format_count(s.requests.ok), format_count(s.requests.failed),
                              format_count(s.requests.timed_out),
                              format_count(s.requests.cancelled), format_count(s.requests.missed)));
  if (s.requests.held > 0)
    text +=
        row("", fmt::format("{} held back by owners' caps, {} on average",
                            format_count(s.requests.held),
                            format_latency(static_cast<std::int64_t>(s.requests.held_ns_mean))));
  text += row(
      "connections",
      fmt::format("{} of {} established, {} opened, {} closed",
                  format_count(s.connections.established), format_count(s.connections.requested),
                  format_count(s.connections.opened), format_count(s.connections.closed)));
  text += row("bytes", fmt::format("{} sent, {} received", format_size(s.bytes.sent),
                                   format_size(s.bytes.received)));
  return text;
}

std::string latency_text(const Summary& s) {
  auto text = fmt::format("\n  {:<14}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "", "mean", "p50",
                          "p90", "p99", "p99.9", "max");
  text += latency_row("latency", s.latency);
  text += latency_row("service time", s.service_time);
  text += latency_row("send lag", s.send_lag);
  return text;
}

std::string phases_text(const Summary& s) {
  const auto measured =
      std::count_if(s.phases.begin(), s.phases.end(), [](const auto& p) { return p.measured; });
  if (measured < 2) return "";
  std::size_t width = 5;
  for (const auto& p : s.phases) width = std::max(width, std::min<std::size_t>(p.name.size(), 28));
  auto text = fmt::format("\n  {:<{}}  {:>11}{:>12}{:>10}{:>10}{:>10}\n", "phase", width,
                          "connections", "req/s", "p50", "p99", "errors");
  std::size_t shown = 0;
  for (const auto& p : s.phases) {
    if (!p.measured) continue;
    if (shown++ == kMaxShownPhases) {
      text +=
          row("", fmt::format("and {} more", static_cast<std::size_t>(measured) - kMaxShownPhases));
      break;
    }
    text += fmt::format(
        "  {:<{}.28}  {:>11}{:>12}{:>10}{:>10}{:>10}\n", p.name, width,
        format_count(p.connections_requested),
        p.rate_per_s >= 100 ? format_count(static_cast<std::uint64_t>(p.rate_per_s + 0.5))
                            : fmt::format("{:.1f}", p.rate_per_s),
        format_latency(p.latency.p50), format_latency(p.latency.p99), format_count(p.failed));
  }
  return text;
}

std::string short_rate(double per_s) {
  return per_s >= 100 ? format_count(static_cast<std::uint64_t>(per_s + 0.5))
                      : fmt::format("{:.1f}", per_s);
}

std::string whole(double n) { return format_count(static_cast<std::uint64_t>(n + 0.5)); }

std::string sets_row(std::string_view label, std::size_t width, const Summary::ShareRow& r,
                     bool with_parameters, bool with_sizes) {
  return fmt::format("  {:<{}.28}  {:>11}{:>6}{:>6}{:>16}{:>10}{:>10}{:>10}{:>13}{:>10}\n", label,
                     width, format_count(r.connections),
                     !with_parameters ? ""
                     : r.encrypted    ? "yes"
                                      : "no",
                     !with_parameters ? ""
                     : r.compressed   ? "yes"
                                      : "no",
                     format_count(r.requests), with_sizes ? whole(r.bytes_per_request) : "",
                     with_sizes ? whole(r.bytes_per_response) : "", short_rate(r.rate_per_s),
                     whole(r.bytes_per_s), r.memory_bytes == 0 ? "" : format_size(r.memory_bytes));
}

std::string sets_text(const Summary& s) {
  if (s.sets.empty()) return "";
  std::size_t width = 6;
  for (const auto& rows : {s.sets, s.set_agents})
    for (const auto& r : rows) width = std::max(width, std::min<std::size_t>(r.name.size(), 28));
  std::string text = fmt::format(
      "\n  {:<{}}  {:>11}{:>6}{:>6}{:>16}{:>10}{:>10}{:>10}{:>13}{:>10}\n", "set", width,
      "connections", "tls", "gzip", "requests", "B/req", "B/resp", "req/s", "bytes/s", "memory");
  const auto list = [&](const std::vector<Summary::ShareRow>& rows, bool with_parameters) {
    for (std::size_t i = 0; i < std::min(rows.size(), kMaxShownPhases); ++i)
      text += sets_row(rows[i].name, width, rows[i], with_parameters, true);
    if (rows.size() > kMaxShownPhases)
      text += row("", fmt::format("and {} more", rows.size() - kMaxShownPhases));
  };
  list(s.sets, true);
  list(s.set_agents, false);
  return text + sets_row("server", width, s.server, true, false) + "  " + s.sets_total + "\n";
}

std::string errors_text(const Summary& s) {
  if (s.errors.empty()) return "";
  std::vector<std::pair<std::string, std::uint64_t>> sorted(s.errors.begin(), s.errors.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text = "\n  errors\n";
  for (std::size_t i = 0; i < std::min(sorted.size(), kMaxShownErrors); ++i)
    text += fmt::format("  {:>12}  {}\n", format_count(sorted[i].second), sorted[i].first);
  if (sorted.size() > kMaxShownErrors)
    text += fmt::format("  {:>12}  more kinds, see the report\n", sorted.size() - kMaxShownErrors);
  return text;
}

std::string sides_text(const Summary& s) {
  std::string text = "\n";
  if (s.target.known) {
    text +=
        row("target", fmt::format("{} received, {} completed, {:.1f} us CPU a request",
                                  format_count(s.target.received), format_count(s.target.completed),
                                  s.target.cpu_us_per_request));
    text += row(
        "", fmt::format("{} address space, {} resident{}{}",
                        format_size(s.target.address_space_bytes), format_size(s.target.rss_bytes),
                        s.target.allocator.empty() ? "" : ", allocator ", s.target.allocator));
  } else {
    text += row("target", "not sampled");
  }
  text +=
      row("agents", fmt::format("{}, {:.1f} us CPU a request, at most {} resident", s.agents,
                                s.agent.cpu_us_per_request, format_size(s.agent.rss_bytes_max)));
  text += row("", fmt::format("started within {}", format_latency(s.start_skew_ns)));
  text += row("records",
              fmt::format("{} stored, {} gaps, {} duplicates", format_count(s.records.stored),
                          format_count(s.records.gaps), format_count(s.records.duplicates)));
  text += row("balance", std::string(name(s.balance)));
  if (s.balance != Balance::balanced)
    for (std::size_t i = 0; i < std::min(s.balance_lines.size(), kMaxShownLines); ++i)
      text += row("", s.balance_lines[i]);
  return text;
}

std::string thresholds_text(const Summary& s) {
  std::string text;
  for (const auto& t : s.failed_thresholds)
    text += row(text.empty() ? "thresholds" : "", "FAILED  " + t);
  for (const auto& t : s.passed_thresholds)
    text += row(text.empty() ? "thresholds" : "", "passed  " + t);
  return text;
}

ordered_json share_row_json(const Summary::ShareRow& r) {
  return {{"name", r.name},
          {"connections", r.connections},
          {"encrypted", r.encrypted},
          {"compressed", r.compressed},
          {"requests", r.requests},
          {"failed", r.failed},
          {"bytes_per_request", r.bytes_per_request},
          {"bytes_per_response", r.bytes_per_response},
          {"rate_per_s", r.rate_per_s},
          {"bytes_per_s", r.bytes_per_s},
          {"p50_ns", r.p50},
          {"p99_ns", r.p99},
          {"memory_bytes", r.memory_bytes}};
}

ordered_json sets_json(const Summary& s) {
  if (s.sets.empty()) return nullptr;
  ordered_json sets = ordered_json::array();
  ordered_json agents = ordered_json::array();
  for (const auto& r : s.sets) sets.push_back(share_row_json(r));
  for (const auto& r : s.set_agents) {
    ordered_json agent = share_row_json(r);
    agent.erase("encrypted");  // they had several
    agent.erase("compressed");
    agents.push_back(std::move(agent));
  }
  ordered_json server = share_row_json(s.server);
  for (const char* unknown : {"bytes_per_request", "bytes_per_response", "p50_ns", "p99_ns"})
    server.erase(unknown);
  return {{"sets", std::move(sets)},
          {"agents", std::move(agents)},
          {"server", std::move(server)},
          {"total", s.sets_total}};
}

}  // namespace

ordered_json summary_json(const Summary& s) {
  ordered_json phases = ordered_json::array();
  for (const auto& p : s.phases)
    phases.push_back(
        {{"name", p.name},
         {"measured", p.measured},
         {"length_s", p.length_s},
         {"connections",
          {{"requested", p.connections_requested}, {"established", p.connections_established}}},
         {"ok", p.ok},
         {"failed", p.failed},
         {"rate_per_s", p.rate_per_s},
         {"latency_ns", latency_json(p.latency)}});
  return {
      {"summary_version", kSummaryVersion},
      {"run", s.run},
      {"plan", s.plan},
      {"verdict", name(s.verdict)},
      {"reasons", s.reasons},
      {"started_at", s.started_at},
      {"duration_s", s.duration_s},
      {"agents", s.agents},
      {"epochs", s.epochs},
      {"connections",
       {{"requested", s.connections.requested},
        {"established", s.connections.established},
        {"opened", s.connections.opened},
        {"closed", s.connections.closed}}},
      {"requests",
       {{"scheduled", s.requests.scheduled},
        {"sent", s.requests.sent},
        {"ok", s.requests.ok},
        {"failed", s.requests.failed},
        {"timed_out", s.requests.timed_out},
        {"cancelled", s.requests.cancelled},
        {"missed", s.requests.missed},
        {"held", s.requests.held},
        {"held_ns_mean", s.requests.held_ns_mean}}},
      {"errors", ordered_json(s.errors.empty() ? ordered_json::object() : ordered_json(s.errors))},
      {"rate_per_s", s.rate_per_s},
      {"bytes", {{"sent", s.bytes.sent}, {"received", s.bytes.received}}},
      {"latency_ns", latency_json(s.latency)},
      {"service_time_ns", latency_json(s.service_time)},
      {"send_lag_ns", latency_json(s.send_lag)},
      {"start_skew_ns", s.start_skew_ns},
      {"records",
       {{"stored", s.records.stored},
        {"gaps", s.records.gaps},
        {"duplicates", s.records.duplicates}}},
      {"balance", name(s.balance)},
      {"agent",
       {{"cpu_us_per_request", s.agent.cpu_us_per_request},
        {"rss_bytes_max", s.agent.rss_bytes_max}}},
      {"target",
       {{"known", s.target.known},
        {"received", s.target.received},
        {"completed", s.target.completed},
        {"address_space_bytes", s.target.address_space_bytes},
        {"rss_bytes", s.target.rss_bytes},
        {"cpu_us_per_request", s.target.cpu_us_per_request},
        {"allocator", s.target.allocator},
        {"address_space_bytes_max", s.target.address_space_bytes_max},
        {"rss_bytes_max", s.target.rss_bytes_max},
        {"restarts", s.target.restarts}}},
      {"thresholds", {{"failed", s.failed_thresholds}, {"passed", s.passed_thresholds}}},
      {"phases", std::move(phases)},
      {"parameter_sets", sets_json(s)},
      {"balance_lines", s.balance_lines},
      {"exit_code", s.exit_code}};
}

std::string to_json(const Summary& summary) {
  // Error texts come from the target: what is not UTF-8 in them is replaced.
  return summary_json(summary).dump(2, ' ', false, ordered_json::error_handler_t::replace);
}

std::string to_text(const Summary& s) {
  std::string text = fmt::format("{}  {}\n", name(s.verdict), s.run);
  for (const auto& reason : s.reasons) text += fmt::format("  - {}\n", reason);
  text += "\n";
  text += row("plan", fmt::format("{}, {:.1f} s, {} {}, {} {}{}{}", s.plan, s.duration_s, s.agents,
                                  s.agents == 1 ? "agent" : "agents", s.epochs,
                                  s.epochs == 1 ? "epoch" : "epochs",
                                  s.started_at.empty() ? "" : ", started ", s.started_at));
  text += requests_text(s);
  text += latency_text(s);
  text += phases_text(s);
  text += sets_text(s);
  text += errors_text(s);
  text += sides_text(s);
  text += thresholds_text(s);
  return text;
}

}  // namespace spate::controller
