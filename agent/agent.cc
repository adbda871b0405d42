#include "agent/agent.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdio>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "agent/control_client.h"
#include "agent/crew.h"
#include "agent/session.h"

namespace spate::agent {

namespace asio = boost::asio;

namespace {

constexpr Duration kFlushFor = std::chrono::seconds(2);

std::shared_ptr<spdlog::logger> logger() {
  if (auto named = spdlog::get("agent")) return named;
  return spdlog::default_logger();
}

}  // namespace

class Agent::Core : public std::enable_shared_from_this<Core> {
 public:
  Core(asio::io_context& loop, AgentOptions options, std::function<void(std::uint64_t)> left)
      : loop_(loop),
        options_(std::move(options)),
        left_(std::move(left)),
        log_(logger()),
        session_(options_.self, *options_.spool, *options_.terms),
        timer_(loop),
        client_(
            loop, options_.channel,
            {[this] { on_event(StreamUp{}); }, [this](std::string reason) { stream_down(reason); },
             [this](FromController m) { on_message(std::move(m)); }}) {}

  ~Core() {
    if (crew_) crew_->release();
    for (auto& [id, thread] : preflights_) thread.join();
  }

  void start() { client_.dial(); }
  void shut_down() { on_event(ShutdownRequested{}); }

 private:
  void on_event(Event event, std::uint64_t term = 0) {
    const Instant now = BootClock::now();
    for (Action& action : session_.step(std::move(event), now, term))
      std::visit([this](auto& a) { carry_out(a); }, action);
    arm_timer();
  }

  void on_message(FromController from) {
    const bool welcome = std::holds_alternative<Welcome>(from.message);
    std::visit([&](auto& m) { on_event(Event(std::move(m)), from.term); }, from.message);
    if (!welcome || session_.link() != Session::Link::up) return;
    away_said_ = false;
    refusal_said_.clear();
    log_->info("controller connected controller={} name={}", options_.controller, session_.name());
    // For scripts that wait for it.
    std::printf("spate-agent %s connected to %s\n", session_.name().c_str(),
                options_.controller.c_str());
    std::fflush(stdout);
  }

  void stream_down(const std::string& reason) {
    away(reason);
    on_event(StreamDown{});
  }

  // Once per outage, not once per attempt; a refusal again when it is another one.
  void away(const std::string& reason) {
    if (!std::exchange(away_said_, true))
      log_->warn("controller away controller={} because={}", options_.controller, reason);
  }

  // --- actions

  void carry_out(Send& a) { client_.send(a.message); }

  void carry_out(Disconnect& a) {
    if (a.is_refused && std::exchange(refusal_said_, a.reason) != a.reason) away_said_ = false;
    away(a.reason);
    client_.disconnect(a.is_refused);
  }

  void carry_out(RunPreflight& a) {
    auto request = std::make_shared<PreflightRequest>();
    request->prepare = std::move(a.prepare);
    request->agent = std::move(a.agent);
    request->incarnation = options_.self.incarnation;
    run_request_ = request;
    check_elsewhere(request, [run = request->prepare.run](Core& core, PreflightResult result) {
      core.preflight_done(run, std::move(result));
    });
  }

  void carry_out(CheckChange& a) {
    auto request = std::make_shared<ChangeRequest>();
    request->run = *run_request_;
    request->assignments.assign(assignments_.begin(), assignments_.end());
    request->change = std::move(a.change);
    check_elsewhere(request, [run = request->change.run, epoch = request->change.epoch](
                                 Core& core, PreflightResult result) {
      core.change_checked(run, epoch, std::move(result));
    });
  }

  // Names and the target may take seconds; the control stream must not.
  template <class Request, class Done>
  void check_elsewhere(std::shared_ptr<Request> request, Done done) {
    const std::uint64_t id = ++last_preflight_;
    preflights_[id] = std::thread([weak = weak_from_this(), id, request, done, &loop = loop_,
                                   rules = options_.rules, world = options_.world] {
      PreflightResult result = check(*request, rules, world);
      asio::post(loop, [weak, id, done, result = std::move(result)]() mutable {
        const auto core = weak.lock();
        if (!core) return;
        core->preflights_[id].join();
        core->preflights_.erase(id);
        done(*core, std::move(result));
      });
    });
  }

  void preflight_done(const std::string& run, PreflightResult result) {
    // Else of a run that was given up meanwhile.
    if (result.assignment && run == run_request_->prepare.run) {
      note_targets(*result.assignment);
      crew_in_waiting_ = std::make_shared<Crew>(
          loop_, result.assignment, [this](Event e) { on_event(std::move(e)); },
          options_.memory_folder);
      if (const auto made = crew_in_waiting_->prepare(*result.assignment); !made)
        result.problems.push_back({"workers", made.error().message});
      assignments_ = {std::move(result.assignment)};
    }
    on_event(PreflightDone{run, std::move(result.problems), options_.rules.max_rate_per_s});
    crew_in_waiting_.reset();
  }

  void change_checked(const std::string& run, std::uint32_t epoch, PreflightResult result) {
    if (!crew_ || session_.run() != run) return;
    if (result.assignment) {
      note_targets(*result.assignment);
      if (const auto made = crew_->prepare(*result.assignment); !made)
        result.problems.push_back({"workers", made.error().message});
      prepared_[epoch] = std::move(result.assignment);
      if (prepared_.size() > EpochBook::kMostPrepared) prepared_.erase(prepared_.begin());
    }
    on_event(ChangeChecked{run, epoch, std::move(result.problems)});
  }

  void note_targets(const Assignment& a) {
    std::set<std::shared_ptr<const Route>> routes;
    for (const AssignedEpoch& e : a.epochs) {
      if (!routes.insert(e.call->route).second) continue;
      log_->info("target checked run={} target={} address={}", a.run,
                 e.call->route->target.to_string(), e.call->route->address.to_string());
    }
  }

  void carry_out(OpenWorkers&) {
    crew_ = std::move(crew_in_waiting_);
    crew_->open();
    if (!crew_->complaint().empty())
      log_->warn("a kill would lose what is counted in the open interval because={}",
                 crew_->complaint());
  }

  void carry_out(StartWorkersAt& a) { crew_->start_at(a.at, a.begin, a.drain); }

  void carry_out(ChangeWorkers& a) {
    const std::shared_ptr<const Assignment> next = prepared_.at(a.epoch);
    prepared_.erase(prepared_.begin(), prepared_.upper_bound(a.epoch));
    assignments_.push_back(next);
    if (assignments_.size() > EpochBook::kMostPrepared) assignments_.pop_front();
    crew_->change(next, a.epoch, a.at);
  }

  void carry_out(LeaseWorkers& a) { crew_->lease(a.until); }
  void carry_out(StopWorkers& a) { crew_->stop(a.at, a.drain); }

  void carry_out(ReleaseIntervals& a) {
    if (crew_) crew_->release_intervals(a.taken);
  }

  void carry_out(ReleaseWorkers&) {
    if (!crew_) return;
    crew_->release();
    crew_.reset();
    assignments_.clear();
    prepared_.clear();
  }

  void carry_out(Say& a) {
    log_->log(a.level == Say::Level::warning ? spdlog::level::warn : spdlog::level::info, "{}",
              a.text);
  }

  void carry_out(Leave& a) {
    client_.close(kFlushFor, [this, undelivered = a.undelivered] { left_(undelivered); });
  }

  void arm_timer() {
    const std::optional<Instant> at = session_.wake_at();
    if (!at) {
      timer_.cancel();
      return;
    }
    timer_.expires_after(std::max(*at - BootClock::now(), Duration::zero()));
    timer_.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
      if (error) return;
      if (const auto core = weak.lock()) core->on_event(Tick{});
    });
  }

  asio::io_context& loop_;
  const AgentOptions options_;
  const std::function<void(std::uint64_t)> left_;
  const std::shared_ptr<spdlog::logger> log_;
  Session session_;
  asio::steady_timer timer_;
  ControlClient client_;
  std::shared_ptr<Crew> crew_in_waiting_;  // between a pre-flight and OpenWorkers
  std::shared_ptr<Crew> crew_;
  std::shared_ptr<const PreflightRequest> run_request_;  // of the crew's run
  // What the run has now, and what it will have by changes that are on their way, as far as anybody
  // could still share with it.
  std::deque<std::shared_ptr<const Assignment>> assignments_;
  std::map<std::uint32_t, std::shared_ptr<const Assignment>> prepared_;  // by epoch; checked
  // More than one only if a run was given up while it was checked.
  std::map<std::uint64_t, std::thread> preflights_;
  std::uint64_t last_preflight_ = 0;
  bool away_said_ = false;
  std::string refusal_said_;
};

Agent::Agent(asio::io_context& loop, AgentOptions options, std::function<void(std::uint64_t)> left)
    : core_(std::make_shared<Core>(loop, std::move(options), std::move(left))) {}
Agent::~Agent() = default;

void Agent::start() { core_->start(); }
void Agent::shut_down() { core_->shut_down(); }

}  // namespace spate::agent
