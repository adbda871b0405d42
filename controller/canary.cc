#include "controller/canary.h"

#include <algorithm>
#include <array>
#include <map>

#include "controller/store_reader.h"

namespace spate::controller {
namespace {

struct Sum {
  Histogram latency;  // of requests that were answered well
  std::uint64_t finished = 0;
  std::uint64_t ok = 0;
  double connection_seconds = 0;

  void add(const Record& record) {
    latency.merge(record.series[index(Outcome::ok)].latency);
    finished += record.finished();
    ok += record.count(Outcome::ok);
    connection_seconds += static_cast<double>(record.gauges.connections_established) *
                          std::chrono::duration<double>(record.length).count();
  }
  void add(const Sum& other) {
    latency.merge(other.latency);
    finished += other.finished;
    ok += other.ok;
    connection_seconds += other.connection_seconds;
  }
};

CanaryGroup group(std::string name, const Sum& sum) {
  CanaryGroup group;
  group.name = std::move(name);
  group.requests = sum.finished;
  if (sum.connection_seconds > 0)
    group.rate_per_connection = static_cast<double>(sum.finished) / sum.connection_seconds;
  if (sum.finished == 0) return group;
  group.failed_share =
      static_cast<double>(sum.finished - sum.ok) / static_cast<double>(sum.finished);
  group.latency_p50_ns = static_cast<std::uint64_t>(sum.latency.quantile(0.5));
  group.latency_p99_ns = static_cast<std::uint64_t>(sum.latency.quantile(0.99));
  return group;
}

}  // namespace

const Change* canary_on_trial(const std::vector<ChangeRow>& changes) {
  for (auto row = changes.rbegin(); row != changes.rend(); ++row) {
    const Change& change = row->change;
    const bool is_pause =
        std::all_of(change.parts.begin(), change.parts.end(), [](const Change::Part& part) {
          ParameterPatch only_paused;
          only_paused.paused = part.patch.paused;
          return part.patch == only_paused;
        });
    if (!row->is_due || change.absent || is_pause) continue;
    return change.canary ? &change : nullptr;
  }
  return nullptr;
}

Result<std::vector<CanaryGroup>> compare_canary(const std::string& store_path,
                                                const std::string& run, const Change& canary) {
  std::map<std::string, Sum> sums;
  const auto loaded = load_run(store_path, run, [&](const Record& record) {
    if (record.epoch >= canary.epoch && !record.drain && !record.guard)
      sums[record.key.agent].add(record);
  });
  if (!loaded) return loaded.error();
  const auto& agents = (*loaded)->info().agents;
  std::array<Sum, 2> of;
  std::array<std::uint32_t, 2> counts{};
  for (std::uint32_t i = 0; i < agents.size(); ++i) {
    const auto& chosen = canary.parts.front().agents;
    const std::size_t which = std::find(chosen.begin(), chosen.end(), i) == chosen.end() ? 1 : 0;
    ++counts[which];
    of[which].add(sums[agents[i].name]);
  }
  std::vector<CanaryGroup> groups{group("canary", of[0]), group("others", of[1])};
  groups[0].agents = counts[0];
  groups[1].agents = counts[1];
  return groups;
}

}  // namespace spate::controller
