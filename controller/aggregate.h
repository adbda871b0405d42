#pragma once

// Folds a run's records, target samples and events into what is shown: live lines, the summary, the
// series behind the charts, the balance. Pure; one thread. The same code serves the live view, the
// report and `verify`. Memory does not grow with the number of requests, and with the run's length
// only up to kMaxPoints points (neighbours are merged, histograms exactly; with more than half as
// many epochs, neighbouring epochs share points).
//
// Records may cover an interval or, merged, many of them; a point is as long as the longest record
// in it.

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/record.h"
#include "controller/run_info.h"
#include "controller/set_table.h"

namespace spate::controller {

inline constexpr std::size_t kMaxPoints = 2'000;
// Target samples and events beyond these are thinned out; the first and the last of each boot stay.
inline constexpr std::size_t kMaxTargetSamples = 4'000;
inline constexpr std::size_t kMaxEvents = 2'000;
inline constexpr std::size_t kMaxGapsPerAgent = 1'000;  // more are folded into the last one
// Agents' processes with an account of their own. Of an agent that restarts without end, the
// further ones share one account, its incarnation 0: totals stay, the chain from one record to the
// next is not checked in it.
inline constexpr std::size_t kMaxAccounts = 1'000;

enum class Verdict { valid, suspect, invalid };
std::string_view name(Verdict v);  // "VALID" …
enum class Balance { balanced, explained, unbalanced };
std::string_view name(Balance b);

// Whether a request of this outcome belongs in `latency` and `service_time`: the answered ones, and
// the timed-out ones with the time they waited. Without those, a target that never answers would
// look fast; with the ones that broke early (refused, reset …), a broken target would.
bool counts_for_latency(Outcome o);

// One step of the time axis, all agents together.
struct Point {
  Duration start{};
  Duration length{};
  std::uint32_t phase = 0;
  std::uint32_t epoch = 1;
  bool guard = false;                  // in a guard band: not measured
  std::uint32_t agents_reporting = 0;  // fewest of any merged interval
  Counters counters;                   // sums; in_flight_* of the borders
  std::array<std::uint64_t, kOutcomeCount> outcomes{};
  Histogram latency;  // of outcomes that count for latency
  std::uint64_t connections_requested = 0;
  std::uint64_t connections_established = 0;  // fewest at the end of any merged interval
  std::uint64_t agent_cpu_ns = 0;             // used by the agents' processes
  double rate_per_s() const;                  // finished and not cut off, per second
  std::uint64_t ok() const { return outcomes[index(Outcome::ok)]; }
  std::uint64_t failed() const;  // neither ok nor cut off by the end of the drain
};

// Of one process of an agent.
struct AgentTotals {
  std::string agent;
  std::uint64_t incarnation = 0;
  std::uint64_t records = 0;  // as the agent made them: one that was merged from ten counts ten
  std::uint64_t last_seq = 0;
  Counters counters;
  std::array<std::uint64_t, kOutcomeCount> outcomes{};
  Histogram latency;  // measured phases
  std::uint64_t cpu_ns = 0;
  std::uint64_t rss_bytes_max = 0;
  double max_rate_per_s = 0;  // its owner's cap on requests, the last one; 0: none
  Duration covered{};         // sum of the lengths of its records, without the drain
};

struct Gap {
  std::string agent;
  Duration from{};
  Duration to{};
  std::string cause;
  std::uint64_t incarnation = 0;
};

// Nothing is missing, but the agent's process had died and the next one had not begun.
struct Absence {
  std::string agent;
  Duration from{};
  Duration to{};
  std::string cause;
};

struct LatencySummary {
  double mean = 0;
  std::int64_t p50 = 0, p90 = 0, p99 = 0, p999 = 0, max = 0;
};

// The object of `-o json`, version 1. requests, errors, bytes and connections cover the whole run;
// rate and latency the measured phases.
struct Summary {
  std::string run, plan;
  Verdict verdict = Verdict::valid;
  std::vector<std::string> reasons;
  std::string started_at;
  double duration_s = 0;
  std::uint32_t agents = 0;
  std::uint32_t epochs = 1;
  struct {
    std::uint64_t requested = 0, established = 0, opened = 0, closed = 0;
  } connections;
  struct {
    std::uint64_t scheduled = 0, sent = 0, ok = 0, failed = 0, timed_out = 0, cancelled = 0,
                  missed = 0;
    std::uint64_t held = 0;  // of the sent ones, by owners' caps
    double held_ns_mean = 0;
  } requests;
  std::map<std::string, std::uint64_t> errors;  // "application_error 3 text" -> count
  double rate_per_s = 0;
  struct {
    std::uint64_t sent = 0, received = 0;
  } bytes;
  LatencySummary latency, service_time, send_lag;
  std::int64_t start_skew_ns = 0;
  struct {
    std::uint64_t stored = 0, gaps = 0, duplicates = 0;
  } records;
  Balance balance = Balance::balanced;
  std::vector<std::string> balance_lines;  // what verify prints
  struct {
    double cpu_us_per_request = 0;
    std::uint64_t rss_bytes_max = 0;
  } agent;
  struct {
    bool known = false;
    std::string allocator;
    std::uint64_t received = 0, completed = 0;             // of this run, over all boots
    std::uint64_t address_space_bytes = 0, rss_bytes = 0;  // at the end
    std::uint64_t address_space_bytes_max = 0, rss_bytes_max = 0;
    double cpu_us_per_request = 0;
    std::uint64_t restarts = 0;
  } target;
  struct PhaseRow {
    std::string name;
    bool measured = true;
    double length_s = 0;
    std::uint64_t connections_requested = 0, connections_established = 0;
    std::uint64_t ok = 0, failed = 0;  // failed: neither ok nor cancelled
    double rate_per_s = 0;
    LatencySummary latency;
  };
  std::vector<PhaseRow> phases;  // those that were reached
  // Of a run whose parameters change, R6's table: what each set did, each agent, and the target.
  // The requests of the sets, of the agents and (if all is well) of the target add up to the same.
  struct ShareRow {
    std::string name;
    std::uint64_t connections = 0;  // most at once
    bool encrypted = false, compressed = false;
    std::uint64_t requests = 0, failed = 0;  // sent, with guard bands and all phases
    double bytes_per_request = 0, bytes_per_response = 0, rate_per_s = 0, bytes_per_s = 0;
    std::int64_t p50 = 0, p99 = 0;   // of the measured ones
    std::uint64_t memory_bytes = 0;  // highest, of one agent or of the target
  };
  std::vector<ShareRow> sets;  // empty: all had the same parameters all along
  std::vector<ShareRow> set_agents;
  ShareRow server;
  // Whether they add up, or by how much they do not.
  std::string sets_total;
  std::vector<std::string> failed_thresholds;
  std::vector<std::string> passed_thresholds;
  int exit_code = 0;  // 0, 3 (INVALID), 99 (threshold), 105 (stopped)
};

std::string to_json(const Summary& summary);
std::string to_text(const Summary& summary);

class Aggregate {
 public:
  explicit Aggregate(const RunInfo& info);

  void add(const Record& record);        // each record once, an agent's in order of seq
  void add(const TargetSample& sample);  // in order of time
  void add(const RunEvent& event);
  void add_duplicates(std::uint64_t n) { duplicates_ += n; }
  // Agents, state and end may change while a run is live.
  void update(const RunInfo& info) {
    info_ = info;
    sets_.update(info);
  }

  const RunInfo& info() const { return info_; }
  const std::vector<Point>& points() const;  // ascending; borders as the agents' records have them
  const std::vector<AgentTotals>& agents() const { return agents_; }
  const std::vector<TargetSample>& target_samples() const { return samples_; }
  const std::vector<RunEvent>& events() const { return events_; }
  std::vector<Gap> gaps() const;
  std::vector<Absence> absences() const;  // in the order of time
  Summary summary() const;

  // One phase, merged over agents: the rows of a sweep's table. Answers of the drain count for the
  // phase that its agent was in last. Phases that were not reached are absent.
  struct PhaseTotals {
    std::uint32_t phase = 0;
    Counters counters;
    std::array<std::uint64_t, kOutcomeCount> outcomes{};
    Histogram latency;
    std::uint64_t connections_established = 0;  // fewest at the end of any interval
    std::uint64_t finished = 0;
    Duration length{};  // as far as it was run
    Duration start{};
    Histogram service_time;
    Histogram send_lag;
    std::uint64_t connections_requested = 0;
    double rate_per_s() const;
  };
  std::vector<PhaseTotals> phases() const;

  // What each set of parameters did: the rows of a rotation's table.
  std::vector<SetTable::Row> sets() const { return sets_.rows(end()); }

  // What verify prints and decides. Unless balanced, the line that decides comes first.
  Balance balance(std::vector<std::string>& lines) const;

  // This run's requests as the target had completed them at each of target_samples(), over all
  // boots.
  const std::vector<std::uint64_t>& completed_at_samples() const { return completed_at_samples_; }
  std::uint64_t target_restarts() const { return boots_ == 0 ? 0 : boots_ - 1; }
  // The end of the time axis: of the run, or of what is stored if that is longer.
  Duration end() const;
  // Broken per-record and chain laws found while adding; the first few as sentences.
  std::uint64_t broken_law_count() const { return broken_law_count_; }
  const std::vector<std::string>& broken_law_texts() const { return broken_law_texts_; }

 private:
  // What must not share a point. In a slot, as together() has it.
  struct Group {
    std::uint32_t phase = 0;
    std::uint32_t epoch = 0;
    bool settled = true;  // not in a guard band
    auto operator<=>(const Group&) const = default;
  };
  // Bins of width interval << level_ on the time axis.
  struct Bins {
    std::uint64_t first = 0;
    std::uint64_t last = 0;
  };
  // Ordered by (bins.first, group); those of one group do not overlap.
  struct PointSlot {
    Bins bins;
    Group group;
    std::uint32_t contributors = 0;  // agents with a record in it
  };
  // Beside agents_[i]: what is needed to place and check the next record.
  struct AgentState {
    Record previous;  // without histograms; seq 0: none yet
    std::vector<Gap> gaps;
    Duration covered_from{};
    Duration covered_to{};  // without the drain
    // Its last record within guard bands, and its last one outside: what it added to that point.
    struct Last {
      bool is_set = false;
      Duration start{};
      Group group;  // with its own epoch
      Gauges gauges;
      std::uint64_t in_flight = 0;
    };
    std::array<Last, 2> last;  // by Group::settled
    bool was_settled = true;   // the very last one
    bool placed = false;       // has a record on the time axis
    std::uint64_t measured_cpu_ns = 0;
    Duration measured{};
  };
  struct TargetCounts {
    std::uint64_t received = 0;
    std::uint64_t completed = 0;
    std::uint64_t refused = 0;
  };
  using AgentId = std::pair<std::string, std::uint64_t>;

  std::size_t agent_index(const Record& record);
  void check_laws(const Record& record, AgentState& state, bool is_one_chain);
  std::size_t point_for(Duration start, Duration length, const Group& group);  // made or widened
  std::size_t insert_point(const Bins& bins, const Group& group, Duration start);
  void join_points(std::size_t into, std::uint64_t last_bin);
  void place(const Record& record, std::size_t agent);
  bool is_last_point(const AgentState::Last& last, std::size_t point) const;
  bool takes_over(const AgentTotals& agent, AgentState::Last& last, std::size_t point,
                  bool settled) const;
  void place_states(const Record& record, AgentState::Last& last, Point& point, bool same_point,
                    bool same_share);
  void add_to_phase(const Record& record, std::uint32_t phase);
  Bins bins_of(Duration start, Duration length) const;
  std::size_t slot_after(std::uint64_t bin, const Group& group) const;
  // The point of this group that covers the bin; npos: none.
  std::size_t point_at(std::uint64_t bin, const Group& group) const;
  bool make_room();
  void merge_neighbours();
  Group together(const Group& group) const {
    return {group.phase, group.epoch >> epoch_level_, group.settled};
  }
  void thin_samples();
  void close_boot();
  std::map<AgentId, TargetCounts> target_counts() const;
  std::map<AgentId, TargetCounts> folded_target_counts() const;
  std::uint64_t sent_between(Duration from, Duration to) const;
  bool is_measured(std::uint32_t phase) const;
  bool is_measured(const Group& group) const { return group.settled && is_measured(group.phase); }
  const DeadIncarnation* dead(const std::string& agent, std::uint64_t incarnation) const;
  std::size_t agent_count() const;
  void end_gaps(const RunAgent& agent, std::vector<Gap>& gaps) const;
  void fill_measured(Summary& summary) const;
  void fill_target(Summary& summary) const;
  std::map<std::string, AgentTotals> by_agent() const;  // all processes of one as one
  void fill_sets(Summary& summary) const;
  void judge_run(Summary& summary, const std::vector<Gap>& gaps) const;

  RunInfo info_;
  std::uint64_t duplicates_ = 0;
  // agents_reporting is computed when it is asked for.
  mutable std::vector<Point> points_;
  mutable std::size_t stale_from_ = 0;
  std::vector<PointSlot> slots_;  // beside points_
  std::uint32_t level_ = 0;
  std::uint32_t epoch_level_ = 0;  // 2^epoch_level_ neighbouring epochs share their points
  std::uint64_t longest_ = 1;      // bins in a point, at most
  std::vector<AgentTotals> agents_;
  std::vector<AgentState> states_;  // beside agents_
  std::map<AgentId, std::size_t> agent_of_;
  std::vector<PhaseTotals> phases_;  // by phase
  SetTable sets_;
  Counters totals_;
  std::array<std::uint64_t, kOutcomeCount> outcomes_{};
  ErrorTally errors_;
  std::uint64_t records_ = 0;
  std::uint64_t agent_cpu_ns_ = 0;
  std::uint32_t last_epoch_ = 1;
  std::uint64_t broken_law_count_ = 0;
  std::vector<std::string> broken_law_texts_;

  std::vector<TargetSample> samples_;
  std::vector<std::uint64_t> completed_at_samples_;  // beside samples_
  std::size_t boot_begin_ = 0;                       // index of the current boot's first sample
  std::uint64_t boots_ = 0;
  TargetSample boot_base_;                        // what the current boot's growth is counted from
  std::map<AgentId, TargetCounts> closed_boots_;  // this run's counts in boots that ended
  std::uint64_t closed_cpu_ns_ = 0;               // growth in boots that ended
  std::uint64_t closed_completed_ = 0;
  std::vector<std::pair<Duration, Duration>>
      blind_;  // between two boots' samples; bounded like gaps
  std::uint64_t address_space_max_ = 0;
  std::uint64_t rss_max_ = 0;
  std::vector<RunEvent> events_;
  std::uint64_t error_events_ = 0;
};

}  // namespace spate::controller
