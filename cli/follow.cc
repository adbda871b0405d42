#include "cli/follow.h"

#include <poll.h>

#include <cstdio>
#include <set>
#include <utility>

#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/local_cluster.h"
#include "cli/progress.h"
#include "common/clock.h"
#include "common/units.h"
#include "proto/operator.pb.h"

namespace spate::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kTick{100};
constexpr int kTicksBetweenTries = 10;
constexpr int kLinesPerHeading = 30;

void say(const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); }

class Follower {
 public:
  Follower(OperatorClient& client, const std::string& run, const FollowOptions& options)
      : client_(client), run_(run), options_(options) {}

  Followed follow() {
    while (true) {
      lines_before_ = lines_;
      const auto ended = client_.watch(
          run_, [this](const auto& event) { on_event(event); }, [this] { return is_staying(); });
      if (end_)
        return {Followed::Summary{end_->summary_json(), end_->summary_text()}, end_->exit_code()};
      if (!is_staying()) return leave();
      if (!ended && !is_worth_another_try(ended.error()))
        return {std::nullopt, fail(ended.error())};
      if (!broken_since_ || lines_ != lines_before_) say_broken(ended);
      if (BootClock::now() - *broken_since_ > options_.reconnect_for) return give_up();
      pause();
    }
  }

 private:
  static bool is_worth_another_try(const Error& error) {
    return error.code == ErrorCode::unavailable || error.code == ErrorCode::internal;
  }

  void say_broken(const Result<void>& ended) {
    broken_since_ = BootClock::now();
    is_away_ = true;
    say("spate: the connection to the controller broke" +
        (ended ? "" : " (" + ended.error().message + ")") +
        "; the agents go on without it. Trying again for " +
        format_duration(options_.reconnect_for));
  }

  void on_event(const ops::v1::WatchEvent& event) {
    ++lines_;
    if (std::exchange(is_away_, false)) {
      say("spate: the controller is there again, after " +
          std::to_string((BootClock::now() - *broken_since_) / seconds(1)) + " s");
    }
    // A controller tells a new watcher everything that has happened so far.
    if (event.has_event() && !told_.insert({event.event().at_ms(), event.event().text()}).second)
      return;
    if (event.has_progress()) {
      if (rows_++ % kLinesPerHeading == 0) say(progress_heading());
      say(format_progress(event.progress()));
    } else if (event.has_event()) {
      say(format_event(event.event()));
    } else if (event.has_end()) {
      end_ = event.end();
    }
  }

  // Asked ten times a second; acts on Ctrl-C and on the deaths of children.
  bool is_staying() {
    const int wanted = interrupts();
    if (wanted > 0 && !options_.stops_run) return false;
    if (wanted > 1) return false;
    if (wanted == 1 && !asked_to_stop_) {
      asked_to_stop_ = true;
      say("spate: stopping: no new requests, waiting for the answers under way (Ctrl-C again "
          "leaves at once)");
      if (const auto stopped = client_.stop(run_, false); !stopped)
        say("spate: " + stopped.error().message);
    }
    if (options_.cluster) {
      for (const auto& death : options_.cluster->news_of_deaths()) say("spate: " + death);
      if (options_.cluster->controller_has_ended()) return false;
      // The controller would wait for them: they might come back. These do not.
      if (options_.cluster->agents_have_ended() && !std::exchange(stopped_for_agents_, true)) {
        say("spate: every agent has ended: so does the run");
        if (const auto stopped = client_.stop(run_, true); !stopped)
          say("spate: " + stopped.error().message);
      }
    }
    return true;
  }

  Followed leave() {
    if (interrupts() > 0 && !options_.stops_run) return {std::nullopt, kPassed};
    if (interrupts() > 0) {
      say(options_.cluster
              ? "spate: left at once; what was stored is kept"
              : "spate: left at once; run " + run_ + " was asked to stop and ends by itself");
      return {std::nullopt, kStopped};
    }
    say("spate: the local controller is gone, and the run with it; what it had stored is kept: "
        "spate report " +
        run_ + " --local");
    return {std::nullopt, kFailed};
  }

  Followed give_up() {
    say("spate: the controller did not come back within " +
        format_duration(options_.reconnect_for) +
        ". The agents do what the plan says for that, and keep what they have counted until it is "
        "back: then spate status " +
        run_ + ", spate report " + run_);
    return {std::nullopt, kFailed};
  }

  void pause() {
    for (int tick = 0; tick < kTicksBetweenTries && is_staying(); ++tick) {
      const Instant begin = BootClock::now();
      client_.reconnect_for(kTick);
      // It returns at once when the connection is there.
      if (BootClock::now() - begin < kTick / 2) poll(nullptr, 0, static_cast<int>(kTick.count()));
    }
  }

  OperatorClient& client_;
  const std::string run_;
  const FollowOptions options_;
  std::optional<ops::v1::End> end_;
  bool asked_to_stop_ = false;
  bool stopped_for_agents_ = false;
  std::optional<Instant> broken_since_;
  bool is_away_ = false;  // since then
  std::set<std::pair<std::int64_t, std::string>> told_;
  std::uint64_t lines_ = 0, lines_before_ = 0, rows_ = 0;
};

}  // namespace

Followed follow(OperatorClient& client, const std::string& run, const FollowOptions& options) {
  return Follower(client, run, options).follow();
}

}  // namespace spate::cli
