#pragma once

// Follows a run to its end on stderr: a line per interval, events between them.

#include <optional>
#include <string>

#include "cli/operator_client.h"
#include "common/clock.h"

namespace spate::cli {

class LocalCluster;

struct FollowOptions {
  bool stops_run = false;  // Ctrl-C stops the run and waits for its end; otherwise it only leaves
  LocalCluster* cluster = nullptr;  // its deaths are told; may be null
  // How long a connection that broke is tried again: a controller may be restarted meanwhile.
  Duration reconnect_for = std::chrono::minutes(10);
};

struct Followed {
  struct Summary {
    std::string json;
    std::string text;
  };
  std::optional<Summary> summary;  // absent: the end was not seen
  int exit_code = 0;
};

// If the connection breaks it is tried again. What went wrong has been printed when this returns.
Followed follow(OperatorClient& client, const std::string& run, const FollowOptions& options);

}  // namespace spate::cli
