#include "common/timeline.h"

#include <algorithm>

#include "common/check.h"
#include "common/shares.h"

namespace spate {
namespace {

Parameters plan_parameters(const Plan& plan, const Load& load) {
  Parameters p;
  p.target_url = plan.target.url;
  p.call = plan.call;
  p.load = load;
  p.threads = plan.threads;
  return p;
}

std::vector<AgentShare> divided(const Parameters& total, std::size_t agents) {
  std::vector<AgentShare> shares(agents, AgentShare{kNoSet, total});
  const auto connections = divide_equally(total.load.connections, agents);
  for (std::size_t i = 0; i < agents; ++i) shares[i].parameters.load.connections = connections[i];
  return shares;
}

// Appends a segment; its epoch is the last one if the shares are the same, else a new one.
void append(Timeline& timeline, Segment segment, std::vector<AgentShare> shares) {
  if (timeline.epochs.empty() || timeline.epochs.back().shares != shares) {
    const std::uint32_t number = timeline.epochs.empty() ? 1 : timeline.last_epoch() + 1;
    timeline.epochs.push_back({number, std::move(shares)});
  }
  segment.epoch = timeline.last_epoch();
  timeline.segments.push_back(segment);
}

}  // namespace

std::uint64_t Epoch::connections() const {
  std::uint64_t sum = 0;
  for (const AgentShare& share : shares) sum += share.parameters.load.connections;
  return sum;
}

const Epoch& Timeline::epoch(std::uint32_t number) const {
  const auto it = std::lower_bound(epochs.begin(), epochs.end(), number,
                                   [](const Epoch& e, std::uint32_t n) { return e.number < n; });
  CHECK(it != epochs.end() && it->number == number, "epoch " + std::to_string(number));
  return *it;
}

const Segment& Timeline::segment_at(Duration at) const {
  const auto after =
      std::upper_bound(segments.begin(), segments.end(), at,
                       [](Duration t, const Segment& segment) { return t < segment.offset; });
  return after == segments.begin() ? segments.front() : *std::prev(after);
}

ShareTimeline share_of(const Timeline& timeline, std::size_t agent, Duration from) {
  ShareTimeline share;
  for (const Segment& segment : timeline.segments) {
    if (segment.offset + segment.length <= from) continue;
    if (share.epochs.empty() || share.epochs.back().epoch != segment.epoch)
      share.epochs.push_back(
          {segment.epoch, timeline.epoch(segment.epoch).shares.at(agent).parameters});
    share.segments.push_back(segment);
  }
  return share;
}

Result<Timeline> planned_timeline(const Plan& plan, std::int64_t) {
  Timeline timeline;
  Duration offset{};
  for (std::size_t i = 0; i < plan.phases.size(); ++i) {
    const Phase& phase = plan.phases[i];
    append(timeline, {offset, phase.length, static_cast<std::uint32_t>(i), 0, false},
           divided(plan_parameters(plan, phase.load), plan.agents));
    offset += phase.length;
  }
  return timeline;
}

}  // namespace spate
