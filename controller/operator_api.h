#pragma once

// What the client may ask of the controller, as values. The wire form is proto/operator.proto; the
// conversion is operator_service.cc.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "common/clock.h"
#include "common/result.h"
#include "controller/progress.h"
#include "controller/run_info.h"

namespace spate::controller {

struct SubmitOrder {
  std::string plan;  // the text of the plan file
  std::vector<std::string> overrides;
  std::string descriptor_set;
  Duration wait{};          // 0: the default
  Duration measured_for{};  // 0: as planned
  std::string target_url;   // replaces "local"
  std::string target_probe;
};

struct SubmitAnswer {
  std::string run;
  std::vector<std::string> problems;
  int exit_code = 0;
};

struct WatchEnd {
  int exit_code = 0;
  std::string summary_json;
  std::string summary_text;
};
using WatchLine = std::variant<ProgressLine, RunEvent, WatchEnd>;

struct RunRow {
  std::string run;
  std::string plan;
  std::string state;
  std::string started_at;
  double duration_s = 0;
  std::string verdict;
  std::uint64_t requests = 0;
  std::uint32_t agents = 0;
  std::string reason;
};

struct AgentRow {
  std::string name;
  std::string host;
  std::string state;
  std::string run;
  std::string version;
  std::uint32_t cpus = 0;
  double last_seen_s = 0;
  std::int64_t clock_offset_ns = 0;
  std::int64_t clock_bound_ns = 0;
  std::uint64_t max_descriptors = 0;
};

struct VerifyAnswer {
  std::string balance;
  std::vector<std::string> lines;
  int exit_code = 0;
};

// Where a watcher's lines go. All on the control loop.
class WatchSink {
 public:
  virtual ~WatchSink() = default;
  virtual void put(const WatchLine& line) = 0;  // WatchEnd is the last
  virtual void fail(const Error& error) = 0;    // instead of an end
  virtual bool is_open() const = 0;             // false: the watcher has left
};

// The controller, as the operator service sees it. Called on the control loop; `done` too, once.
struct OperatorHandlers {
  // Returns how to withdraw the order while it is not answered.
  std::function<std::function<void()>(SubmitOrder, std::function<void(SubmitAnswer)>)> submit;
  std::function<void(const std::string& run, std::shared_ptr<WatchSink>)> watch;
  std::function<void(const std::string& run, bool at_once, std::function<void(Result<void>)>)> stop;
  std::function<void(const std::string& run, std::function<void(Result<std::vector<RunRow>>)>)>
      list_runs;
  std::function<void(std::function<void(std::vector<AgentRow>)>)> list_agents;
  std::function<void(const std::string& run, const std::string& format,
                     std::function<void(Result<std::string>)>)>
      report;
  std::function<void(const std::string& run, std::function<void(Result<VerifyAnswer>)>)> verify;
};

}  // namespace spate::controller
