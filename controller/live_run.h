#pragma once

// A run while it is live: the pure parts (Run, Ledger, Progress, Aggregate) and what they act on
// (agents' streams, store, target, watchers). On the control loop.

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "controller/aggregate.h"
#include "controller/ledger.h"
#include "controller/operator_api.h"
#include "controller/progress.h"
#include "controller/run.h"
#include "controller/store.h"
#include "controller/target_sampler.h"

namespace spate::controller {

inline constexpr std::size_t kMaxLawEvents =
    20;  // of one run; what else is broken is found by verify
inline constexpr std::size_t kMaxWatchers = 100;
inline constexpr Duration kFinalCommitDeadline = std::chrono::seconds(5);

class LiveRun : public std::enable_shared_from_this<LiveRun> {
 public:
  struct Outside {
    boost::asio::io_context& loop;
    Store& store;
    std::function<void(const std::string& agent, const ControllerMessage&)> send;
    // The agents are free again. The run still tells its watchers of its end.
    std::function<void(LiveRun&)> closed;
  };
  // `sampler` is null for a foreign target. `answer` is called once, when the submission is
  // decided.
  LiveRun(Outside outside, Run::Order order, std::unique_ptr<TargetSampler> sampler,
          std::function<void(SubmitAnswer)> answer);
  ~LiveRun();

  const std::string& id() const { return run_.info().id; }
  const Run& run() const { return run_; }
  const Ledger& ledger() const { return ledger_; }
  bool is_answered() const { return answer_ == nullptr; }

  void step(const RunInput& input);
  void tick();  // every 100 ms or so
  void take(const std::string& agent, AgentRecord record);
  void committed(const Mark& mark);
  void acknowledge(const std::string& agent, std::uint64_t incarnation);
  void log(RunEvent::Severity severity, const std::string& text);
  // All events so far, then everything as it comes.
  Result<void> watch(std::shared_ptr<WatchSink> sink);
  RunRow row() const;

 private:
  void act(const run_action::Send& action);
  void act(const run_action::Accepted& action);
  void act(const run_action::Refused& action);
  void act(const run_action::Log& action);
  void act(const run_action::Save& action);
  void act(const run_action::StartSampling& action);
  void act(const run_action::TakeFinalSample& action);
  void act(const run_action::Close& action);

  void sampled(Result<TargetSample> sample, Instant at);
  void place_events(Instant start);
  void show_progress(bool is_over);
  void show(const WatchLine& line);
  void end_watchers(const WatchEnd& end);

  Outside outside_;
  Run run_;
  Ledger ledger_;
  Aggregate aggregate_;
  Progress progress_;
  std::unique_ptr<TargetSampler> sampler_;
  std::function<void(SubmitAnswer)> answer_;
  struct EarlyEvent {
    Instant at;
    RunEvent event;
  };
  std::vector<EarlyEvent> early_events_;  // until T is known
  std::vector<std::shared_ptr<WatchSink>> watchers_;
  std::size_t law_events_ = 0;
  std::uint64_t finished_requests_ = 0;
  std::optional<TargetSample> last_sample_;
  bool is_target_silent_ = false;
  bool has_ended_ = false;  // watchers were told
};

}  // namespace spate::controller
