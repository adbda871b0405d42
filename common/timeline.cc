#include "common/timeline.h"

#include <algorithm>

#include "common/check.h"
#include "common/rotation.h"
#include "common/shares.h"
#include "common/units.h"

namespace spate {
namespace {

constexpr std::size_t kMaxTimelineBytes = 128 << 20;

Parameters plan_parameters(const Plan& plan, const Load& load) {
  Parameters p;
  p.target_url = plan.target.url;
  p.call = plan.call;
  p.load = load;
  p.threads = plan.threads;
  return p;
}

// Who has what in a period of the rotation, or all along without one. The connections of a set are
// the cluster's; each agent that holds it has its part of them.
std::vector<AgentShare> divided(const Plan& plan, const Phase& phase, std::size_t period) {
  const Parameters total = plan_parameters(plan, phase.load);
  std::vector<AgentShare> shares(plan.agents, AgentShare{kNoSet, total});
  for (std::size_t i = 0; i < shares.size(); ++i) {
    Parameters& own = shares[i].parameters;
    if (plan.rotation) {
      const std::size_t set = set_in_period(*plan.rotation, i, period);
      shares[i].set = static_cast<std::uint32_t>(set);
      own = patched(total, plan.rotation->sets[set].patch);
    }
    own.load.connections = equal_part(own.load.connections, plan.agents, i);
  }
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

// Why a timeline that has grown by a segment is too large to keep, and to send; "" if it is not.
std::string objection_to_size(const Timeline& timeline, std::size_t bytes_of_epochs) {
  if (timeline.segments.size() > kMaxSegments)
    return "phases and rotation make more than " + std::to_string(kMaxSegments) +
           " stretches of time; make them longer";
  if (bytes_of_epochs > kMaxTimelineBytes)
    return "the parameters of " + std::to_string(timeline.epochs.size()) +
           " and more epochs are larger than " + format_size(kMaxTimelineBytes) +
           " together; make the rotation's `every` longer, or write long messages with "
           "{{text 14000}}";
  return "";
}

std::size_t bytes_of(const Epoch& epoch) {
  std::size_t bytes = 0;
  for (const AgentShare& share : epoch.shares)
    bytes += sizeof share + share.parameters.call.message_json.size();
  return bytes;
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

Result<Timeline> planned_timeline(const Plan& plan, std::int64_t start_wall_ms) {
  std::vector<Duration> changes;
  if (plan.rotation) {
    auto offsets = change_overs(*plan.rotation, plan.length(), start_wall_ms);
    if (!offsets) return offsets.error();
    changes = *std::move(offsets);
  }
  const Duration guard = plan.rotation ? plan.rotation->guard : Duration::zero();
  std::size_t bytes = 0;
  Timeline timeline;
  std::size_t period = 0;
  Duration at{};
  Duration phase_end{};
  for (std::uint32_t phase = 0; phase < plan.phases.size(); ++phase) {
    phase_end += plan.phases[phase].length;
    while (at < phase_end) {
      while (period < changes.size() && changes[period] <= at) ++period;
      const Duration guard_end = period == 0 ? Duration::zero() : changes[period - 1] + guard;
      Duration end = phase_end;
      if (period < changes.size()) end = std::min(end, changes[period]);
      const bool guarded = at < guard_end;
      if (guarded) end = std::min(end, guard_end);
      const std::size_t epochs = timeline.epochs.size();
      append(timeline, {at, end - at, phase, 0, guarded},
             divided(plan, plan.phases[phase], period));
      if (timeline.epochs.size() != epochs) bytes += bytes_of(timeline.epochs.back());
      if (const std::string objection = objection_to_size(timeline, bytes); !objection.empty())
        return invalid(objection);
      at = end;
    }
  }
  return timeline;
}

}  // namespace spate
