#pragma once

// One run from plan to report: what `spate run` and `spate demo` have in common.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/operator_client.h"
#include "common/clock.h"

namespace spate::cli {

struct Execution {
  std::string plan_file;  // for messages, and the place that files in the plan are relative to
  std::string plan_text;
  std::vector<std::string> overrides;
  std::optional<Duration> measured_for;
  Duration wait = std::chrono::seconds(30);  // for agents
  bool detach = false;
  bool as_json = false;
  std::string report;  // where the HTML page goes; "": the data directory

  ControllerFlags controller;
  bool local = false;
  std::optional<std::uint32_t> agents;  // of the local cluster; replaces the plan's count
  std::vector<std::string> allow;
  std::string store;
};

// Returns the exit status; everything has been printed.
int execute(const Execution& execution);

}  // namespace spate::cli
