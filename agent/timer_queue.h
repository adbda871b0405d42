#pragma once

// Wake-ups of a worker's connections in one heap. Pure; one thread; told the time.
//
// A connection has at most one live entry per kind. Requests do not insert: a deadline that moves
// later leaves its entry where it is, and when that fires early the owner puts it back (see Due).
// An entry is superseded by scheduling an earlier one; the later then fires as stale and is dropped
// here.

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/clock.h"

namespace spate::agent {

inline constexpr Instant kNever = Instant::max();

enum class TimerKind : std::uint8_t {
  deadline,  // of a request, or of connecting
  wake,      // end of a pause or of a back-off, or the first request
};
inline constexpr std::size_t kTimerKinds = 2;

// The entry a connection has in the heap; kept in the connection.
struct TimerSlot {
  std::array<Instant, kTimerKinds> entry{kNever, kNever};
  Instant& of(TimerKind kind) { return entry[static_cast<std::size_t>(kind)]; }
};

class TimerQueue {
 public:
  struct Due {
    std::uint32_t connection;
    TimerKind kind;
  };

  // Makes sure that (connection, kind) fires at `at` or before. Returns true if the queue's next
  // instant has moved forward.
  bool schedule(std::uint32_t connection, TimerKind kind, Instant at, TimerSlot& slot) {
    if (slot.of(kind) <= at) return false;
    slot.of(kind) = at;
    const bool is_first = heap_.empty() || at < heap_.front().at;
    heap_.push_back({at, connection, kind});
    std::push_heap(heap_.begin(), heap_.end(), later);
    return is_first;
  }

  Instant next() const { return heap_.empty() ? kNever : heap_.front().at; }

  // Takes one entry that is due; its slot is free again. `slot_of(connection)` gives the TimerSlot.
  template <class SlotOf>
  std::optional<Due> take_due(Instant now, SlotOf&& slot_of) {
    while (!heap_.empty() && heap_.front().at <= now) {
      std::pop_heap(heap_.begin(), heap_.end(), later);
      const Entry entry = heap_.back();
      heap_.pop_back();
      Instant& live = slot_of(entry.connection).of(entry.kind);
      if (live != entry.at) continue;  // superseded
      live = kNever;
      return Due{entry.connection, entry.kind};
    }
    return std::nullopt;
  }

  std::size_t size() const { return heap_.size(); }

 private:
  struct Entry {
    Instant at;
    std::uint32_t connection;
    TimerKind kind;
  };
  static bool later(const Entry& a, const Entry& b) { return a.at > b.at; }

  std::vector<Entry> heap_;
};

}  // namespace spate::agent
