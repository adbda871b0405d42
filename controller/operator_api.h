#pragma once

// What the client may ask of the controller, as values. The wire form is proto/operator.proto; the
// conversion is operator_service.cc.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/clock.h"
#include "common/result.h"
#include "controller/change_book.h"
#include "controller/progress.h"
#include "controller/run_info.h"

namespace spate::controller {

struct SubmitOrder {
  std::string plan;  // the text of the plan file
  std::vector<std::string> overrides;
  std::string descriptor_set;
  Duration wait{};             // 0: the default
  Duration measured_for{};     // 0: as planned
  std::string target_url;      // replaces "local"
  std::string target_tls_url;  // replaces "grpcs://local"
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
  std::string note;  // why it is held, or what is wrong with it
};

struct VerifyAnswer {
  std::string balance;
  std::vector<std::string> lines;
  int exit_code = 0;
};

struct ChangeRequest {
  enum class Verb { set, pause, resume } verb = Verb::set;
  std::string run;
  std::vector<std::string> assignments;  // of set
  std::vector<std::string> agents;       // names; none: all
  std::string at;                        // "+24h", RFC 3339, or empty
  std::optional<std::uint32_t> if_epoch;
  std::string reason;
  double canary_percent = 0;
  std::string guard;  // a duration; empty: default_guard()
  std::string who;    // as the connection's certificate says
};

struct AgentStatus {
  std::string name;
  std::string state;
  std::uint32_t epoch = 0;  // 0: not known since the controller's restart
  std::uint64_t connections = 0;
  std::string lease_until;  // RFC 3339; empty: it has none
  std::uint64_t incarnation = 0;
  std::uint64_t records_stored = 0;
  std::uint64_t records_waiting = 0;
  std::int64_t clock_offset_ns = 0;
  std::int64_t clock_bound_ns = 0;
  Duration lag{};  // since the end of its newest record; zero: it has finished
  std::string note;
};

struct LiveStatus {
  std::uint32_t epoch = 0;
  std::string phase;
  Duration elapsed{};
  Duration planned{};
  std::uint64_t connections = 0;
  std::uint64_t leased = 0;
  std::string spread;
  std::string under_way;
  std::uint32_t queued = 0;
  std::string store_trouble;  // why the store cannot be written; empty: it can
  std::string store_space;    // how large it is, and how long there will be room
  std::vector<AgentStatus> agents;
};

struct ChangeRow {
  Change change;
  std::string at_time;
  std::vector<std::string> agents;  // names; none: all
  bool is_due = true;
};

struct CanaryGroup {
  std::string name;
  std::uint32_t agents = 0;
  double rate_per_connection = 0;
  std::uint64_t latency_p50_ns = 0;
  std::uint64_t latency_p99_ns = 0;
  double failed_share = 0;
  std::uint64_t requests = 0;
};

struct RunStatus {
  RunRow run;
  std::optional<LiveStatus> live;
  std::vector<ChangeRow> changes;
  std::vector<CanaryGroup> canary;
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
  std::function<void(ChangeRequest, std::function<void(ChangeAnswer)>)> change;
  std::function<void(const std::string& run, std::function<void(Result<RunStatus>)>)> status;
  std::function<void(const std::string& run, std::function<void(Result<std::vector<RunRow>>)>)>
      list_runs;
  std::function<void(std::function<void(std::vector<AgentRow>)>)> list_agents;
  std::function<void(const std::string& run, const std::string& format,
                     std::function<void(Result<std::string>)>)>
      report;
  std::function<void(const std::string& run, std::function<void(Result<VerifyAnswer>)>)> verify;
};

}  // namespace spate::controller
