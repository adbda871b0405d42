#include "controller/share_history.h"

#include <algorithm>

namespace spate::controller {

void ShareHistory::add(const Timeline& timeline) {
  std::vector<Stretch> stretches;
  for (const Segment& segment : timeline.segments) {
    if (!stretches.empty() && stretches.back().epoch == segment.epoch) continue;
    Stretch stretch{segment.offset, segment.epoch, {}, 0};
    const Epoch& epoch = timeline.epoch(segment.epoch);
    for (const AgentShare& share : epoch.shares)
      stretch.connections.push_back(share.parameters.load.connections);
    stretch.total = epoch.connections();
    stretches.push_back(std::move(stretch));
  }
  versions_.push_back(std::move(stretches));
  if (versions_.size() <= kMaxVersions) return;
  versions_.pop_front();
  ++first_;
}

std::uint64_t ShareHistory::most_in_all(std::size_t version, Duration at) const {
  std::uint64_t most = 0;
  for (std::size_t v = std::max(version, first_); v <= newest(); ++v)
    most = std::max(most, total(v, at));
  return most;
}

void ShareHistory::add_borders(std::size_t version, Duration after, Duration before,
                               std::vector<Duration>& all) const {
  const auto& stretches = versions_.at(version - first_);
  auto it = std::upper_bound(stretches.begin(), stretches.end(), after,
                             [](Duration t, const Stretch& s) { return t < s.from; });
  for (; it != stretches.end() && it->from < before; ++it) all.push_back(it->from);
}

const ShareHistory::Stretch& ShareHistory::at_(std::size_t version, Duration at) const {
  const auto& stretches = versions_.at(version < first_ ? 0 : version - first_);
  const auto after = std::upper_bound(stretches.begin(), stretches.end(), at,
                                      [](Duration t, const Stretch& s) { return t < s.from; });
  return after == stretches.begin() ? stretches.front() : *std::prev(after);
}

}  // namespace spate::controller
