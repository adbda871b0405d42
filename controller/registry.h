#pragma once

// Who is there. Pure: told of hellos, heartbeats and broken streams with the instant they happened,
// it knows each agent's state. Runs on the control loop.
//
// An agent is a state folder, named by its agent_id; incarnation counts the processes that used it.
// Its name is a label for people: a name that another agent holds gets the suffix " (2)". A stream
// that comes back with the same incarnation is the same process; a higher incarnation is the agent
// restarted. The same incarnation in two processes at once (another nonce) is a copied machine:
// both are held, until each has an identity of its own. A lower incarnation is an old copy and
// refused. An agent without an agent_id is its process, and nothing more.
//
//   online   heartbeats arrive
//   suspect  none for kSuspectAfter, or its stream broke less than kLostAfter ago
//   lost     silent or away for kLostAfter
//   held     its identity is used twice
//
// At most kMaxAgents live ones; of the lost the latest kMaxLost are remembered for `spate agents`.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/plan.h"
#include "controller/agent_events.h"

namespace spate::controller {

inline constexpr Duration kHeartbeatInterval = std::chrono::seconds(1);
inline constexpr Duration kSuspectAfter = std::chrono::milliseconds(2500);
inline constexpr Duration kLostAfter = std::chrono::seconds(5);
// By so much a wall clock was set, not slewed; and so far from the controller's it is worth a word.
inline constexpr Duration kClockStep = std::chrono::milliseconds(500);
inline constexpr Duration kClockOff = std::chrono::milliseconds(500);
inline constexpr std::size_t kMaxLost = 100;
inline constexpr std::size_t kMaxAgentName = 64;

enum class AgentState { online, suspect, lost, held };
std::string_view name(AgentState s);

struct AgentEntry {
  std::string name;
  std::string id;  // agent_id, or made up for an agent without one
  AgentHello hello;
  std::optional<StreamId> stream;
  AgentState state = AgentState::online;
  std::string held_because;  // for the user, while it is held
  Instant last_seen{};
  Instant stream_broke_at{};  // meaningful without a stream
  std::int64_t offset_ns = 0;
  std::int64_t offset_bound_ns = 0;
  std::int64_t wall_clock_offset_ns = 0;  // 0: not known
  Duration clock_off{};  // its wall clock's lead over the controller's, if more than kClockOff
  std::string trouble;   // of its spool; empty: none
};

class Registry {
 public:
  struct Admission {
    bool accepted = false;
    std::string name;                        // the agent's from now on
    std::string refusal;                     // for the user, when not accepted
    bool is_back = false;                    // the same incarnation, on a new stream
    std::optional<StreamId> replaced;        // this older stream is dead: close it
    std::optional<std::uint64_t> restarted;  // the incarnation that this one follows
    bool is_copied = false;  // not accepted, and the agent of this name is held from now on
  };
  // Names that runs know agents by, which nobody else may have: name -> agent's id.
  using Reserved = std::map<std::string, std::string>;
  // `stranger`: why it cannot be the successor of the process with its identity; empty: it can.
  Admission hello(StreamId stream, const AgentHello& hello, Instant now,
                  const Reserved& reserved = {}, const std::string& stranger = {});
  // What is new since the heartbeat before.
  struct News {
    Duration clock_step{};  // by which its machine's wall clock was set, if more than kClockStep
    bool is_clock_off_new = false;  // clock_off began or is over, and not by a step
    bool is_trouble_new = false;    // trouble began, is another one, or is over
  };
  News heartbeat(StreamId stream, const AgentHeartbeat& heartbeat, Instant now);
  // This machine's wall clock - its own clock. By how much it was set since it was told last, if
  // more than kClockStep.
  Duration wall_clock(std::int64_t offset_ns);
  // Any message is a sign of life.
  void seen(StreamId stream, Instant now);
  void stream_broke(StreamId stream, Instant now);

  struct Lost {
    std::string name;
    std::string id;
    std::uint64_t incarnation = 0;
    std::string cause;
  };
  // Those that became lost since the last call.
  std::vector<Lost> tick(Instant now);

  const AgentEntry* find(const std::string& name) const;
  const AgentEntry* find(StreamId stream) const;
  const AgentEntry* find_id(const std::string& id) const;
  // Sorted by name.
  const std::vector<AgentEntry>& agents() const { return agents_; }

 private:
  void judge_clock(AgentEntry& entry) const;
  AgentEntry* find_stream(StreamId stream);
  AgentEntry* find_name(const std::string& name);
  AgentEntry* find_same(const AgentHello& hello);
  Admission hello_again(AgentEntry& entry, StreamId stream, const AgentHello& hello, Instant now,
                        const Reserved& reserved);
  Admission hold(AgentEntry* entry, const AgentHello& hello, const std::string& why);
  void rename(AgentEntry& entry, const std::string& wanted, const Reserved& reserved);
  std::string free_name(const std::string& id, const std::string& wanted,
                        const Reserved& reserved) const;
  void sort();
  std::size_t live_count() const;
  void forget_oldest_lost();

  std::vector<AgentEntry> agents_;
  std::int64_t wall_clock_offset_ns_ = 0;  // of this machine; 0: not known
};

// What is wrong with an agent that is at work all the same; empty: nothing.
std::string note_of(const AgentEntry& entry);
// "+1h", "-612ms"
std::string shown_step(Duration step);

}  // namespace spate::controller
