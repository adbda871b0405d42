#pragma once

// The life of one run, as a state machine: step(input, now) returns what must be done. Pure; on the
// control loop. It knows nothing of streams, files or clocks, so every path is tested under a
// manual clock.
//
// Its stages, each with a deadline (below), so that every run ends:
//
//   - waiting: for as many free agents as the plan asks for
//   - preparing: each agent checks its share; all answers are awaited, all problems reported
//   - arming: agents open their connections; then T is fixed and stored
//   - armed: T has been told to everybody
//   - running: from T to the end of the last phase, or a stop
//   - draining: agents wait for the last answers, then say how many records there are
//   - collecting: until those are committed, and the target was looked at once more
//   - finished
//
// Losing an agent before T ends the run. After T the others go on, its share is not moved, and it
// may come back: the same process goes on by itself, another one is given the rest of its share and
// the same T. A run that has lost every agent is held open until their leases have ended after its
// planned end: it may be the controller's own network that is down.
//
// A run that an earlier controller process left (Adopted) goes on from what the store has of it. If
// the machine was rebooted, T is known by the wall clock only, until an agent tells it; nobody is
// started by such a guess before kAdoptionWait.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/clock.h"
#include "controller/agent_events.h"
#include "controller/run_info.h"
#include "controller/store_op.h"

namespace spate::controller {

inline constexpr Duration kDefaultWait = std::chrono::seconds(10);
inline constexpr Duration kMaxWait = std::chrono::hours(1);
inline constexpr Duration kPrepareDeadline = std::chrono::seconds(30);
inline constexpr Duration kArmDeadline =
    std::chrono::seconds(60);  // and 10 ms for every connection of the largest share
inline constexpr Duration kStartLead = std::chrono::milliseconds(500);
// How far ahead T is planned, beside kStartLead, if change-overs go by wall clock: agents get them
// as offsets from T before anybody is ready. And 10 ms for every connection of the largest share.
inline constexpr Duration kUsualArmTime = std::chrono::seconds(5);
inline constexpr Duration kMinStartLead = std::chrono::milliseconds(250);  // once T is stored
inline constexpr Duration kDrainGrace = std::chrono::seconds(10);          // over the plan's drain
inline constexpr Duration kCutOffGrace = std::chrono::seconds(5);  // from "stop at once" to "lost"
inline constexpr Duration kCollectDeadline = std::chrono::seconds(30);
inline constexpr Duration kFinalSampleDeadline = std::chrono::seconds(5);
inline constexpr Duration kRejoinRetry = std::chrono::seconds(5);  // of a share that was refused
inline constexpr std::size_t kMaxRestarts = 1'000;                 // of one agent in one run
// How long agents have to answer a controller that restarted after the end of their leases.
inline constexpr Duration kAdoptionWait = std::chrono::seconds(30);
// More than half of the agents lost within this: probably not their fault.
inline constexpr Duration kMassLossWindow = std::chrono::seconds(30);

enum class RunStage { waiting, preparing, arming, armed, running, draining, collecting, finished };
std::string_view name(RunStage s);

namespace run_input {

// Who is there: every agent that is online, after any change.
struct Agents {
  struct One {
    std::string name;
    std::uint64_t incarnation = 0;
    std::string busy_with;  // run id; empty: free
    std::string id = {};    // agent_id
  };
  std::vector<One> online;
};
struct PrepareReply {
  std::string agent;
  std::vector<AgentProblem> problems;
  double max_rate_per_s = 0;  // its owner's cap on requests; 0: none
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
  std::uint64_t incarnation = 0;  // its process
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
// Another process of this agent is there; the one that had the share is dead.
struct Restarted {
  std::string agent;
  std::uint64_t incarnation = 0;  // of the new one
  bool has_run = false;           // it says that it has its share already
};
// What an agent says of processes of its that have records of this run: before Back or Restarted.
struct Account {
  std::string agent;
  AgentAccount account;
};
// What StoreStart asked for is committed.
struct StartStored {};
// T by this controller's clock, from an agent: for a run from before a reboot.
struct StartKnown {
  Instant start;
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
                 run_input::Restarted, run_input::Account, run_input::StartStored,
                 run_input::StartKnown, run_input::Stop, run_input::FinalSample, run_input::Tick>;

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
// Like Save; StartStored when it is committed. Agents are told T after that: a controller that dies
// in between leaves no agent at work on a run that its store does not have.
struct StoreStart {};
// T is told; look at the target every interval from now on.
struct StartSampling {};
struct TakeFinalSample {};
// The end: agents are free, the summary can be made.
struct Close {};

}  // namespace run_action

using RunAction =
    std::variant<run_action::Send, run_action::Accepted, run_action::Refused, run_action::Log,
                 run_action::Save, run_action::StoreStart, run_action::StartSampling,
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
    std::string boot_id;       // of the controller's clock
  };
  Run(Order order, Instant now);
  // One whose T was fixed.
  struct Adopted {
    RunInfo info;
    std::string descriptor_set;
    Instant start;
    bool is_start_known = true;  // false: guessed from wall time, after a reboot
    std::string boot_id;
    std::vector<Mark> marks;
  };
  Run(Adopted adopted, Instant now);

  std::vector<RunAction> step(const RunInput& input, Instant now);

  const RunInfo& info() const { return info_; }
  RunStage stage() const { return stage_; }
  // T, once it is fixed.
  std::optional<Instant> start() const { return start_; }
  // False after a reboot, until an agent has told it.
  bool is_start_known() const { return is_start_known_; }
  // The member with this identity; null: none.
  const RunAgent* member(const std::string& agent_id) const;
  // Whether this process of the agent has the share now.
  bool has_member(const std::string& agent_id, std::uint64_t incarnation) const;
  // Whether the process that has the share got ready for it, and so has it in its state folder.
  bool was_armed(const std::string& agent_id) const;
  // The right to generate load that the agent is due; nothing: none.
  std::optional<Duration> lease_of(const std::string& agent_id, std::uint64_t incarnation) const;
  // The change is stored: what agents are given from now on has it.
  void add_change(Change change) { info_.changes.push_back(std::move(change)); }
  // Members that are not lost.
  std::size_t live_agents() const;

 private:
  struct Member {
    std::optional<std::vector<AgentProblem>> reply;
    bool is_armed = false;
    bool is_finished = false;
    bool is_completed = false;  // finished because the plan was over
    bool is_lost = false;
    bool is_back = false;              // after it was lost before the start
    bool is_awaited = false;           // has not been heard since the controller restarted
    bool is_rejoining = false;         // has not been started again yet
    std::optional<Instant> rejoin_at;  // when it is asked again
    std::optional<Instant> lost_since;
    std::uint64_t last_seq = 0;
    std::map<std::uint64_t, std::uint64_t> committed;  // by incarnation
    std::map<std::uint64_t, AgentAccount> accounts;    // of the last hello
  };

  void on(const run_input::Agents& input, Instant now);
  void on(const run_input::PrepareReply& input, Instant now);
  void on(const run_input::Armed& input, Instant now);
  void on(const run_input::Started& input, Instant now);
  void on(const run_input::Finished& input, Instant now);
  void on(const run_input::Committed& input, Instant now);
  void on(const run_input::Lost& input, Instant now);
  void on(const run_input::Back& input, Instant now);
  void on(const run_input::Restarted& input, Instant now);
  void on(const run_input::Account& input, Instant now);
  void on(const run_input::StartStored& input, Instant now);
  void on(const run_input::StartKnown& input, Instant now);
  void on(const run_input::Stop& input, Instant now);
  void on(const run_input::FinalSample& input, Instant now);
  void on(const run_input::Tick& input, Instant now);

  void prepare(const std::vector<run_input::Agents::One>& chosen, Instant now);
  void judge_replies(bool is_late, Instant now);
  void refuse(std::vector<std::string> problems, int exit_code);
  bool is_all_armed() const;
  void note_cap(const run_input::PrepareReply& input);
  void arm_if_all_ready(Instant now);
  void fix_start(Instant earliest);
  void plan_start(Instant now);
  std::int64_t wall_ms(Instant at) const;
  void take_start(Instant start, Instant now);
  void fail_before_start(const std::string& reason);
  void set_start(Instant start);
  bool is_start_owed(std::size_t member) const;
  void end_share(std::size_t member, std::optional<std::uint64_t> last_seq,
                 const std::string& reason, Instant now);
  DeadIncarnation last_death(std::size_t member) const;
  void bury(std::size_t member, std::uint64_t incarnation);
  void bury_between(std::size_t member, std::uint64_t incarnation);
  void rejoin(std::size_t member, const run_input::Restarted& input, Instant now);
  void send_rest_of_share(std::size_t member, Instant now);
  void take_rejoining_reply(std::size_t member, const std::vector<AgentProblem>& problems,
                            Instant now);
  void take_back(std::size_t member);
  void watch_for_mass_loss(Instant now);
  void tick_rejoining(Instant now);
  void tick_awaited(Instant now);
  bool is_over(Instant now) const { return stop_ || (is_start_known_ && now >= planned_end()); }
  Instant answer_deadline() const;
  std::uint64_t committed(std::size_t member) const;
  std::vector<std::string> missing_records(std::size_t member) const;
  void drain(Instant now);
  void cut_off(Instant now);
  void collect_if_all_finished(Instant now);
  void close_if_complete(Instant now, bool is_late);
  void send_stop_to_unfinished(Duration drain, const std::string& reason);
  void set_stage(RunStage stage, Instant deadline);
  static std::string describe(const AgentProblem& problem);
  void log(RunEvent::Severity severity, std::string text);
  void send(std::size_t member, ControllerMessage message);
  std::optional<std::size_t> index_of(const std::string& agent) const;
  Instant planned_end() const { return *start_ + info_.plan.length(); }

  RunInfo info_;
  std::string descriptor_set_;
  Instant created_;
  Duration wait_;
  RunStage stage_ = RunStage::waiting;
  Instant deadline_;                      // of the stage
  std::optional<Instant> planned_start_;  // what change-overs by wall clock are counted from
  std::optional<Instant> fixed_start_;    // being stored: told to nobody yet
  std::optional<Instant> start_;
  std::vector<Member> members_;  // parallel to info_.agents
  std::vector<run_input::Agents::One> online_;
  std::string boot_id_;
  Instant adopted_at_{};  // with was_adopted_
  bool was_adopted_ = false;
  bool is_start_known_ = true;
  bool is_mass_loss_known_ = false;
  bool was_accepted_ = false;
  bool is_cut_off_ = false;
  std::optional<SendStop> stop_;  // the last one sent to everybody, for agents that come back
  bool has_final_sample_ = false;
  std::vector<RunAction> actions_;
};

}  // namespace spate::controller
