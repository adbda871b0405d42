// What changes make of a planned timeline; the rest of timeline.h is timeline.cc.

#include <algorithm>
#include <set>

#include "common/shares.h"
#include "common/timeline.h"

namespace spate {
namespace {

// `shares` with `part` on them; its connections are divided among the agents it is for.
void patch_shares(std::vector<AgentShare>& shares, const Change::Part& part) {
  std::vector<std::uint32_t> agents = part.agents;
  if (agents.empty()) {
    for (std::uint32_t i = 0; i < shares.size(); ++i) agents.push_back(i);
  }
  std::vector<std::uint64_t> connections;
  if (part.patch.connections) connections = divide_equally(*part.patch.connections, agents.size());
  for (std::size_t i = 0; i < agents.size(); ++i) {
    Parameters& parameters = shares.at(agents[i]).parameters;
    parameters = patched(std::move(parameters), part.patch);
    if (!connections.empty()) parameters.load.connections = connections[i];
  }
}

void move_shares(std::vector<AgentShare>& shares, const std::vector<std::uint32_t>& absent) {
  const std::set<std::uint32_t> away(absent.begin(), absent.end());
  if (away.empty() || away.size() >= shares.size()) return;
  std::uint64_t moved = 0;
  for (const std::uint32_t i : away)
    moved += std::exchange(shares.at(i).parameters.load.connections, 0);
  const auto parts = divide_equally(moved, shares.size() - away.size());
  std::size_t next = 0;
  for (std::uint32_t i = 0; i < shares.size(); ++i) {
    if (!away.contains(i)) shares[i].parameters.load.connections += parts[next++];
  }
}

// In the order in which they count: by their instant, then as they were accepted.
std::vector<const Change*> in_order(std::span<const Change> accepted) {
  std::vector<const Change*> order;
  for (const Change& change : accepted) order.push_back(&change);
  std::stable_sort(order.begin(), order.end(),
                   [](const Change* a, const Change* b) { return a->at < b->at; });
  return order;
}

std::vector<AgentShare> shares_at(Duration at, std::vector<AgentShare> shares,
                                  const std::vector<const Change*>& order) {
  const std::vector<std::uint32_t>* absent = nullptr;
  for (const Change* change : order) {
    if (change->at > at) break;
    for (const Change::Part& part : change->parts) patch_shares(shares, part);
    if (change->absent) absent = &*change->absent;
  }
  if (absent != nullptr) move_shares(shares, *absent);
  return shares;
}

Timeline until(const Timeline& timeline, Duration at) {
  Timeline before;
  for (const Segment& segment : timeline.segments) {
    if (segment.offset >= at) break;
    before.segments.push_back(segment);
    before.segments.back().length = std::min(segment.length, at - segment.offset);
    if (before.epochs.empty() || before.last_epoch() != segment.epoch)
      before.epochs.push_back(timeline.epoch(segment.epoch));
  }
  return before;
}

// Where changes and their guard bands begin and end, ascending.
std::vector<Duration> borders_of(const std::vector<const Change*>& order) {
  std::vector<Duration> borders;
  for (const Change* change : order) {
    borders.push_back(change->at);
    borders.push_back(change->at + change->guard);
  }
  std::sort(borders.begin(), borders.end());
  return borders;
}

bool is_guarded(Duration at, const std::vector<const Change*>& order) {
  return std::any_of(order.begin(), order.end(), [&](const Change* change) {
    return change->at <= at && at < change->at + change->guard;
  });
}

// The planned segments from `at` on, split where a change or its guard band begins or ends; with
// their planned epochs.
std::vector<Segment> pieces_from(const Timeline& planned, Duration at,
                                 const std::vector<const Change*>& order) {
  const std::vector<Duration> borders = borders_of(order);
  std::vector<Segment> pieces;
  for (Segment rest : planned.segments) {
    const Duration end = rest.offset + rest.length;
    if (end <= at) continue;
    rest.offset = std::max(rest.offset, at);
    const bool is_planned_guard = rest.guard;
    const auto add_until = [&](Duration to) {
      rest.length = to - rest.offset;
      rest.guard = is_planned_guard || is_guarded(rest.offset, order);
      pieces.push_back(rest);
      rest.offset = to;
    };
    for (const Duration border : borders)
      if (border > rest.offset && border < end) add_until(border);
    add_until(end);
  }
  return pieces;
}

}  // namespace

Duration default_guard(const Change& change, Duration rotation_guard) {
  const bool reconnects =
      change.absent || std::any_of(change.parts.begin(), change.parts.end(), [](const auto& part) {
        return part.patch.connections || part.patch.target_url || part.patch.threads;
      });
  if (!reconnects) return Duration::zero();
  return rotation_guard > Duration::zero() ? rotation_guard : kChangeGuard;
}

Timeline with_last_change(const Timeline& planned, const Timeline& current,
                          std::span<const Change> accepted) {
  const Change& last = accepted.back();
  const auto order = in_order(accepted);
  Timeline changed = until(current, last.at);
  std::uint32_t next = last.epoch;
  for (Segment piece : pieces_from(planned, last.at, order)) {
    std::vector<AgentShare> shares =
        shares_at(piece.offset, planned.epoch(piece.epoch).shares, order);
    if (next == last.epoch || changed.epochs.back().shares != shares)
      changed.epochs.push_back({next++, std::move(shares)});
    piece.epoch = changed.last_epoch();
    changed.segments.push_back(piece);
  }
  return changed;
}

Timeline changed_timeline(const Timeline& planned, std::span<const Change> accepted) {
  Timeline timeline = planned;
  for (std::size_t count = 1; count <= accepted.size(); ++count)
    timeline = with_last_change(planned, timeline, accepted.first(count));
  return timeline;
}

}  // namespace spate
