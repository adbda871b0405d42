#pragma once

// The records of one run that the controller has not yet acknowledged. Pure; control thread.
//
// A record gets its seq, contiguous from 1, when it is first given out to be sent. From then on it
// is frozen: the controller may hold it already, so it must never come again with other numbers in
// it. At most `window` records are out unacknowledged; the rest waits here, never inside gRPC.
//
// Memory is bounded by `bytes` of encoded histograms. When full, neighbours that were never sent
// are merged, the finest and oldest first, only within one phase and epoch: resolution in time
// degrades, totals never. What cannot be merged (frozen, or another phase each) is kept beyond the
// limit; the window and the number of phases bound it.
//
// The one place to become durable: add() is where a record would be committed, next() where its seq
// would be, acknowledge() where it would be deleted. Nothing else in the agent holds records.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "common/record.h"

namespace spate::agent {

class Spool {
 public:
  struct Limits {
    std::size_t bytes = std::size_t{64} << 20;
    std::size_t window = 64;
  };

  Spool() : Spool(Limits{}) {}
  explicit Spool(const Limits& limits) : limits_(limits) {}

  // A closed record, in order; key.seq is ignored.
  void add(Record record);
  // The next record to put on the wire, or nothing: the window is full, or all that is here is out.
  std::optional<Record> next();
  // Everything up to and including `seq` is committed. False: a seq never given; ignored.
  bool acknowledge(std::uint64_t seq);
  // The stream broke: everything unacknowledged is given out again, oldest first, with the same
  // seqs.
  void rewind() { out_ = 0; }

  std::uint64_t last_seq() const { return last_seq_; }            // highest given; 0: none
  std::size_t size() const { return entries_.size(); }            // all that is not acknowledged
  std::size_t waiting() const { return entries_.size() - out_; }  // not on the wire
  std::size_t bytes() const { return bytes_; }
  bool empty() const { return entries_.empty(); }

 private:
  // A record with its histograms encoded: about 2 KB instead of 60.
  struct Entry {
    Record head;
    std::array<std::string, 2 * kOutcomeCount + 1> histograms;
    std::size_t bytes = 0;
    std::uint64_t intervals = 1;
  };
  static Entry pack(Record record, std::uint64_t intervals);
  static Record unpack(const Entry& entry);
  bool coarsen();

  Limits limits_;
  std::deque<Entry> entries_;  // seqs acknowledged_ + 1 … last_seq_ are frozen, then the never-sent
  std::size_t out_ = 0;        // the first `out_` entries are on the wire
  std::size_t bytes_ = 0;
  std::uint64_t acknowledged_ = 0;
  std::uint64_t last_seq_ = 0;
};

}  // namespace spate::agent
