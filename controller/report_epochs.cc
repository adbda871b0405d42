// When a run's epochs began, and why.

#include <algorithm>

#include "controller/report_formats.h"

namespace spate::controller::report {
namespace {

const Change* change_at(const RunInfo& info, Duration at) {
  const auto found = std::find_if(info.changes.rbegin(), info.changes.rend(),
                                  [&](const Change& c) { return c.at == at; });
  return found == info.changes.rend() ? nullptr : &*found;
}

bool sets_differ(const Epoch& a, const Epoch& b) {
  return !std::equal(a.shares.begin(), a.shares.end(), b.shares.begin(), b.shares.end(),
                     [](const AgentShare& x, const AgentShare& y) { return x.set == y.set; });
}

std::string reason_of(const RunInfo& info, const spate::Timeline& timeline, const Segment& before,
                      const Segment& now) {
  if (const Change* change = change_at(info, now.offset)) {
    std::string text = change->what;
    if (!change->who.empty()) text += ", by " + change->who;
    if (!change->reason.empty()) text += ": " + change->reason;
    return text;
  }
  if (sets_differ(timeline.epoch(before.epoch), timeline.epoch(now.epoch))) return "rotation";
  if (now.phase < info.plan.phases.size()) return "phase " + info.plan.phases[now.phase].name;
  return "";
}

}  // namespace

EpochHistory epoch_history(const Aggregate& run) {
  EpochHistory history;
  const RunInfo& info = run.info();
  const auto timeline = timeline_of(info);
  if (!timeline) return history;
  const Duration end = run.end();
  const Segment* before = nullptr;
  for (const Segment& segment : timeline->segments) {
    if (segment.offset >= end) break;
    const Duration stop = std::min(end, segment.offset + segment.length);
    if (segment.guard) {
      if (!history.guards.empty() && history.guards.back().second == segment.offset)
        history.guards.back().second = stop;
      else
        history.guards.emplace_back(segment.offset, stop);
    }
    if (before == nullptr) {
      history.epochs.push_back({segment.epoch, 0, segment.offset, stop, "start"});
    } else if (before->epoch != segment.epoch) {
      history.epochs.push_back({segment.epoch, before->epoch, segment.offset, stop,
                                reason_of(info, *timeline, *before, segment)});
    }
    history.epochs.back().to = stop;
    before = &segment;
  }
  return history;
}

}  // namespace spate::controller::report
