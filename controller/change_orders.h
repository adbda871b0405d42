#pragma once

// From what an operator asked to an order for the change book: names become positions, times become
// offsets, assignments a patch. Pure.

#include "controller/operator_api.h"

namespace spate::controller {

inline constexpr std::size_t kMaxReason = 500;

struct ChangeOrderOrProblems {
  ChangeOrder order;                  // without a ticket
  std::vector<std::string> problems;  // not empty: refused, exit code 2
};

// `elapsed` since T, `wall_ms` now.
ChangeOrderOrProblems make_change(const ChangeRequest& request, const RunInfo& run,
                                  Duration elapsed, std::int64_t wall_ms);

// For lists of changes; `elapsed` since T.
ChangeRow to_row(const Change& change, const RunInfo& run, Duration elapsed);

// "2026-12-01T06:00:00Z", "2026-12-01T07:00:00.5+01:00", in milliseconds since 1970.
Result<std::int64_t> parse_rfc3339(const std::string& text);

}  // namespace spate::controller
