#include "proto/timeline_wire.h"

#include <algorithm>

#include "proto/agent.pb.h"

namespace spate::wire {
namespace {

namespace pb = agent::v1;

void put(const Call& call, pb::CallSpec& out) {
  out.set_method(call.method);
  out.set_message_json(call.message_json);
  out.set_timeout_ns(call.timeout.count());
  out.set_compress(call.compress);
  for (const auto& [key, value] : call.metadata) {
    auto& metadata = *out.add_metadata();
    metadata.set_key(key);
    metadata.set_value(value);
  }
}

Call call_from(const pb::CallSpec& m) {
  Call call;
  call.method = m.method();
  call.message_json = m.message_json();
  call.timeout = Duration(m.timeout_ns());
  call.compress = m.compress();
  for (const auto& metadata : m.metadata())
    call.metadata.emplace_back(metadata.key(), metadata.value());
  return call;
}

// What an agent is told of a call; the files it came from are the client's.
Call without_files(Call call) {
  call.proto.clear();
  call.descriptor_set.clear();
  return call;
}

}  // namespace

void encode(const ShareTimeline& timeline, pb::ShareTimeline& out) {
  std::vector<Call> calls;  // few: sets of a rotation, changes
  for (const EpochShare& e : timeline.epochs) {
    const Parameters& p = e.parameters;
    const Call call = without_files(p.call);
    auto known = std::find(calls.begin(), calls.end(), call);
    if (known == calls.end()) {
      put(call, *out.add_calls());
      known = calls.insert(calls.end(), call);
    }
    auto& epoch = *out.add_epochs();
    epoch.set_epoch(e.epoch);
    epoch.set_target_url(p.target_url);
    epoch.set_call(static_cast<std::uint32_t>(known - calls.begin()));
    epoch.set_connections(p.load.connections);
    epoch.set_calls_per_loop(p.load.calls_per_loop);
    epoch.set_pause_ns(p.load.pause.count());
    epoch.set_threads(p.threads);
    epoch.set_paused(p.paused);
  }
  for (const Segment& s : timeline.segments) {
    auto& segment = *out.add_segments();
    segment.set_offset_ns(s.offset.count());
    segment.set_length_ns(s.length.count());
    segment.set_phase(s.phase);
    segment.set_epoch(s.epoch);
    segment.set_guard(s.guard);
  }
}

Result<ShareTimeline> decode(const pb::ShareTimeline& message) {
  ShareTimeline timeline;
  for (const auto& e : message.epochs()) {
    if (e.call() >= static_cast<std::uint32_t>(message.calls_size()))
      return invalid("timeline: epoch " + std::to_string(e.epoch()) +
                     " names a call that is not there");
    EpochShare share;
    share.epoch = e.epoch();
    Parameters& p = share.parameters;
    p.target_url = e.target_url();
    p.call = call_from(message.calls(static_cast<int>(e.call())));
    p.load = {e.connections(), e.calls_per_loop(), Duration(e.pause_ns())};
    p.threads = e.threads();
    p.paused = e.paused();
    timeline.epochs.push_back(std::move(share));
  }
  for (const auto& s : message.segments()) {
    timeline.segments.push_back(
        {Duration(s.offset_ns()), Duration(s.length_ns()), s.phase(), s.epoch(), s.guard()});
  }
  return timeline;
}

}  // namespace spate::wire
