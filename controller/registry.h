#pragma once

// Who is there. Pure: told of hellos, heartbeats and broken streams with the instant they happened,
// it knows each agent's state. Runs on the control loop.
//
// An agent is one process, (name, incarnation). Its name is a label for people: a name that another
// live agent holds gets the suffix " (2)". A stream that comes back with the same incarnation is
// the same agent; another incarnation under the name of an agent that is gone, from the same host,
// is that agent restarted. The same identity from two addresses at once is a copied machine: the
// second one is refused.
//
//   online   heartbeats arrive
//   suspect  none for kSuspectAfter, or its stream broke less than kLostAfter ago
//   lost     silent or away for kLostAfter
//
// At most kMaxAgents live ones; of the lost the latest kMaxLost are remembered for `spate agents`.

#include <cstdint>
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
inline constexpr std::size_t kMaxLost = 100;
inline constexpr std::size_t kMaxAgentName = 64;

enum class AgentState { online, suspect, lost };
std::string_view name(AgentState s);

struct AgentEntry {
  std::string name;
  AgentHello hello;
  std::optional<StreamId> stream;
  AgentState state = AgentState::online;
  Instant last_seen{};
  Instant stream_broke_at{};  // meaningful without a stream
  std::int64_t offset_ns = 0;
  std::int64_t offset_bound_ns = 0;
};

class Registry {
 public:
  struct Admission {
    bool accepted = false;
    std::string name;                  // the agent's from now on
    std::string refusal;               // for the user, when not accepted
    bool is_back = false;              // the same incarnation, on a new stream
    std::optional<StreamId> replaced;  // this older stream is dead: close it
    std::optional<std::uint64_t>
        restarted;  // the incarnation that this one followed under its name
  };
  Admission hello(StreamId stream, const AgentHello& hello, Instant now);
  void heartbeat(StreamId stream, std::int64_t offset_ns, std::int64_t offset_bound_ns,
                 Instant now);
  // Any message is a sign of life.
  void seen(StreamId stream, Instant now);
  void stream_broke(StreamId stream, Instant now);

  struct Lost {
    std::string name;
    std::uint64_t incarnation = 0;
    std::string cause;
  };
  // Those that became lost since the last call.
  std::vector<Lost> tick(Instant now);

  const AgentEntry* find(const std::string& name) const;
  const AgentEntry* find(StreamId stream) const;
  // Sorted by name.
  const std::vector<AgentEntry>& agents() const { return agents_; }

 private:
  AgentEntry* find_stream(StreamId stream);
  AgentEntry* find_name(const std::string& name);
  std::string free_name(const std::string& wanted) const;
  std::size_t live_count() const;
  void forget_oldest_lost();

  std::vector<AgentEntry> agents_;
};

}  // namespace spate::controller
