#pragma once

// What an agent does when something happens: the pure state machine between its control stream, its
// workers and its clock. No sockets, files, threads or clocks: step() is told the event and the
// instant, and returns what to do, in order. Control thread.
//
// Two things have a state each. The link to the controller: down, greeting (Hello is out), up. And
// the run:
//
//   idle -> checking -> opening -> armed -> running -> draining -> delivering -> idle
//
// They are independent: a run goes on while the link is down, and what has to be said is said when
// it is up again. Load needs a lease, so that none is left running with nobody in charge: it is
// counted from the heartbeat that the controller answered with it, and when it has ended the
// workers hold by themselves; what happens then is the run's OnControllerLoss. Before the start,
// silence of kControllerSilentFor gives the run up.
//
// A change of the run's parameters comes in two steps: prepared, which checks it and changes
// nothing, and committed, which hands it to the workers with the one instant for all of them.
//
// What was counted is in the spool, not here: records of this run, of earlier ones, and of earlier
// incarnations of this agent wait there side by side, and outlive this process. After a Welcome,
// those that may have been sent are held back until the controller has named its mark (RecordAck)
// or for kResumeHold, so that what it has already is not sent twice.
//
// A controller's term is looked at before anything it says: a lower one than was heard of its
// cluster ends the stream, a higher one is kept durably first.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "agent/clock_sync.h"
#include "agent/epoch_book.h"
#include "agent/messages.h"
#include "agent/spool.h"
#include "agent/term_book.h"
#include "common/clock.h"

namespace spate::agent {

// --- events beside the controller's messages

struct StreamUp {};    // a new stream; nothing was said on it
struct StreamDown {};  // with all that was not yet acknowledged

struct PreflightDone {
  std::string run;
  std::vector<Problem> problems;  // empty: OpenWorkers will find what it needs
  double max_rate_per_s = 0;      // the owner's cap on requests
};

// Where the agent's connections are, of all workers together.
struct WorkersOpening {
  std::uint64_t established = 0;
  std::uint64_t requested = 0;
  ErrorTally errors;
  bool settled = false;  // all established, or every one tried at least once
};

struct FirstRequest {  // of one worker
  Instant at;
};

struct IntervalClosed {  // of the agent; everything but run, agent, incarnation, seq
  Record record;
  // How many closed intervals of each worker are in this and the earlier records.
  std::vector<std::uint64_t> taken = {};
};

struct ChangeChecked {
  std::string run;
  std::uint32_t epoch = 0;
  std::vector<Problem> problems;  // empty: ChangeWorkers will find what it needs
};

struct ChangedOver {  // all workers, to this epoch
  std::uint32_t epoch = 0;
  Instant at;
};

struct WorkersDrained {};     // after the last IntervalClosed
struct ShutdownRequested {};  // SIGTERM, SIGINT
struct Tick {};               // not before wake_at()

using Event = std::variant<StreamUp, StreamDown, Welcome, Rejected, HeartbeatReply, Prepare, Start,
                           RecordAck, Stop, EpochPrepare, EpochCommit, PreflightDone,
                           WorkersOpening, FirstRequest, IntervalClosed, ChangeChecked, ChangedOver,
                           WorkersDrained, ShutdownRequested, Tick>;

// --- actions

struct Send {
  AgentMessage message;
};
struct Disconnect {  // give the stream up and dial again
  std::string reason;
  bool is_refused = false;  // by a controller: it will say the same again for a while
};
struct RunPreflight {  // elsewhere; answered by PreflightDone
  Prepare prepare;
  std::string agent;  // the name this run knows the agent by
};
struct OpenWorkers {};  // of the pre-flight that was just answered
struct StartWorkersAt {
  Instant at;     // the run's common start
  Instant begin;  // when this agent begins: then, or later
  Duration drain{};
};
struct CheckChange {  // elsewhere; answered by ChangeChecked
  EpochPrepare change;
};
struct ChangeWorkers {  // to the change that was checked for this epoch
  std::uint32_t epoch = 0;
  Instant at;
};
struct LeaseWorkers {  // no request leaves from here on, until told a later instant
  Instant until;
};
struct StopWorkers {
  Instant at;
  Duration drain{};
};
// The closed intervals up to these of each worker outlive this process in the spool.
struct ReleaseIntervals {
  std::vector<std::uint64_t> taken;
};
struct ReleaseWorkers {};  // close what is open; nothing of them is heard any more
struct Say {               // one line of the run's story
  enum class Level { info, warning } level = Level::info;
  std::string text;  // verb key=value
};
struct Leave {                    // flush the stream and end the process
  std::uint64_t undelivered = 0;  // records that stay in the spool
};

using Action = std::variant<Send, Disconnect, RunPreflight, OpenWorkers, StartWorkersAt,
                            CheckChange, ChangeWorkers, LeaseWorkers, StopWorkers, ReleaseIntervals,
                            ReleaseWorkers, Say, Leave>;
using Actions = std::vector<Action>;

class Session {
 public:
  static constexpr Duration kControllerSilentFor = std::chrono::seconds(60);  // before a start
  static constexpr Duration kLinkSilentFor = std::chrono::seconds(5);         // then dial again
  static constexpr Duration kArmAfter = std::chrono::seconds(30);  // armed with what there is
  static constexpr Duration kStopLead =
      std::chrono::milliseconds(20);  // so that all workers hear of it in time
  // The same for a start in the past, and for a change.
  static constexpr Duration kJoinLead = std::chrono::milliseconds(20);
  static constexpr Duration kChangeLead = std::chrono::milliseconds(20);
  static constexpr Duration kStartedAfter =
      std::chrono::seconds(1);  // Started without the slowest workers
  static constexpr Duration kResumeHold = std::chrono::seconds(2);
  static constexpr Duration kOverdueAfter =
      std::chrono::seconds(10);  // a drain that does not end is cut
  static constexpr Duration kLastLook = std::chrono::seconds(1);  // between overdue and cut
  // How long a shutdown waits for the controller to acknowledge, and records of runs that have
  // ended stand in the way of others of that kind.
  static constexpr Duration kDeliverFor = std::chrono::seconds(30);
  static constexpr Duration kShutdownDrain = std::chrono::seconds(10);
  static constexpr Duration kSpoolRetry = std::chrono::seconds(1);  // while its disk refuses
  static constexpr int kBurst = 8;  // heartbeats back to back after a Welcome, for the clock
  // Known as well as this, the clock tells the start, and when it was, before the burst is over.
  static constexpr Duration kGoodBound = std::chrono::milliseconds(20);

  enum class Link { down, greeting, up };
  enum class State { idle, checking, opening, armed, running, draining, delivering, left };

  // What changes in `self` is filled in by the session. Both others outlive it.
  Session(Hello self, Spool& spool, TermBook& terms);

  // `term`: of the controller whose message the event is; 0: it said none.
  Actions step(Event event, Instant now, std::uint64_t term = 0);
  // The latest instant at which a Tick is due; nothing: none.
  std::optional<Instant> wake_at() const;

  State state() const { return state_; }
  Link link() const { return link_; }
  const std::string& name() const { return self_.name; }
  std::string run() const { return state_ == State::idle ? std::string() : run_.id; }
  const Spool& spool() const { return spool_; }
  const ClockSync& clock() const { return clock_; }

 private:
  struct Run {
    std::string id;
    std::string agent;
    std::uint32_t threads = 0;
    double max_rate_per_s = 0;
    EpochBook epochs;
    std::vector<EpochCommit> committed_early;  // before the start
    std::optional<EpochApplied> applied;       // the last one
    Duration drain{};
    OnControllerLoss on_controller_loss = OnControllerLoss::go_on;
    Duration first_lease{};
    Instant leased_until = Instant::max();  // max: it needs none
    bool held = false;                      // the lease has ended
    Instant opening_since;
    WorkersOpening opening;
    std::optional<ControllerInstant> told_start;  // waits for the clock to be known
    Instant told_after;                           // it was said after this
    Instant start;                                // T, the run's common start
    Instant begin;                                // when this agent begins: T, or later
    Instant overdue_at;                           // the workers must have drained by then
    bool is_overdue = false;                      // noticed once
    Instant drain_ends_at;
    std::uint32_t first_requests = 0;  // workers that reported theirs
    std::optional<Instant> first_request;
    bool started_said = false;
    bool finished_said = false;  // on this stream
    std::string end_reason = "completed";
  };

  void on(const StreamUp&);
  void on(const StreamDown&);
  void on(const Welcome& m);
  void on(const Rejected& m);
  void on(const HeartbeatReply& m);
  void on(Prepare& m);
  void on(const Start& m);
  void on(const RecordAck& m);
  void on(const Stop& m);
  void on(EpochPrepare& m);
  void on(const EpochCommit& m);
  void on(const PreflightDone& e);
  void on(const WorkersOpening& e);
  void on(const FirstRequest& e);
  void on(IntervalClosed& e);
  void on(const ChangeChecked& e);
  void on(const ChangedOver& e);
  void on(const WorkersDrained&);
  void on(const ShutdownRequested&);
  void on(const Tick&);

  bool accepts(const Event& event, std::uint64_t term);
  bool is_current(const std::string& run) const {
    return state_ != State::idle && state_ != State::left && run == run_.id;
  }
  bool has_started() const {
    return state_ == State::running || state_ == State::draining || state_ == State::delivering;
  }
  // Before the start: the least there is.
  Duration since_start() const { return has_started() ? now_ - run_.start : Duration::min(); }
  bool is_started_due() const {
    return has_started() && run_.first_request && !run_.started_said &&
           now_ - run_.begin >= kStartedAfter;
  }
  void heard() { heard_at_ = now_; }
  void send(
      AgentMessage message);  // dropped unless the link is up: all of it is said again on Welcome
  void say(Say::Level level, std::string text);
  void beat();
  void refuse(const std::string& run, Problem problem);
  void refuse_without_spool(const std::string& run);
  void arm();
  void begin_when_clock_is_known();
  void begin_at(Instant start);
  void refuse_change(const std::string& run, std::uint32_t epoch, Problem problem);
  void change_over(const EpochCommit& commit);
  void begin_lease();
  void renew_lease(Instant until);
  void shorten_lease(Instant until);
  void lease_ended();
  bool is_clock_known_well() const;
  void say_started();
  void stop(Duration drain, const std::string& reason);
  void begin_delivery();
  void make_way();
  void abandon(const std::string& reason);  // before the start: nothing to drain or deliver
  void pump();                              // records, then Finished, as far as the window lets
  void heal_spool();
  void watch_spool();
  void finish_if_delivered();
  void end_run();
  void leave();
  void tick_run();
  void tick_link();
  void drop_link(std::string reason);
  bool silent_too_long() const { return now_ - heard_at_ >= kControllerSilentFor; }

  // Constant after construction, but for the name that a controller gives.
  Hello self_;
  Spool& spool_;
  TermBook& terms_;

  Link link_ = Link::down;
  Instant link_since_;  // of its present state
  Instant heard_at_;    // last message of a controller
  Instant beat_due_;
  Duration beat_every_ = std::chrono::seconds(1);
  int burst_left_ = 0;
  ClockSync clock_;
  std::optional<Instant> answered_beat_;  // when the last heartbeat that was answered was sent
  Instant hello_at_;                      // when the stream came up

  State state_ = State::idle;
  Run run_;
  std::string cluster_;                    // of the controller at the other end
  std::optional<Instant> hold_until_;      // records wait for the controller's mark
  std::optional<Instant> ended_until_;     // records of ended accounts wait for acknowledgements
  std::optional<Instant> retry_spool_at_;  // its disk refuses
  std::optional<Finished> last_finished_;  // of the run before; answers a Stop that comes late
  bool last_finished_said_ = true;         // false: the link was down

  bool shutting_down_ = false;
  Instant shutdown_ends_at_;

  // Of the step in progress.
  Instant now_;
  Actions actions_;
};

std::string_view name(Session::State s);

}  // namespace spate::agent
