#pragma once

// Changes of a run while it is live, as a state machine: step(input, now) returns what must be
// done. Pure; on the control loop. It keeps the run's timeline, the changes that made it what it
// is, what each agent has of them, and the agents' leases.
//
// A change goes through these steps, one at a time; others wait in a queue:
//
//   - prepare: every agent that is there is sent its new tail of the timeline, and answers. Any
//     problem refuses the change whole: nothing has changed anywhere. An agent that is away is
//     waited for kAwayWait, then the change goes on without it.
//   - store: the change is written. It exists from the moment that is committed, and not before.
//   - commit: the agents are told, and change over at its instant; late: at once.
//
// The rule for a crash in between: what is in the store is committed everywhere in the end, by the
// next controller if need be; what is not in the store was committed nowhere, because nobody is
// told before. A controller that begins with stored changes takes every agent to be behind until
// the agent's word says otherwise.
//
// An agent that missed changes gets them all as one prepare and commit when it is back. Until then
// the run is on two epochs: a state with a name (spread()), in the status and as an event.
//
// An agent that would do more than before is told only when the leases of the others leave room for
// it: the law of leases.h. Nobody waits to do less. Where all wait for one another, they are told
// to hold from the instant on for which there is no room yet (lease_book.h).

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/clock.h"
#include "common/plan.h"
#include "common/timeline.h"
#include "controller/agent_events.h"
#include "controller/lease_book.h"
#include "controller/run_info.h"

namespace spate::controller {

inline constexpr Duration kChangeLead = std::chrono::seconds(1);  // from an order to its instant
inline constexpr Duration kAwayWait = std::chrono::seconds(5);
inline constexpr Duration kAnswerWait = std::chrono::seconds(30);  // of an agent that is there
inline constexpr Duration kChangeRetry = std::chrono::seconds(5);
inline constexpr Duration kRefusedRetry = std::chrono::seconds(30);
inline constexpr Duration kSpreadGrace = std::chrono::milliseconds(1500);
inline constexpr std::size_t kMaxQueuedChanges = 16;
inline constexpr std::size_t kMaxChanges = 10'000;  // of one run

// An order that is well formed. `change` lacks only its epoch and, without `at`, its instant.
struct ChangeOrder {
  std::uint64_t ticket = 0;  // names it in its answer
  Change change;
  std::optional<Duration> at;  // since T; nothing: as soon as it can be
  std::optional<std::uint32_t> if_epoch;
};

// What one parameter was and is, of the agents that a change is for.
struct Difference {
  std::string path;  // "load.connections": their total
  std::string from;
  std::string to;
};
std::vector<Difference> differences(const Epoch& from, const Epoch& to,
                                    const std::vector<std::uint32_t>& agents);

struct ChangeAnswer {
  std::vector<std::string> problems;  // not empty: refused, nothing has changed
  int exit_code = 0;                  // with problems: 2 wrong, 4 the epoch moved on, 1 else
  bool is_undecided = false;          // with problems: it may be made all the same
  std::uint32_t epoch = 0;            // the present one if the epoch moved on
  std::uint32_t from_epoch = 0;       // in effect before it, at its instant
  Duration at{};                      // since T
  std::string at_time;                // the same as wall time
  std::string what;
  Duration guard{};  // so long after `at` is not measured
  std::vector<Difference> differences;
  std::vector<std::string> prepared;  // agents
  std::vector<std::string> away;      // they get it when they are back
};

namespace change_input {

struct Order {
  ChangeOrder order;
};
struct Reply {
  std::size_t agent = 0;
  std::uint32_t epoch = 0;
  std::vector<AgentProblem> problems;
};
// It works by the change of this epoch, or will from the instant of that on.
struct Has {
  std::size_t agent = 0;
  std::uint32_t epoch = 0;
};
// Its stream broke, or it is silent.
struct Away {
  std::size_t agent = 0;
};
// The same process is there again and says what it works by; 0: it has not begun.
struct Back {
  std::size_t agent = 0;
  std::uint32_t epoch = 0;  // in effect
  // Of the last change that it has; not known: it may be any.
  std::optional<std::uint32_t> committed = {};
};
// Another process of the agent is being given timeline() whole. It is there when Back says so.
struct Restarted {
  std::size_t agent = 0;
};
struct Lost {
  std::size_t agent = 0;
};
// It has ended its part of the run.
struct Finished {
  std::size_t agent = 0;
};
// change_action::Store's change of this epoch is committed.
struct Stored {
  std::uint32_t epoch = 0;
};
// Nothing can be stored, and has not for a while: whoever waits is told so.
struct Unstorable {
  std::string why;
};
// The run drains: no more changes.
struct Ending {};
struct Tick {};

}  // namespace change_input

using ChangeInput =
    std::variant<change_input::Order, change_input::Reply, change_input::Has, change_input::Away,
                 change_input::Back, change_input::Restarted, change_input::Lost,
                 change_input::Finished, change_input::Stored, change_input::Unstorable,
                 change_input::Ending, change_input::Tick>;

namespace change_action {

struct Send {
  std::size_t agent = 0;
  ControllerMessage message;
};
// To be answered by Stored once it is committed.
struct Store {
  Change change;
};
struct Answer {
  std::uint64_t ticket = 0;
  ChangeAnswer answer;
};
struct Log {
  RunEvent::Severity severity = RunEvent::Severity::info;
  std::string text;
};

}  // namespace change_action

using ChangeAction = std::variant<change_action::Send, change_action::Store, change_action::Answer,
                                  change_action::Log>;

class ChangeBook {
 public:
  struct Setup {
    std::string run;
    std::vector<std::string> agents;  // names, by position
    std::vector<std::string> phases;  // names
    Timeline planned;
    Instant start{};                 // T
    std::int64_t start_wall_ms = 0;  // of T
    Duration lease{};
    // An agent whose lease ends may have another one: it holds until then.
    bool goes_on_after_lease = false;
    Redistribute redistribute = Redistribute::never;
    Duration rotation_guard{};  // of the plan's rotation; zero: none
    // Of a run that another process began: nobody is known to be there, and everybody is taken to
    // have a full lease.
    bool is_adopted = false;
    std::vector<Change> accepted;
  };
  ChangeBook(Setup setup, Instant now);

  std::vector<ChangeAction> step(const ChangeInput& input, Instant now);

  // As of LeaseBook.
  Duration lease(std::size_t agent, Instant now);

  const Timeline& timeline() const { return timeline_; }
  const std::vector<Change>& accepted() const { return accepted_; }
  // T is known better: the controller's clock is another one since the run began.
  void set_start(Instant start) {
    setup_.start = start;
    leases_.set_start(start);
  }
  std::uint32_t epoch(Instant now) const { return timeline_.epoch_at(offset(now)); }

  // For the status.
  struct AgentState {
    std::string presence;     // "here", "away", "lost", "finished"
    std::uint32_t epoch = 0;  // 0: not known since the controller's restart
    std::uint64_t connections = 0;
    bool is_behind = false;          // of the changes whose instant has passed
    std::int64_t lease_wall_ms = 0;  // when it ends; 0: it has
    std::string note;                // what it waits for, or why it cannot change
  };
  bool is_here(std::size_t agent) const { return members_.at(agent).presence == Presence::here; }
  // Whether it was not known to have the change of this epoch.
  bool is_news(std::size_t agent, std::uint32_t epoch) const {
    return leases_.sure(agent) != latest() && version_of(epoch) > leases_.sure(agent);
  }
  AgentState agent_state(std::size_t agent, Instant now) const;
  // "epoch 7 on 4 of 8 agents: pc-05 still on 6 until 14:05:10Z", and who has not been heard of
  // since the controller's restart; empty: all are known to be on the same.
  std::string spread(Instant now) const;
  // The one being prepared or stored; null if there is none.
  const Change* under_way() const { return candidate_ ? &candidate_->change : nullptr; }
  std::size_t queued() const { return queue_.size(); }
  // Whether it has surely stopped, as far as leases tell.
  bool lease_ended(std::size_t agent, Instant now) const { return leases_.ended(agent, now); }
  // By the controller's account; and what it may be: the run's connections, while it changes over
  // the largest of the epochs since all were on the same. What exceeds the newest is left from the
  // older ones and only falls.
  std::uint64_t leased(Instant now) { return leases_.sum(now); }
  std::uint64_t allowed(Instant now) const;

 private:
  enum class Presence { here, away, lost, finished };
  struct Asked {
    std::uint32_t epoch = 0;  // names it in the reply
    Instant at{};
    std::optional<std::vector<AgentProblem>> reply;
  };
  struct Member {
    Presence presence = Presence::here;
    std::size_t committed = 0;  // told on this stream, and not long ago
    Instant committed_at{};
    std::optional<Asked> asked;
    Instant not_before{};  // to be asked again, after it refused
    std::string refusal;   // of a change that others have already
  };
  struct Candidate {
    ChangeOrder order;
    Change change;
    Timeline timeline;
    std::uint32_t from_epoch = 0;
    Instant begun{};
    bool is_storing = false;
  };

  void on(const change_input::Order& input, Instant now);
  void on(const change_input::Reply& input, Instant now);
  void on(const change_input::Has& input, Instant now);
  void on(const change_input::Away& input, Instant now);
  void on(const change_input::Back& input, Instant now);
  void on(const change_input::Restarted& input, Instant now);
  void on(const change_input::Lost& input, Instant now);
  void on(const change_input::Finished& input, Instant now);
  void on(const change_input::Stored& input, Instant now);
  void on(const change_input::Unstorable& input, Instant now);
  void on(const change_input::Ending& input, Instant now);
  void on(const change_input::Tick& input, Instant now);

  void begin_next(Instant now);
  bool begin(ChangeOrder order, Instant now);
  std::optional<ChangeAnswer> objection(const ChangeOrder& order, Duration at, Instant now) const;
  void judge(Instant now);
  void refuse_candidate(std::vector<std::string> problems, int exit_code, Instant now);
  void answer(const ChangeOrder& order, ChangeAnswer answer);

  void pursue(std::size_t agent, Instant now);
  void ask(std::size_t agent, Instant now);
  void commit(std::size_t agent, std::optional<Duration> full_at, Instant now);
  void untie(Instant now);
  bool is_untying(Instant now) const;
  bool waits_for_room(std::size_t agent) const;
  bool was_asked_for_latest(const Member& member) const {
    return member.asked && member.asked->epoch == accepted_.back().epoch;
  }
  void confirm(std::size_t agent, std::uint32_t epoch);
  std::size_t version_of(std::uint32_t epoch) const;
  void settle();

  bool is_unheard(std::size_t agent) const;
  std::string behind(Instant now) const;
  std::string unheard(Instant now) const;
  void show_epoch(Instant now);
  void show_spread(Instant now);
  void redistribute(Instant now);
  std::vector<std::uint32_t> absent() const;

  std::size_t latest() const { return accepted_.size(); }
  std::size_t due(Instant now) const;
  Duration first_missed(std::size_t agent) const;
  Instant last_missed(std::size_t agent) const;
  Duration offset(Instant now) const { return now - setup_.start; }
  std::string wall_time(Instant at) const;
  void log(RunEvent::Severity severity, std::string text);

  Setup setup_;
  Timeline timeline_;
  std::vector<Change> accepted_;
  LeaseBook leases_;
  std::vector<Member> members_;
  std::deque<ChangeOrder> queue_;
  std::optional<Candidate> candidate_;
  // Of the newest change that was ordered without an instant: the next such one is not before it,
  // or it would be undone by what it was to undo.
  Duration last_soonest_{};
  std::uint32_t next_epoch_ = 1;  // never given to two changes, not even to one that was refused
  bool is_ending_ = false;
  Instant untied_at_ = Instant::min();  // somebody was told to hold
  std::size_t settled_ = 0;             // version that everybody had when last they agreed
  std::uint32_t shown_epoch_ = 0;
  std::size_t shown_spread_ = 0;  // version for which it was logged
  Instant redistribute_not_before_{};
  std::vector<ChangeAction> actions_;
};

}  // namespace spate::controller
