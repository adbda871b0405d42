#include "controller/registry.h"

#include <algorithm>

#include "common/units.h"
#include "common/version.h"

namespace spate::controller {
namespace {

std::string wrong_hello(const AgentHello& hello) {
  if (hello.protocol != kProtocolVersion) {
    return "agent " + hello.name + " (version " + hello.version + ") speaks protocol " +
           std::to_string(hello.protocol) + ", this controller (version " + kVersion + ") speaks " +
           std::to_string(kProtocolVersion) + ": install the same version of spate on both";
  }
  if (hello.name.empty()) return "an agent needs a name: give it --name";
  if (hello.name.size() > kMaxAgentName) {
    return "the agent's name is " + std::to_string(hello.name.size()) + " bytes long, at most " +
           std::to_string(kMaxAgentName) + " are allowed: choose a shorter --name";
  }
  // The name travels as request metadata, which is printable ASCII.
  const bool printable = std::all_of(hello.name.begin(), hello.name.end(),
                                     [](char c) { return c >= 0x20 && c <= 0x7e; });
  if (!printable) return "the agent's name may hold printable ASCII only: choose another --name";
  return "";
}

}  // namespace

std::string_view name(AgentState s) {
  switch (s) {
    case AgentState::online:
      return "online";
    case AgentState::suspect:
      return "suspect";
    case AgentState::lost:
      return "lost";
  }
  return "?";
}

Registry::Admission Registry::hello(StreamId stream, const AgentHello& hello, Instant now) {
  Admission result;
  result.refusal = wrong_hello(hello);
  if (!result.refusal.empty()) return result;

  // The incarnation decides, not the name: after " (2)" was added the agent may say either.
  const auto same = std::find_if(agents_.begin(), agents_.end(), [&](const AgentEntry& a) {
    return a.hello.incarnation == hello.incarnation &&
           (a.hello.name == hello.name || a.name == hello.name);
  });
  if (same != agents_.end()) {
    if (same->stream && same->state == AgentState::online && same->hello.peer != hello.peer) {
      result.refusal = "identity used twice: agent " + same->name + " is connected from " +
                       same->hello.peer + " and now also from " + hello.peer +
                       ": restart one of the two";
      return result;
    }
    result.accepted = true;
    result.is_back = true;
    result.name = same->name;
    result.replaced = same->stream;
    same->hello = hello;
    same->stream = stream;
    same->state = AgentState::online;
    same->last_seen = now;
    return result;
  }

  if (live_count() >= kMaxAgents) {
    result.refusal = "this controller serves at most " + std::to_string(kMaxAgents) + " agents";
    return result;
  }

  AgentEntry entry;
  entry.name = hello.name;
  if (AgentEntry* holder = find_name(hello.name)) {
    const bool is_gone = holder->state == AgentState::lost ||
                         (holder->state == AgentState::suspect && holder->hello.host == hello.host);
    if (is_gone) {
      result.restarted = holder->hello.incarnation;
      result.replaced = holder->stream;
      agents_.erase(agents_.begin() + (holder - agents_.data()));
    } else {
      entry.name = free_name(hello.name);
    }
  }
  entry.hello = hello;
  entry.stream = stream;
  entry.last_seen = now;
  result.accepted = true;
  result.name = entry.name;
  const auto place =
      std::lower_bound(agents_.begin(), agents_.end(), entry,
                       [](const AgentEntry& a, const AgentEntry& b) { return a.name < b.name; });
  agents_.insert(place, std::move(entry));
  return result;
}

void Registry::heartbeat(StreamId stream, std::int64_t offset_ns, std::int64_t offset_bound_ns,
                         Instant now) {
  if (AgentEntry* a = find_stream(stream)) {
    a->offset_ns = offset_ns;
    a->offset_bound_ns = offset_bound_ns;
  }
  seen(stream, now);
}

void Registry::seen(StreamId stream, Instant now) {
  AgentEntry* a = find_stream(stream);
  if (a == nullptr || a->state == AgentState::lost) return;
  a->last_seen = now;
  a->state = AgentState::online;
}

void Registry::stream_broke(StreamId stream, Instant now) {
  AgentEntry* a = find_stream(stream);
  if (a == nullptr) return;
  a->stream.reset();
  a->stream_broke_at = now;
  if (a->state == AgentState::online) a->state = AgentState::suspect;
}

std::vector<Registry::Lost> Registry::tick(Instant now) {
  std::vector<Lost> lost;
  for (AgentEntry& a : agents_) {
    if (a.state == AgentState::lost) continue;
    const Duration silent = now - a.last_seen;
    if (!a.stream && now - a.stream_broke_at >= kLostAfter) {
      a.state = AgentState::lost;
      lost.push_back(
          {a.name, a.hello.incarnation,
           "its stream broke and it did not come back within " + format_duration(kLostAfter)});
    } else if (silent >= kLostAfter) {
      a.state = AgentState::lost;
      lost.push_back(
          {a.name, a.hello.incarnation, "no heartbeat for " + format_duration(kLostAfter)});
    } else if (!a.stream || silent >= kSuspectAfter) {
      a.state = AgentState::suspect;
    }
  }
  if (!lost.empty()) forget_oldest_lost();
  return lost;
}

const AgentEntry* Registry::find(const std::string& wanted) const {
  return const_cast<Registry*>(this)->find_name(wanted);
}

const AgentEntry* Registry::find(StreamId stream) const {
  return const_cast<Registry*>(this)->find_stream(stream);
}

AgentEntry* Registry::find_stream(StreamId stream) {
  const auto it = std::find_if(agents_.begin(), agents_.end(),
                               [&](const AgentEntry& a) { return a.stream == stream; });
  return it == agents_.end() ? nullptr : &*it;
}

AgentEntry* Registry::find_name(const std::string& wanted) {
  const auto it = std::find_if(agents_.begin(), agents_.end(),
                               [&](const AgentEntry& a) { return a.name == wanted; });
  return it == agents_.end() ? nullptr : &*it;
}

std::string Registry::free_name(const std::string& wanted) const {
  for (std::uint64_t n = 2;; ++n) {
    std::string candidate = wanted + " (" + std::to_string(n) + ")";
    const AgentEntry* holder = find(candidate);
    if (holder == nullptr) return candidate;
  }
}

std::size_t Registry::live_count() const {
  return static_cast<std::size_t>(
      std::count_if(agents_.begin(), agents_.end(),
                    [](const AgentEntry& a) { return a.state != AgentState::lost; }));
}

void Registry::forget_oldest_lost() {
  while (agents_.size() - live_count() > kMaxLost) {
    auto oldest = agents_.end();
    for (auto it = agents_.begin(); it != agents_.end(); ++it) {
      if (it->state != AgentState::lost || it->stream) continue;
      if (oldest == agents_.end() || it->last_seen < oldest->last_seen) oldest = it;
    }
    if (oldest == agents_.end()) return;
    agents_.erase(oldest);
  }
}

}  // namespace spate::controller
