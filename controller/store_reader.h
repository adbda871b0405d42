#pragma once

// Reads a store beside its writer, on a read-only connection of its own per call; from any thread,
// but not the control loop: a long run takes a while. Sees what was committed when the call began.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/result.h"
#include "controller/aggregate.h"
#include "controller/run_info.h"

namespace spate::controller {

inline constexpr int kMaxListedRuns = 100;

struct StoredRun {
  std::string id;
  std::string plan;
  std::string state;
  std::string end;
  std::string reason;
  std::string verdict;
  std::int64_t submitted_wall_ms = 0;
  std::int64_t started_wall_ms = 0;  // 0: never started
  Duration length{};
  std::uint64_t requests = 0;
  std::uint32_t agents = 0;
};

// Newest first, at most kMaxListedRuns; with `id`, that run or not_found.
Result<std::vector<StoredRun>> list_runs(const std::string& path, const std::string& id = {});

// Without its records. Errors: as of load_run.
Result<RunInfo> load_run_info(const std::string& path, const std::string& id);

// Everything that is stored of a run, folded; `each` sees the records on the way, in the order in
// which they were stored. Errors: not_found, or what is wrong with the store and where.
Result<std::unique_ptr<Aggregate>> load_run(const std::string& path, const std::string& id,
                                            const std::function<void(const Record&)>& each = {});

}  // namespace spate::controller
