#pragma once

// A worker's intervals in memory that outlives the process: a file on tmpfs, mapped. What a process
// counted before it was killed (SIGKILL, the OOM killer, a crash) is found there at the next start;
// after a reboot it is gone, and nothing is invented.
//
// A ring has kSlots slots. The worker counts in one of them, closes it at a border, and goes on in
// another one; a closed slot is used again when the spool has its record (release_through()). When
// few are free, because the disk keeps the control thread, the open interval goes on past borders
// that only tell the time (is_short()): resolution degrades, totals never. The last ones are for
// borders where something changes. With none left, or no room on tmpfs, the worker counts in memory
// of its own, which does not outlive it.
//
// Nothing here is locked and nothing waits: a slot belongs to the worker while it is open, to the
// control thread while it is closed, and `state` hands it over.
//
// A process can die between any two stores. So all that is counted twice is derived (sent from
// send_lag, outcomes from latency), the buckets are the truth and counts, minima and maxima follow
// them, and the instants of the last request that was sent and that ended stand beside them, to
// complete the one sample that may be half recorded. See record_of().
//
// Size: 324 KiB a slot, of which pages are used as samples touch them, typically 50 KiB; two slots
// are used in turn while the disk keeps up.

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/record.h"
#include "common/result.h"

namespace spate::agent {

// What an interval belongs to; fixed while it is open.
struct IntervalLabel {
  std::uint32_t epoch = 1;
  std::uint32_t phase = 0;
  bool drain = false;
  bool guard = false;
};

// The instants of one request.
struct RequestTimes {
  Instant intended;
  Instant sent;
};

inline constexpr std::size_t kSendLag = 2 * kOutcomeCount;
inline constexpr std::size_t kSlotHistograms = kSendLag + 1;
constexpr std::size_t latency_of(Outcome o) { return 2 * index(o); }
constexpr std::size_t service_time_of(Outcome o) { return 2 * index(o) + 1; }

// One interval. Plain data: all zero is a free slot.
struct OpenSlot {
  enum State : std::uint32_t { free, open, closed };
  struct Error {
    std::uint64_t count;
    std::uint32_t code;
    Outcome outcome;
    std::uint8_t length;
    std::array<char, kMaxErrorText> text;
  };

  std::atomic<std::uint32_t> state;
  bool has_begun;  // the run has; before, nothing is reported
  IntervalLabel label;
  std::uint64_t ordinal;  // of the worker's intervals, from 1
  // Since the run's common start. The end is known when it is closed.
  std::int64_t start_ns;
  std::int64_t end_ns;
  std::int64_t t0_ns;
  Counters counters;  // but scheduled, sent and in_flight_end, which are derived
  std::uint64_t connections_requested;
  std::uint64_t connections_established;
  // The last request that was sent, and the last that ended.
  std::int64_t sent_intended_ns, sent_ns;
  std::int64_t ended_intended_ns, ended_sent_ns, ended_ns;
  std::array<Histogram::Head, kSlotHistograms> heads;
  std::array<Error, kMaxErrorClasses + kOutcomeCount> errors;
  std::array<std::array<std::uint64_t, Histogram::kBucketCount>, kSlotHistograms> buckets;

  // Of a free one, all zero but for what clear() left.
  void prepare();
  // Everything zero again, touching only what was used.
  void clear();
  void add_error(std::size_t place, const ErrorClass& error);
};

// The record of an interval: everything but its key and process-wide gauges. Of an open one its
// length is up to the last request that was sent or ended. Errors: not as any process can have left
// it.
Result<Record> record_of(const OpenSlot& slot);

class SlotRing {
 public:
  static constexpr std::size_t kSlots = 16;
  static constexpr std::size_t kSpareSlots = 6;
  struct Owner {
    std::string run;
    std::string agent;
    std::uint64_t incarnation = 0;
    std::uint32_t worker = 0;
  };

  // A new file in `folder`, which is on tmpfs; removed by the destructor. Errors: no space.
  static Result<std::shared_ptr<SlotRing>> create(const std::string& folder, const Owner& owner);
  ~SlotRing();
  SlotRing(const SlotRing&) = delete;
  SlotRing& operator=(const SlotRing&) = delete;

  // Worker's thread. A free slot, its memory reserved; null: there is none.
  OpenSlot* take();
  // Worker's thread. Only the spare ones are free, of those for which there is room.
  bool is_short();
  // Control thread. The spool has the worker's intervals up to this one.
  void release_through(std::uint64_t ordinal);

 private:
  SlotRing(std::string path, int fd, std::byte* base);
  OpenSlot& slot(std::size_t i);
  bool is_free(std::size_t i);
  bool reserve(std::size_t i);

  const std::string path_;
  const int fd_;
  std::byte* const base_;
  std::array<std::atomic<bool>, kSlots> reserved_{};  // set by the worker
  bool has_room_ = true;                              // for another one, when last tried
};

// What one worker of a process that died has left.
struct WorkerRemains {
  SlotRing::Owner owner;
  struct Interval {
    std::uint64_t ordinal = 0;
    Record record;
  };
  std::vector<Interval> intervals;  // by ordinal
  // Of a worker that counts one is open, unless it is in the process' own memory.
  bool has_open = false;
};

// Reads, and leaves there, what earlier processes left in `folder`. What cannot be read is told in
// `complaints`.
std::vector<WorkerRemains> read_remains(const std::string& folder,
                                        std::vector<std::string>& complaints);
// After what they held is stored.
void remove_remains(const std::string& folder);

}  // namespace spate::agent
