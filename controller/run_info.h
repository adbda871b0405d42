#pragma once

// What is known about a run besides its records: the values that the store keeps and that reports,
// the aggregate and verify work from.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/plan.h"
#include "common/result.h"
#include "common/timeline.h"

namespace spate::controller {

enum class RunState { preparing, armed, running, draining, finished };
std::string_view name(RunState s);

// How a run ended. A run's row carries `crashed` from its first moment; a good end replaces it.
enum class RunEnd { crashed, completed, stopped, failed };
std::string_view name(RunEnd e);

// A process of an agent that died during the run; the same agent came back as a later one.
struct DeadIncarnation {
  std::uint64_t incarnation = 0;
  std::optional<std::uint64_t> last_seq;  // absent: nobody has said yet how many records it had
  std::string cause;                      // "killed", "power loss or reboot" …

  bool operator==(const DeadIncarnation&) const = default;
};

// Who has an agent's share of a run, or had it last.
struct ShareHolder {
  std::string agent_id;
  std::uint64_t incarnation = 0;
};

struct RunAgent {
  std::string name;                           // as this run knows it
  std::string agent_id;                       // who it is
  std::uint64_t incarnation = 0;              // the one that has the share now
  std::uint64_t connections_requested = 0;    // share of the first epoch
  std::uint64_t connections_established = 0;  // when armed
  std::optional<std::int64_t> start_skew_ns;  // first request's instant - T, controller clock
  std::int64_t clock_bound_ns = 0;            // of the offset behind start_skew_ns
  std::optional<std::uint64_t> last_seq;      // named by its Finished; absent: never finished
  std::string lost_reason;                    // not empty: lost, or left, during the run
  std::optional<std::int64_t> lost_at_ns;     // since the run's start
  std::vector<DeadIncarnation> dead;          // its earlier processes in this run, oldest first
};

struct RunInfo {
  std::string id;  // "r1-allocator-flood-20261130-102619-x7q2"
  Plan plan;
  std::string plan_text;  // as submitted
  std::vector<std::string> overrides;
  RunState state = RunState::preparing;
  RunEnd end = RunEnd::crashed;
  std::string end_reason;
  std::int64_t submitted_wall_ms = 0;
  // T; 0: never started. Change-overs by wall clock are counted from it.
  std::int64_t started_wall_ms = 0;
  // T by the controller's CLOCK_BOOTTIME in the boot of this id; absent: not fixed yet.
  std::optional<std::int64_t> start_boot_ns;
  std::string boot_id;
  Duration length{};  // from T to the end of the last phase or the stop, without the drain
  std::vector<RunAgent> agents;  // in the order of their shares
  std::vector<Change> changes;   // in the order in which they were accepted
};

// Which parameters each agent of the run has at every instant: by its plan and its changes. Errors:
// none for a run that was prepared.
Result<Timeline> timeline_of(const RunInfo& info);
// By its plan alone.
Result<Timeline> planned_timeline_of(const RunInfo& info);

// One look at the bundled target.
struct TargetSample {
  std::int64_t at_ns = 0;  // since the run's start
  std::string boot_id;
  std::string allocator;
  std::uint64_t received = 0;  // totals of that boot
  std::uint64_t completed = 0;
  std::uint64_t refused = 0;
  std::uint64_t address_space_bytes = 0;
  std::uint64_t rss_bytes = 0;
  std::uint64_t cpu_ns = 0;
  std::uint32_t threads = 0;
  std::uint64_t open_connections = 0;
  struct PerAgent {
    std::string agent;
    std::uint64_t incarnation = 0;
    std::uint64_t received = 0;  // of this run, since that boot
    std::uint64_t completed = 0;
    std::uint64_t refused = 0;
  };
  std::vector<PerAgent> agents;  // of this run only
};

struct RunEvent {
  std::int64_t at_ns = 0;  // since the run's start; negative: before it
  enum class Severity { info, warning, error } severity = Severity::info;
  std::string text;  // "agent lost agent=pc-07 cause=…"
};

// By the name that the run knows them by.
std::map<std::string, ShareHolder> holders_of(const RunInfo& info);

}  // namespace spate::controller
