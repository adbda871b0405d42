#pragma once

// Reads a plan from JSON with comments. Refuses it whole: every mistake is listed, each with its
// JSON path and line, and for an unknown key the nearest known one. Also the source of
// plans/plan.schema.json's keys.

#include <string>
#include <string_view>
#include <vector>

#include "common/plan.h"

namespace spate {

struct PlanProblem {
  std::string path;  // "/load/connections"; of an override "--set load.connections"
  int line = 0;      // 0: no line (an override, or a key that the plan itself lacks)
  std::string text;  // what is wrong and what to do

  // "demo.jsonc:12: /load/connections: …"; without a file "/load/connections: …".
  std::string to_string(std::string_view file) const;
};

struct PlanOrProblems {
  Plan plan;                          // meaningful only if problems is empty
  std::vector<PlanProblem> problems;  // in order of line

  bool ok() const { return problems.empty(); }
};

// `overrides` are path=value with dots in the path: "load.connections=400", "phases.1.for=20s"; the
// value is JSON if it parses as JSON, else a string. `measured_for`: how long the measured phases
// last together, instead of what the plan says; 0: as planned.
PlanOrProblems parse_plan(std::string_view text, const std::vector<std::string>& overrides = {},
                          Duration measured_for = {});

// The plan as one JSON object, defaults written out: for the store and for `plan explain -o json`.
// parse_plan() reads it back as the same plan.
std::string to_json(const Plan& plan);

// Every key a plan may have: "load.connections", "phases[].name" … In the order of the
// documentation.
std::vector<std::string> known_plan_keys();

// The nearest of `known` to `word`, or "" if none is near (Damerau-Levenshtein, at most a third of
// its length).
std::string nearest(std::string_view word, const std::vector<std::string>& known);

}  // namespace spate
