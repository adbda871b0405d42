#pragma once

// Which epoch an agent's run has when, and which changes are prepared for it: the session's memory
// of the timeline, without the parameters, which the pre-flight turns into assignments. Pure;
// control thread.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "common/clock.h"
#include "common/timeline.h"

namespace spate::agent {

class EpochBook {
 public:
  // Changes that may be prepared at once; beyond that the ones with the lowest epochs are dropped.
  static constexpr std::size_t kMostPrepared = 8;

  struct Prepared {
    Duration from{};  // since T
    std::vector<Segment> segments;
    bool is_checked = false;
  };

  EpochBook() = default;
  explicit EpochBook(const std::vector<Segment>& segments);

  // A change that makes `epoch` and later ones. Asked for again, it takes the place of what was
  // prepared before.
  void prepare(std::uint32_t epoch, Duration from, const std::vector<Segment>& segments);
  void checked(std::uint32_t epoch);
  void drop(std::uint32_t epoch) { prepared_.erase(epoch); }
  const Prepared* find(std::uint32_t epoch) const;

  // The prepared change holds from `at` on, in the place of all that was to come. It and those
  // before it are not prepared any more.
  void commit(std::uint32_t epoch, Duration at);
  // The last one committed, or else the last one of what the run began with here: whatever change
  // makes an epoch up to that is in it.
  std::uint32_t committed() const { return std::max(committed_, given_); }
  // The same without one that came late, until it is in effect: of the change that holds from the
  // instant on that it is for.
  std::uint32_t certain(Duration now) const {
    return now < late_until_ ? epoch_at(now) : committed();
  }
  // The last one of what the run began with here; 0: of nothing.
  std::uint32_t given() const { return given_; }

  std::uint32_t epoch_at(Duration at) const;  // 0: of nothing
  Duration end() const { return end_; }       // of the run, since T

 private:
  struct Stretch {
    Duration from{};
    std::uint32_t epoch = 0;
  };
  void append(const std::vector<Segment>& segments, Duration from);

  std::vector<Stretch> stretches_;  // ascending
  Duration end_{};
  std::map<std::uint32_t, Prepared> prepared_;
  std::uint32_t given_ = 0;
  std::uint32_t committed_ = 0;
  Duration late_until_ = Duration::min();
};

}  // namespace spate::agent
