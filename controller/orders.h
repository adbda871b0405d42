#pragma once

// From a submission to what a Run needs: the plan is validated whole, the target filled in, the
// seed drawn. Pure but for randomness, which is passed in.

#include "controller/operator_api.h"
#include "controller/run.h"

namespace spate::controller {

struct OrderOrProblems {
  Run::Order order;
  std::vector<std::string> problems;  // not empty: refused, exit code 2
};

// `random` serves the seed and the last letters of the run's id.
OrderOrProblems make_order(const SubmitOrder& submitted, std::int64_t wall_ms,
                           std::uint64_t random);

// "NAME-YYYYMMDD-HHMMSS-xxxx"
std::string make_run_id(const std::string& plan_name, std::int64_t wall_ms, std::uint64_t random);

}  // namespace spate::controller
