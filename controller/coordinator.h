#pragma once

// Everything the controller decides: who the agents are, what each live run does next, which
// records are taken, what operators are told. A state machine: step(event, now) returns what must
// be done, in order. Pure: it knows no socket, file, thread, clock or randomness, so the simulation
// runs whole clusters of it. One thread; in a process that is the control loop (controller.cc).
//
// One live run per agent; up to kMaxLiveRuns at a time on different agents.
//
// It begins with what the store has (Restored): runs that an earlier process left unfinished go on.
// Its term is that of its process. An agent that has seen a higher one of the same store tells it
// that it is superseded: it does nothing more and asks to end with kExitSuperseded.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/endpoint.h"
#include "controller/closed_runs.h"
#include "controller/coordinator_io.h"
#include "controller/live_run.h"
#include "controller/registry.h"
#include "controller/restored.h"

namespace spate::controller {

inline constexpr std::size_t kMaxLiveRuns = 32;
inline constexpr int kExitSuperseded = 4;
// How often a controller with live runs writes that it is alive.
inline constexpr Duration kAliveEvery = std::chrono::seconds(5);
// An agent that is refused dials again and again: the same refusal is logged once, and again after
// so long. So many are remembered.
inline constexpr Duration kRefusalAgainAfter = std::chrono::minutes(10);
inline constexpr std::size_t kMaxRefusals = 1'000;
inline constexpr Duration kHelloDeadline = std::chrono::seconds(10);
// How long an order that was under way waits for a store that cannot be written.
inline constexpr Duration kUnstorableAfter = std::chrono::seconds(3);
inline constexpr const char* kStopNeedsNoStore = " (`spate stop RUN` needs no store)";
// A run is told that the store's disk will be full before it ends, so long before. Until so long
// after its start the store keeps ever more of it whole, and grows faster than it will.
inline constexpr Duration kSpaceForeseen = std::chrono::hours(24);
inline constexpr Duration kSpaceForeseenEarly = std::chrono::hours(1);
inline constexpr Duration kGrowthSettles = std::chrono::hours(2);
// A watcher hears of a run's end when it is stored, but not never.
inline constexpr Duration kFinalCommitDeadline = std::chrono::seconds(5);

class Coordinator {
 public:
  struct Config {
    // Whether the target's statistics may be asked for there. Always the same answer for the same
    // address. Empty: always.
    std::function<Result<void>(const Endpoint& probe)> may_probe = {};
    std::string boot_id = {};  // of the clock behind `now`
    std::int64_t wall_ms = 0;  // when it is made
    bool adopts = true;        // false: unfinished runs are closed as crashed
  };
  // What it wants done at once comes with the first step.
  Coordinator(Config config, Restored restored, Instant now);

  std::vector<Action> step(Event event, Instant now);

  const Registry& registry() const { return registry_; }
  // Null if no such run is live.
  const LiveRun* live_run(const std::string& run) const;

 private:
  // A member of a live run that spoke.
  struct Speaker {
    StreamId stream = 0;
    std::string name;
    std::string id;
    std::uint64_t incarnation = 0;
  };

  void on(event::StreamOpened& e, Instant now);
  void on(event::StreamClosed& e, Instant now);
  void on(event::FromAgent& e, Instant now);
  void on(event::Committed& e, Instant now);
  void on(event::BarrierPassed& e, Instant now);
  void on(event::StoreInTrouble& e, Instant now);
  void on(event::StoreRecovered& e, Instant now);
  void on(event::StoreNote& e, Instant now);
  void on(event::StoreMeasured& e, Instant now);
  void on(event::StoreTakenOver& e, Instant now);
  void on(event::Sampled& e, Instant now);
  void on(event::Submit& e, Instant now);
  void on(event::Withdraw& e, Instant now);
  void on(event::Watch& e, Instant now);
  void on(event::WatcherLeft& e, Instant now);
  void on(event::Stop& e, Instant now);
  void on(event::ChangeRun& e, Instant now);
  void on(event::AskStatus& e, Instant now);
  void on(event::ListRuns& e, Instant now);
  void on(event::ListAgents& e, Instant now);
  void on(event::Tick& e, Instant now);
  void on(event::ShutDown& e, Instant now);

  void said_hello(StreamId stream, const AgentHello& hello, Instant now);
  bool is_news(const AgentHello& hello, const std::string& refusal, Instant now);
  void said(const Speaker& who, AgentHeartbeat& m, Instant now);
  void tell_news(const Speaker& who, const Registry::News& news, Instant now);
  void said(const Speaker& who, AgentPrepareReply& m, Instant now);
  void said(const Speaker& who, AgentArmed& m, Instant now);
  void said(const Speaker& who, AgentStarted& m, Instant now);
  void said(const Speaker& who, AgentFinished& m, Instant now);
  void said(const Speaker& who, AgentRecord& m, Instant now);
  void said(const Speaker& who, AgentNonsense& m, Instant now);
  void said(const Speaker& who, AgentEpochReply& m, Instant now);
  void said(const Speaker& who, AgentEpochApplied& m, Instant now);
  void said(const Speaker&, AgentHello&, Instant) {}  // said_hello's

  void adopt(Restored::Run restored, std::int64_t away_ms, Instant now);
  Duration elapsed_by_wall(const RunInfo& info,
                           const std::map<std::string, Duration>& covered_to) const;
  void close_as_crashed(Restored::Run& restored, const std::string& reason);
  std::string wrong_cluster(const AgentHello& hello) const;
  void superseded(std::uint64_t term, const std::string& by);
  void hold_copies(const AgentHello& hello, const Registry::Admission& admission, Instant now);
  Registry::Reserved names_in_runs() const;
  void resume(const Speaker& who, const AgentHello& hello, Instant now);
  void tell_to_stop(const Speaker& who, const std::string& run);
  void acknowledge_closed(const Speaker& who, const std::string& run, std::uint64_t incarnation);
  static void learn_start(LiveRun& run, const AgentEntry& agent, Instant now);
  void lose(const std::string& id, std::uint64_t incarnation, const std::string& cause,
            Instant now);
  std::string unstorable(const std::string& what, const std::string& hint) const;
  void take_late(const Speaker& who, AgentRecord& record);
  void agents_changed(Instant now);
  void close_finished(Instant now);
  void end_watchers(bool all_committed, std::uint64_t barrier, Instant now);
  LiveRun* live_run_of(const std::string& run, const Speaker& who);
  std::string outdated(const AgentHello& hello);
  std::string stranger(const AgentHello& hello, Instant now);
  std::vector<LiveRun*> live_runs_of(const std::string& agent_id);
  std::string busy_with(const AgentEntry& agent) const;
  void send(StreamId stream, ControllerMessage message);
  void close(StreamId stream, const std::string& reason);
  void log(RunEvent::Severity severity, std::string text);
  void log_in_runs(RunEvent::Severity severity, const std::string& text, Instant now);

  // Watchers of a run that has ended, until its end is stored.
  struct Ending {
    std::uint64_t barrier = 0;
    Instant deadline{};
    action::Show show;
  };

  std::int64_t wall_ms(Instant now) const;

  const Config config_;
  const Instant made_at_;
  const std::string cluster_;
  const std::uint64_t term_;
  Instant alive_due_;
  std::string store_trouble_;  // why it cannot be written; empty: it can
  SpaceForecast space_;
  std::set<std::string> told_of_space_;   // runs
  std::optional<Instant> unstorable_at_;  // then orders that wait are told so
  Registry registry_;
  std::map<StreamId, Instant> silent_streams_;  // opened, no hello yet
  struct Refusal {
    std::string cause;
    Instant logged_at{};
  };
  std::map<std::string, Refusal> refusals_;  // by who was refused
  std::map<std::string, std::unique_ptr<LiveRun>> live_;
  ClosedRuns closed_runs_;
  std::vector<Ending> endings_;
  std::uint64_t next_barrier_ = 1;
  bool has_exited_ = false;
  std::vector<Action> actions_;
};

}  // namespace spate::controller
