#pragma once

// The timeline of a run: which parameters each agent has at every instant from the common start T
// to the planned end. Pure values and functions; the controller, its store, its reports and the
// simulation all make a timeline from the same plan and the same list of changes, and get the same.
//
// A segment is a stretch of time within one phase and one epoch. An epoch is one numbered version
// of the parameters and of how they are shared among the agents; numbers only grow along the
// timeline. Epochs that a change replaced before they came are left out, so numbers may have holes.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/parameters.h"
#include "common/plan.h"
#include "common/result.h"

namespace spate {

inline constexpr std::uint32_t kNoSet = UINT32_MAX;
inline constexpr std::size_t kMaxSegments = 10'000;

struct Segment {
  Duration offset{};  // since T
  Duration length{};
  std::uint32_t phase = 0;  // index into the plan's phases
  std::uint32_t epoch = 1;
  bool guard = false;  // a guard band after a change-over: left out of the measured results
  bool operator==(const Segment&) const = default;
};

// One agent's part of an epoch: load.connections is this agent's own.
struct AgentShare {
  std::uint32_t set = kNoSet;  // index into plan.rotation's sets; kNoSet without a rotation
  Parameters parameters;
  bool operator==(const AgentShare&) const = default;
};

struct Epoch {
  std::uint32_t number = 1;
  std::vector<AgentShare> shares;  // by the agent's position in the run
  bool operator==(const Epoch&) const = default;

  std::uint64_t connections() const;  // of all agents
};

struct Timeline {
  std::vector<Epoch> epochs;      // ascending by number; every one is used by some segment
  std::vector<Segment> segments;  // contiguous from T to the planned end, ascending
  bool operator==(const Timeline&) const = default;

  const Epoch& epoch(std::uint32_t number) const;  // requires it to exist
  // The segment in effect at `at`: the last one that begins at or before it, the first one before
  // T.
  const Segment& segment_at(Duration at) const;
  std::uint32_t epoch_at(Duration at) const { return segment_at(at).epoch; }
  std::uint32_t last_epoch() const { return epochs.back().number; }  // of any planned
};

// What one agent has to know of it.
struct EpochShare {
  std::uint32_t epoch = 1;
  Parameters parameters;  // this agent's own
  bool operator==(const EpochShare&) const = default;
};
struct ShareTimeline {
  std::vector<EpochShare> epochs;
  std::vector<Segment> segments;
  bool operator==(const ShareTimeline&) const = default;
};
// Segments that end after `from`, and their epochs.
ShareTimeline share_of(const Timeline& timeline, std::size_t agent,
                       Duration from = Duration::zero());

// The plan's own timeline: phases, and its rotation if it has one. `start_wall_ms` is T's wall
// time; it matters only for a rotation by wall clock. Errors: too many segments.
Result<Timeline> planned_timeline(const Plan& plan, std::int64_t start_wall_ms);

// One accepted order to change parameters; kept for ever, with who and why.
struct Change {
  struct Part {
    std::vector<std::uint32_t> agents;  // positions; empty: all
    ParameterPatch patch;               // connections are divided among these agents
    bool operator==(const Part&) const = default;
  };
  std::uint32_t epoch = 0;  // the first one it makes; given by next_epoch() when it is accepted
  Duration at{};            // since T; it holds from here to the end
  Duration guard{};         // so long after `at` is a guard band
  std::vector<Part> parts;
  // From `at` on the connections of these agents are the others', in equal parts; nobody: what was
  // moved is moved back. Nothing here: as it was.
  std::optional<std::vector<std::uint32_t>> absent;
  bool canary = false;  // on trial on some agents
  std::string who;      // certificate's name, or user@host
  std::string reason;
  std::string what;          // as ordered: "load.connections=4000 call.compress=true", "pause"
  std::int64_t wall_ms = 0;  // when it was accepted
  bool operator==(const Change&) const = default;
};

// How long a guard band it needs if nobody says otherwise: as long as the rotation's, or
// kChangeGuard, if it opens or closes connections; else none.
inline constexpr Duration kChangeGuard = std::chrono::seconds(10);
Duration default_guard(const Change& change, Duration rotation_guard);

// The timeline of a run whose plan alone would give `planned`, after the changes in the order in
// which they were accepted. Each holds from its `at` to the end: over phases and rotations that
// follow, and over other changes until their `at`. So an order for tomorrow is still good after one
// for now. Segments are split at every change; what a new change can affect, from its `at` on, gets
// new epoch numbers, the first one change.epoch. Who is absent counts last, over everything.
Timeline changed_timeline(const Timeline& planned, std::span<const Change> accepted);

// The same, one change at a time: `current` is the timeline of all of `accepted` but the last one.
Timeline with_last_change(const Timeline& planned, const Timeline& current,
                          std::span<const Change> accepted);

}  // namespace spate
