// One row per point. Drained answers are in the last row of their agent, so that columns add up to
// the run's totals.

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <iterator>

#include "controller/report_formats.h"

namespace spate::controller::report {
namespace {

// "2026-11-30T10:26:19.500Z"
std::string rfc3339_ms(std::int64_t wall_ms) {
  auto text = rfc3339(wall_ms);
  text.insert(text.size() - 1, fmt::format(".{:03}", wall_ms % 1000));
  return text;
}

}  // namespace

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

std::string csv(const Aggregate& run) {
  std::string out =
      "time,elapsed_s,length_s,phase,measured,guard,epoch,agents,connections_requested,connections_"
      "established,"
      "scheduled,sent,missed,held";
  for (const auto o : kOutcomes) fmt::format_to(std::back_inserter(out), ",{}", name(o));
  out +=
      ",rate_per_s,p50_ns,p90_ns,p99_ns,max_ns,bytes_sent,bytes_received,connections_opened,"
      "connections_closed,"
      "agents_cpu_s,target_address_space_bytes,target_rss_bytes,target_cpu_s,target_completed\n";

  const auto& info = run.info();
  const auto& samples = run.target_samples();
  std::size_t sample = 0;
  for (const auto& p : run.points()) {
    const auto begin =
        p.start.count() == 0 ? -1 : p.start.count();  // a look at a border is the row's before
    const auto end = (p.start + p.length).count();
    const bool known = p.phase < info.plan.phases.size();
    fmt::format_to(std::back_inserter(out), "{},{:.3f},{:.3f},{},{},{},{},{},{},{},{},{},{},{}",
                   rfc3339_ms(info.started_wall_ms + p.start / std::chrono::milliseconds(1)),
                   static_cast<double>(p.start.count()) / 1e9,
                   static_cast<double>(p.length.count()) / 1e9,
                   quoted(known ? info.plan.phases[p.phase].name : std::to_string(p.phase)),
                   (!known || info.plan.phases[p.phase].measured) && !p.guard, p.guard, p.epoch,
                   p.agents_reporting, p.connections_requested, p.connections_established,
                   p.counters.scheduled, p.counters.sent, p.counters.missed(), p.counters.held);
    for (const auto o : kOutcomes)
      fmt::format_to(std::back_inserter(out), ",{}", p.outcomes[index(o)]);
    fmt::format_to(std::back_inserter(out), ",{:.3f},{},{},{},{},{},{},{},{},{:.3f}",
                   p.rate_per_s(), p.latency.quantile(0.5), p.latency.quantile(0.9),
                   p.latency.quantile(0.99), p.latency.max(), p.counters.bytes_sent,
                   p.counters.bytes_received, p.counters.connections_opened,
                   p.counters.connections_closed, static_cast<double>(p.agent_cpu_ns) / 1e9);
    // The latest look at the target within this row's time, or nothing: an unseen target is not an
    // empty one.
    while (sample + 1 < samples.size() && samples[sample + 1].at_ns <= end) ++sample;
    if (sample < samples.size() && samples[sample].at_ns <= end && samples[sample].at_ns > begin)
      fmt::format_to(std::back_inserter(out), ",{},{},{:.3f},{}\n",
                     samples[sample].address_space_bytes, samples[sample].rss_bytes,
                     static_cast<double>(samples[sample].cpu_ns) / 1e9,
                     run.completed_at_samples()[sample]);
    else
      out += ",,,,\n";
  }
  return out;
}

}  // namespace spate::controller::report
