#include "cli/progress.h"

#include <fmt/format.h>

#include <cmath>

#include "common/units.h"
#include "proto/operator.pb.h"

namespace spate::cli {
namespace {

constexpr const char* kColumns = "{:>13}  {:<11.11}  {:>13}  {:>10}  {:>7}  {:>7}  {:>6}  {:>9}";

std::string latency(std::uint64_t ns, std::uint64_t requests) {
  return requests == 0 ? "-" : format_latency(static_cast<std::int64_t>(ns));
}

}  // namespace

std::string format_elapsed(std::int64_t ms) {
  const std::int64_t total = std::abs(ms) / 1000;
  const char* sign = ms <= -1000 ? "-" : "";
  const std::int64_t hours = total / 3600, minutes = total / 60 % 60, seconds = total % 60;
  if (hours > 0) return fmt::format("{}{}:{:02}:{:02}", sign, hours, minutes, seconds);
  return fmt::format("{}{}:{:02}", sign, minutes, seconds);
}

std::string progress_heading() {
  return fmt::format(kColumns, "time", "phase", "connections", "requests/s", "p50", "p99", "failed",
                     "target");
}

std::string format_progress(const ops::v1::Progress& p) {
  const std::uint64_t requests = p.ok() + p.failed();
  std::string line = fmt::format(
      kColumns, format_elapsed(p.elapsed_ms()) + "/" + format_elapsed(p.planned_ms()), p.phase(),
      format_count(p.connections_established()) + "/" + format_count(p.connections_requested()),
      format_count(static_cast<std::uint64_t>(std::llround(std::max(0.0, p.rate_per_s())))),
      latency(p.latency_p50_ns(), requests), latency(p.latency_p99_ns(), requests),
      format_count(p.failed()),
      p.target_rss_bytes() == 0 ? "-" : format_size(p.target_rss_bytes()));
  if (p.agents_reporting() < p.agents())
    line += fmt::format("  {} of {} agents report", p.agents_reporting(), p.agents());
  return line;
}

std::string format_event(const ops::v1::Event& event) {
  const std::string severity =
      event.severity().empty() || event.severity() == "info" ? "" : event.severity() + ": ";
  return fmt::format("{:>13}  {}{}", format_elapsed(event.at_ms()), severity, event.text());
}

}  // namespace spate::cli
