// The table of a run whose parameters change, as CSV: a row for each set, for each agent, and for
// the server.

#include <spdlog/fmt/fmt.h>

#include "controller/report_formats.h"

namespace spate::controller::report {
namespace {

std::string row(std::string_view kind, const Summary::ShareRow& r, bool has_parameters,
                bool has_sizes) {
  const auto yes_no = [&](bool value) { return !has_parameters ? "" : value ? "yes" : "no"; };
  const auto size = [&](double value) { return has_sizes ? fmt::format("{:.1f}", value) : ""; };
  const auto ns = [&](std::int64_t value) { return has_sizes ? std::to_string(value) : ""; };
  return fmt::format("{},{},{},{},{},{},{},{},{},{:.3f},{:.1f},{},{},{}\n", kind, quoted(r.name),
                     r.connections, yes_no(r.encrypted), yes_no(r.compressed), r.requests, r.failed,
                     size(r.bytes_per_request), size(r.bytes_per_response), r.rate_per_s,
                     r.bytes_per_s, ns(r.p50), ns(r.p99), r.memory_bytes);
}

}  // namespace

std::string sets(const Aggregate& run) {
  const Summary s = run.summary();
  std::string out =
      "kind,name,connections,encrypted,compressed,requests,failed,bytes_per_request,"
      "bytes_per_response,rate_per_s,bytes_per_s,p50_ns,p99_ns,memory_bytes\n";
  for (const auto& r : s.sets) out += row("set", r, true, true);
  for (const auto& r : s.set_agents) out += row("agent", r, false, true);
  if (!s.sets.empty()) out += row("server", s.server, true, false);
  return out;
}

}  // namespace spate::controller::report
