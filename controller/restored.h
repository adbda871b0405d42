#pragma once

// What an earlier process left in the store: a coordinator begins with it.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "controller/aggregate.h"
#include "controller/store_op.h"

namespace spate::controller {

struct Restored {
  std::string cluster;             // the store's id
  std::uint64_t term = 0;          // of this process: already raised, and committed
  std::int64_t alive_wall_ms = 0;  // when the process before was last seen alive; 0: never

  // A run without an end.
  struct Run {
    RunInfo info;
    std::string descriptor_set;
    std::vector<Mark> marks;
    std::unique_ptr<Aggregate> aggregate;        // of everything that is stored of it
    std::map<std::string, Duration> covered_to;  // by agent: where its records end, drains left out
    std::uint64_t finished_requests = 0;
    std::uint64_t duplicates = 0;
  };
  std::vector<Run> runs;

  // A run that has ended, for what its agents deliver late.
  struct Closed {
    std::string run;
    std::map<std::string, ShareHolder> agents;  // by name in the run
    std::vector<Mark> marks;
  };
  std::vector<Closed> closed;  // oldest first; the latest kMaxClosedRuns
};

}  // namespace spate::controller
