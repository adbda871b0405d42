#pragma once

// The life of one run, as a state machine: step(input, now) returns what must be done. Pure; on the
// control loop. It knows nothing of streams, files or clocks, so every path is tested under a
// manual clock.
//
// Its stages, each with a deadline (below), so that every run ends:
//
//   - waiting: for as many free agents as the plan asks for
//   - preparing: each agent checks its share; all answers are awaited, all problems reported
//   - arming: agents open their connections
//   - armed: start-at-T has been sent
//   - running: from T to the end of the last phase, or a stop
//   - draining: agents wait for the last answers, then say how many records there are
//   - collecting: until those are committed, and the target was looked at once more
//   - finished
//
// Losing an agent before T ends the run; after T the others go on, and the run fails only when
// nobody is left. A lost agent's share is not moved.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/clock.h"
#include "controller/agent_events.h"
#include "controller/run_info.h"

namespace spate::controller {

inline constexpr Duration kDefaultWait = std::chrono::seconds(10);
inline constexpr Duration kMaxWait = std::chrono::hours(1);
inline constexpr Duration kPrepareDeadline = std::chrono::seconds(30);
inline constexpr Duration kArmDeadline =
    std::chrono::seconds(60);  // and 10 ms for every connection of the largest share
inline constexpr Duration kStartLead = std::chrono::milliseconds(500);
inline constexpr Duration kDrainGrace = std::chrono::seconds(10);  // over the plan's drain
inline constexpr Duration kCutOffGrace = std::chrono::seconds(5);  // from "stop at once" to "lost"
inline constexpr Duration kCollectDeadline = std::chrono::seconds(30);
inline constexpr Duration kFinalSampleDeadline = std::chrono::seconds(5);

enum class RunStage { waiting, preparing, arming, armed, running, draining, collecting, finished };
std::string_view name(RunStage s);

namespace run_input {

// Who is there: every agent that is online, after any change.
struct Agents {
  struct One {
    std::string name;
    std::uint64_t incarnation = 0;
    std::string busy_with;  // run id; empty: free
  };
  std::vector<One> online;
};
struct PrepareReply {
  std::string agent;
  std::vector<AgentProblem> problems;
};
struct Armed {
  std::string agent;
  AgentArmed armed;
};
struct Started {
  std::string agent;
  std::int64_t at_controller_ns = 0;
  std::int64_t offset_bound_ns = 0;
};
struct Finished {
  std::string agent;
  std::uint64_t last_seq = 0;
  std::string reason;
};
// The store holds everything of this agent up to `seq`.
struct Committed {
  std::string agent;
  std::uint64_t seq = 0;
};
struct Lost {
  std::string agent;
  std::string cause;
};
// Its stream was away and is back, the process is the same one.
struct Back {
  std::string agent;
  bool has_run = false;  // it says it still has this run
};
struct Stop {
  bool at_once = false;
  std::string reason;  // "stopped by the user", "the controller was shut down"
};
struct FinalSample {
  bool ok = false;
};
struct Tick {};

}  // namespace run_input

using RunInput =
    std::variant<run_input::Agents, run_input::PrepareReply, run_input::Armed, run_input::Started,
                 run_input::Finished, run_input::Committed, run_input::Lost, run_input::Back,
                 run_input::Stop, run_input::FinalSample, run_input::Tick>;

namespace run_action {

struct Send {
  std::string agent;
  ControllerMessage message;
};
// The submission is answered: the agents have accepted their shares.
struct Accepted {};
// The submission is answered: nothing was started.
struct Refused {
  std::vector<std::string> problems;
  int exit_code = 2;
};
struct Log {
  RunEvent::Severity severity = RunEvent::Severity::info;
  std::string text;
};
// info() has changed in a way that the store must know.
struct Save {};
// T is fixed; look at the target every interval from now on.
struct StartSampling {};
struct TakeFinalSample {};
// The end: agents are free, the summary can be made.
struct Close {};

}  // namespace run_action

using RunAction = std::variant<run_action::Send, run_action::Accepted, run_action::Refused,
                               run_action::Log, run_action::Save, run_action::StartSampling,
                               run_action::TakeFinalSample, run_action::Close>;

class Run {
 public:
  struct Order {
    std::string id;
    Plan plan;  // valid, target resolved, seed drawn
    std::string plan_text;
    std::vector<std::string> overrides;
    std::string descriptor_set;
    Duration wait = kDefaultWait;
    std::int64_t wall_ms = 0;  // of the submission
  };
  Run(Order order, Instant now);

  std::vector<RunAction> step(const RunInput& input, Instant now);

  const RunInfo& info() const { return info_; }
  RunStage stage() const { return stage_; }
  // T, once it is fixed.
  std::optional<Instant> start() const { return start_; }
  bool has_member(const std::string& agent, std::uint64_t incarnation) const;
  // Members that are not lost.
  std::size_t live_agents() const;

 private:
  struct Member {
    std::optional<std::vector<AgentProblem>> reply;
    bool is_armed = false;
    bool is_finished = false;
    bool is_completed = false;  // finished because the plan was over
    bool is_lost = false;
    bool is_back = false;  // after it was lost before the start
    std::uint64_t last_seq = 0;
    std::uint64_t committed = 0;
  };

  void on(const run_input::Agents& input, Instant now);
  void on(const run_input::PrepareReply& input, Instant now);
  void on(const run_input::Armed& input, Instant now);
  void on(const run_input::Started& input, Instant now);
  void on(const run_input::Finished& input, Instant now);
  void on(const run_input::Committed& input, Instant now);
  void on(const run_input::Lost& input, Instant now);
  void on(const run_input::Back& input, Instant now);
  void on(const run_input::Stop& input, Instant now);
  void on(const run_input::FinalSample& input, Instant now);
  void on(const run_input::Tick& input, Instant now);

  void prepare(const std::vector<run_input::Agents::One>& chosen, Instant now);
  void judge_replies(bool is_late, Instant now);
  void refuse(std::vector<std::string> problems, int exit_code);
  void arm_if_all_ready(Instant now);
  void fail_before_start(const std::string& reason);
  void drain(Instant now);
  void cut_off(Instant now);
  void collect_if_all_finished(Instant now);
  void close_if_complete(Instant now, bool is_late);
  void send_stop_to_unfinished(Duration drain, const std::string& reason);
  void set_stage(RunStage stage, Instant deadline);
  void log(RunEvent::Severity severity, std::string text);
  void send(std::size_t member, ControllerMessage message);
  std::optional<std::size_t> index_of(const std::string& agent) const;
  Instant planned_end() const { return *start_ + info_.plan.length(); }
  std::string missing_records(std::size_t member) const;

  RunInfo info_;
  std::string descriptor_set_;
  Instant created_;
  Duration wait_;
  RunStage stage_ = RunStage::waiting;
  Instant deadline_;  // of the stage
  std::optional<Instant> start_;
  std::vector<Member> members_;  // parallel to info_.agents
  std::vector<run_input::Agents::One> online_;
  bool was_accepted_ = false;
  bool is_cut_off_ = false;
  std::optional<SendStop> stop_;  // the last one sent to everybody, for agents that come back
  bool has_final_sample_ = false;
  std::vector<RunAction> actions_;
};

}  // namespace spate::controller
