#pragma once

// How many connections each agent has at any instant, in the latest versions of a run's timeline:
// an agent that missed a change still works by an older one. Version n is the timeline after n
// changes. Pure.

#include <cstdint>
#include <deque>
#include <vector>

#include "common/timeline.h"

namespace spate::controller {

inline constexpr std::size_t kMaxVersions = 32;

class ShareHistory {
 public:
  // The next version; the oldest one beyond kMaxVersions is forgotten.
  void add(const Timeline& timeline);

  std::size_t oldest() const { return first_; }
  std::size_t newest() const { return first_ + versions_.size() - 1; }

  // Of a version that was forgotten, the oldest one's.
  std::uint32_t epoch(std::size_t version, Duration at) const { return at_(version, at).epoch; }
  std::uint64_t connections(std::size_t version, std::size_t agent, Duration at) const {
    return at_(version, at).connections.at(agent);
  }
  std::uint64_t total(std::size_t version, Duration at) const { return at_(version, at).total; }
  // Of the total, from this version on.
  std::uint64_t most_in_all(std::size_t version, Duration at) const;
  // Adds to `all` the instants between these two at which the version changes.
  void add_borders(std::size_t version, Duration after, Duration before,
                   std::vector<Duration>& all) const;

 private:
  struct Stretch {
    Duration from{};
    std::uint32_t epoch = 0;
    std::vector<std::uint64_t> connections;  // by agent
    std::uint64_t total = 0;
  };
  const Stretch& at_(std::size_t version, Duration at) const;

  std::deque<std::vector<Stretch>> versions_;
  std::size_t first_ = 0;  // version of versions_.front()
};

}  // namespace spate::controller
