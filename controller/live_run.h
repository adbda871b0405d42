#pragma once

// A run while it is live: its parts (Run, Ledger, Progress, Aggregate) and who waits for it. Pure;
// owned by the coordinator, whose actions it adds to.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/aggregate.h"
#include "controller/change_book.h"
#include "controller/coordinator_io.h"
#include "controller/ledger.h"
#include "controller/progress.h"
#include "controller/registry.h"
#include "controller/restored.h"
#include "controller/run.h"

namespace spate::controller {

inline constexpr std::size_t kMaxLawEvents =
    20;  // of one run; what else is broken is found by verify
inline constexpr std::size_t kMaxWatchers = 100;

class LiveRun {
 public:
  // Both outlive it.
  struct Outside {
    const Registry& registry;
    std::vector<Action>& actions;
    std::uint64_t& next_barrier;
  };
  // `submitter` is answered once, when the submission is decided.
  LiveRun(Outside outside, const Run::Order& order, Token submitter, Instant now);
  // One that an earlier process left, with T; `start` by this controller's clock.
  LiveRun(Outside outside, Restored::Run restored, Run::Adopted adopted, Instant now);

  const std::string& id() const { return run_.info().id; }
  const Run& run() const { return run_; }
  const Ledger& ledger() const { return ledger_; }
  // Who waits for the submission to be decided.
  std::optional<Token> submitter() const { return submitter_; }
  bool is_finished() const { return end_.has_value(); }
  // Once it is finished.
  const WatchEnd& end() const { return *end_; }
  const std::vector<Token>& watchers() const { return watchers_; }

  void step(const RunInput& input, Instant now);
  void tick(Instant now);  // every 100 ms or so
  void take(const std::string& agent, AgentRecord record, Instant now);
  void committed(const Mark& mark, Instant now);
  void acknowledge(const std::string& agent, std::uint64_t incarnation);
  void sampled(event::Sampled sample, Instant now);
  void log(RunEvent::Severity severity, const std::string& text, Instant now);

  // Changes while it is live (live_run_changes.cc).
  void change(const ChangeRequest& request, Token token, std::int64_t wall_ms, Instant now);
  void epoch_replied(const std::string& agent, AgentEpochReply reply, Instant now);
  void epoch_applied(const std::string& agent, const AgentEpochApplied& applied, Instant now);
  // By a heartbeat of the process with the share.
  void heard_of_epoch(const std::string& agent_id, std::uint32_t epoch, Instant now);
  void barrier_passed(std::uint64_t barrier, Instant now);
  // Whether the process that has the agent's share, and may be at work, is neither the one that
  // says hello nor in its past: then they run from copies of one state folder.
  bool is_of_a_copy(const AgentHello& hello, Instant now) const;
  // Nothing can be stored: orders are answered with `why`.
  void refuse_changes(const std::string& why, Instant now);
  // The lease for a heartbeat's reply; zero: none.
  Duration lease(const std::string& agent_id, std::uint64_t incarnation, Instant now);
  RunStatus status(Instant now);

  // All events so far, then everything as it comes.
  Result<void> watch(Token watcher);
  void unwatch(Token watcher);
  RunRow row(Instant now) const;

 private:
  void start_moved(Duration earlier_by, Instant now);
  void start_sampling();
  void note_return(const Record& record, Instant now);
  void count_late(const Record& record, Instant now);
  void say_late(Instant now);

  void act(const run_action::Send& action, Instant now);
  void act(const run_action::Accepted& action, Instant now);
  void act(const run_action::Refused& action, Instant now);
  void act(const run_action::Log& action, Instant now);
  void act(const run_action::Save& action, Instant now);
  void act(const run_action::StoreStart& action, Instant now);
  void act(const run_action::StartSampling& action, Instant now);
  void act(const run_action::TakeFinalSample& action, Instant now);
  void act(const run_action::Close& action, Instant now);

  void begin_book(bool is_adopted, Instant now);
  void tell_book(const ChangeInput& input, Instant now);
  void tell_book_of(const RunInput& input, Instant now);
  void follow_presence(Instant now);
  void give_up_changes();
  void act(const change_action::Send& action, Instant now);
  void act(const change_action::Store& action, Instant now);
  void act(change_action::Answer action, Instant now);
  void act(const change_action::Log& action, Instant now);
  std::optional<std::size_t> position_of(const std::string& agent) const;
  AgentStatus agent_status(std::size_t agent, Instant now) const;

  void add_sample(event::Sampled& sample, Instant now);
  void place_events(Instant start);
  void show_progress(bool is_over, Instant now);
  void show(WatchLine line);
  void send(const std::string& agent, ControllerMessage message);
  void write(StoreOp op);
  std::uint64_t barrier();
  void answer_submitter(std::vector<std::string> problems, int exit_code);
  bool has_probe() const { return !run_.info().plan.target.probe.empty(); }

  Outside outside_;
  Run run_;
  Ledger ledger_;
  Aggregate aggregate_;
  Progress progress_;
  std::optional<Token> submitter_;
  // Barriers: what waits for its commit.
  std::optional<std::uint64_t> acceptance_;
  std::optional<std::uint64_t> start_;
  struct EarlyEvent {
    Instant at;
    RunEvent event;
  };
  std::vector<EarlyEvent> early_events_;  // until T is known
  std::vector<Token> watchers_;
  std::size_t law_events_ = 0;
  std::uint64_t finished_requests_ = 0;
  std::optional<TargetSample> last_sample_;
  bool is_target_silent_ = false;
  std::map<std::string, Duration> covered_to_;  // by agent: where its records end
  struct Adoption {
    Duration at{};                  // since T; records that end before it came late
    std::set<std::string> awaited;  // agents of which nothing newer is stored yet
    std::uint64_t late_records = 0;
  };
  std::optional<Adoption> adoption_;                  // until all late records are here
  std::optional<ChangeBook> book_;                    // from the moment that T is fixed
  std::set<Token> change_tokens_;                     // of orders that are not answered
  std::map<std::uint64_t, Change> changes_in_store_;  // by barrier: not committed yet
  std::set<std::size_t> silent_;                      // agents with a stream and no heartbeat
  std::set<std::size_t> rejoining_;                   // given their share, not armed yet
  std::optional<WatchEnd> end_;
};

}  // namespace spate::controller
