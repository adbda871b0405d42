#pragma once

// Folds a run's records, target samples and events into what is shown: live lines, the summary, the series
// behind the charts, the balance. Pure; one thread. The same code serves the live view, the report and
// `verify`. Memory does not grow with the number of requests, and with the run's length only up to
// kMaxPoints points (neighbours are merged, histograms exactly).

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/record.h"
#include "controller/run_info.h"

namespace spate::controller {

inline constexpr std::size_t kMaxPoints = 2'000;

enum class Verdict { valid, suspect, invalid };
std::string_view name(Verdict v);  // "VALID" …
enum class Balance { balanced, explained, unbalanced };
std::string_view name(Balance b);

// One step of the time axis, all agents together.
struct Point {
  Duration start{};
  Duration length{};
  std::uint32_t phase = 0;
  std::uint32_t epoch = 1;
  std::uint32_t agents_reporting = 0;  // fewest of any merged interval
  Counters counters;                   // sums; in_flight_* of the borders
  std::array<std::uint64_t, kOutcomeCount> outcomes{};
  Histogram latency;
  std::uint64_t connections_requested = 0;
  std::uint64_t connections_established = 0;
  double rate_per_s() const;
};

struct AgentTotals {
  std::string agent;
  std::uint64_t incarnation = 0;
  std::uint64_t records = 0;
  std::uint64_t last_seq = 0;
  Counters counters;
  std::array<std::uint64_t, kOutcomeCount> outcomes{};
  Histogram latency;  // measured phases
  std::uint64_t cpu_ns = 0;
  std::uint64_t rss_bytes_max = 0;
  Duration covered{};  // sum of the lengths of its records, without the drain
};

struct Gap {
  std::string agent;
  Duration from{};
  Duration to{};
  std::string cause;
};

struct LatencySummary {
  double mean = 0;
  std::int64_t p50 = 0, p90 = 0, p99 = 0, p999 = 0, max = 0;
};

// The object of `-o json`, version 1. requests, errors, bytes and connections cover the whole run; rate and
// latency the measured phases.
struct Summary {
  std::string run, plan;
  Verdict verdict = Verdict::valid;
  std::vector<std::string> reasons;
  std::string started_at;
  double duration_s = 0;
  std::uint32_t agents = 0;
  std::uint32_t epochs = 1;
  struct { std::uint64_t requested = 0, established = 0, opened = 0, closed = 0; } connections;
  struct { std::uint64_t scheduled = 0, sent = 0, ok = 0, failed = 0, timed_out = 0, cancelled = 0, missed = 0; } requests;
  std::map<std::string, std::uint64_t> errors;  // "application_error 3 text" -> count
  double rate_per_s = 0;
  struct { std::uint64_t sent = 0, received = 0; } bytes;
  LatencySummary latency, service_time, send_lag;
  std::int64_t start_skew_ns = 0;
  struct { std::uint64_t stored = 0, gaps = 0, duplicates = 0; } records;
  Balance balance = Balance::balanced;
  std::vector<std::string> balance_lines;  // what verify prints
  struct { double cpu_us_per_request = 0; std::uint64_t rss_bytes_max = 0; } agent;
  struct {
    bool known = false;
    std::string allocator;
    std::uint64_t received = 0, completed = 0, address_space_bytes = 0, rss_bytes = 0;
    double cpu_us_per_request = 0;
  } target;
  std::vector<std::string> failed_thresholds;
  std::vector<std::string> passed_thresholds;
  int exit_code = 0;  // 0, 3 (INVALID), 99 (threshold), 105 (stopped)
};

std::string to_json(const Summary& summary);
std::string to_text(const Summary& summary);

class Aggregate {
 public:
  explicit Aggregate(const RunInfo& info);

  void add(const Record& record);       // each record once, an agent's in order of seq
  void add(const TargetSample& sample); // in order of time
  void add(const RunEvent& event);
  void add_duplicates(std::uint64_t n) { duplicates_ += n; }
  // Agents, state and end may change while a run is live.
  void update(const RunInfo& info) { info_ = info; }

  const RunInfo& info() const { return info_; }
  const std::vector<Point>& points() const;           // ascending; borders as the agents' records have them
  const std::vector<AgentTotals>& agents() const { return agents_; }
  const std::vector<TargetSample>& target_samples() const { return samples_; }
  const std::vector<RunEvent>& events() const { return events_; }
  std::vector<Gap> gaps() const;
  Summary summary() const;

  // The measured latency of one phase, merged over agents: the rows of a sweep's table.
  struct PhaseTotals {
    std::uint32_t phase = 0;
    Counters counters;
    std::array<std::uint64_t, kOutcomeCount> outcomes{};
    Histogram latency;
    std::uint64_t connections_established = 0;
    std::uint64_t finished = 0;
    Duration length{};
  };
  std::vector<PhaseTotals> phases() const;

 private:
  RunInfo info_;
  std::uint64_t duplicates_ = 0;
  std::vector<Point> points_;
  std::vector<AgentTotals> agents_;
  std::vector<TargetSample> samples_;
  std::vector<RunEvent> events_;
  // … whatever else the implementation needs
};

}  // namespace spate::controller
