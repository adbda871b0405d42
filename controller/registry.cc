#include "controller/registry.h"

#include <algorithm>
#include <chrono>
#include <utility>

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

// From one known wall clock to the next; zero if it was slewed, not set.
Duration step_of(std::int64_t& offset_ns, std::int64_t next_ns) {
  if (next_ns == 0) return {};
  const std::int64_t before_ns = std::exchange(offset_ns, next_ns);
  if (before_ns == 0) return {};
  const Duration step(next_ns - before_ns);
  return std::chrono::abs(step) > kClockStep ? step : Duration{};
}

}  // namespace

std::string shown_step(Duration step) {
  const bool is_long = std::chrono::abs(step) >= std::chrono::seconds(10);
  const Duration rounded = is_long ? Duration(std::chrono::round<std::chrono::seconds>(step))
                                   : Duration(std::chrono::round<std::chrono::milliseconds>(step));
  return (step > Duration{} ? "+" : "") + format_duration(rounded);
}

std::string note_of(const AgentEntry& entry) {
  std::string note = entry.trouble;
  if (entry.clock_off != Duration{}) {
    note += (note.empty() ? "" : "; ") +
            std::string("wall clock differs from the controller's by ") +
            shown_step(entry.clock_off);
  }
  return note;
}

std::string_view name(AgentState s) {
  switch (s) {
    case AgentState::online:
      return "online";
    case AgentState::suspect:
      return "suspect";
    case AgentState::lost:
      return "lost";
    case AgentState::held:
      return "held";
  }
  return "?";
}

Registry::Admission Registry::hello(StreamId stream, const AgentHello& hello, Instant now,
                                    const Reserved& reserved, const std::string& stranger) {
  Admission result;
  result.refusal = wrong_hello(hello);
  if (!result.refusal.empty()) return result;
  AgentEntry* same = find_same(hello);
  if (!stranger.empty()) return hold(same, hello, stranger);
  if (same != nullptr) return hello_again(*same, stream, hello, now, reserved);
  if (live_count() >= kMaxAgents) {
    result.refusal = "this controller serves at most " + std::to_string(kMaxAgents) + " agents";
    return result;
  }

  AgentEntry entry;
  entry.id = hello.agent_id.empty() ? hello.name + "#" + std::to_string(hello.incarnation)
                                    : hello.agent_id;
  if (AgentEntry* holder = find_name(hello.name)) {
    const bool is_gone = holder->state == AgentState::lost ||
                         (holder->state == AgentState::suspect && holder->hello.host == hello.host);
    const bool is_same = hello.agent_id.empty() && holder->hello.agent_id.empty();
    if (is_gone && is_same) {
      result.restarted = holder->hello.incarnation;
      result.replaced = holder->stream;
    }
    // A name that a run knows the holder by stays the holder's.
    if (result.restarted || (holder->state == AgentState::lost && !reserved.contains(hello.name)))
      agents_.erase(agents_.begin() + (holder - agents_.data()));
  }
  entry.name = free_name(entry.id, hello.name, reserved);
  entry.hello = hello;
  entry.stream = stream;
  entry.last_seen = now;
  result.accepted = true;
  result.name = entry.name;
  agents_.push_back(std::move(entry));
  sort();
  return result;
}

Registry::Admission Registry::hello_again(AgentEntry& entry, StreamId stream,
                                          const AgentHello& hello, Instant now,
                                          const Reserved& reserved) {
  Admission result;
  const bool is_other_process =
      hello.nonce != entry.hello.nonce || (hello.nonce == 0 && entry.state == AgentState::online &&
                                           entry.stream && entry.hello.peer != hello.peer);
  if (hello.incarnation == entry.hello.incarnation &&
      (is_other_process || entry.state == AgentState::held))
    return hold(&entry, hello,
                "it runs in two processes with the same state folder or copies of one; both are "
                "held");
  if (hello.incarnation < entry.hello.incarnation) {
    result.refusal = "agent " + entry.name + " at " + hello.peer + " is start " +
                     std::to_string(hello.incarnation) + " of its state folder, start " +
                     std::to_string(entry.hello.incarnation) + " was seen at " + entry.hello.peer +
                     ": it runs from an old copy of the folder; give it an empty one (--state), or "
                     "remove the copy";
    return result;
  }
  result.accepted = true;
  result.is_back = hello.incarnation == entry.hello.incarnation;
  if (!result.is_back) {
    result.restarted = entry.hello.incarnation;
    entry.wall_clock_offset_ns = 0;  // its machine may have been restarted, too
    entry.clock_off = {};
    entry.trouble.clear();
  }
  result.replaced = entry.stream;
  rename(entry, hello.name, reserved);
  result.name = entry.name;
  entry.hello = hello;
  entry.stream = stream;
  entry.state = AgentState::online;
  entry.held_because.clear();
  entry.last_seen = now;
  sort();
  return result;
}

// `entry`: the other one, as far as it is known.
Registry::Admission Registry::hold(AgentEntry* entry, const AgentHello& hello,
                                   const std::string& why) {
  Admission result;
  result.name = entry == nullptr ? hello.name : entry->name;
  const bool is_held = entry != nullptr && entry->state == AgentState::held;
  result.is_copied = entry != nullptr && !is_held;
  if (is_held) {
    result.refusal = entry->held_because;
    return result;
  }
  std::string where = hello.peer;
  if (entry != nullptr && entry->hello.peer != where) where = entry->hello.peer + ", " + where;
  result.refusal = "identity used twice: agent " + result.name + " (" + where + "): " + why +
                   ". Give one of them an empty folder (--state), then restart both";
  if (entry == nullptr) return result;
  entry->held_because = result.refusal;
  entry->state = AgentState::held;
  result.replaced = std::exchange(entry->stream, std::nullopt);
  return result;
}

// An agent keeps the name that a run knows it by, whatever it calls itself now.
void Registry::rename(AgentEntry& entry, const std::string& wanted, const Reserved& reserved) {
  const bool is_known = std::any_of(reserved.begin(), reserved.end(),
                                    [&](const auto& r) { return r.second == entry.id; });
  if (is_known || entry.hello.name == wanted || entry.name == wanted) return;
  entry.name = free_name(entry.id, wanted, reserved);
}

Registry::News Registry::heartbeat(StreamId stream, const AgentHeartbeat& heartbeat, Instant now) {
  seen(stream, now);
  AgentEntry* a = find_stream(stream);
  if (a == nullptr) return {};
  a->offset_ns = heartbeat.offset_ns;
  a->offset_bound_ns = heartbeat.offset_bound_ns;
  News news;
  news.is_trouble_new = std::exchange(a->trouble, heartbeat.trouble) != heartbeat.trouble;
  news.clock_step = step_of(a->wall_clock_offset_ns, heartbeat.wall_clock_offset_ns);
  const bool was_off = a->clock_off != Duration{};
  judge_clock(*a);
  // A step says itself where the clock is now.
  const bool is_off = a->clock_off != Duration{};
  news.is_clock_off_new = was_off != is_off && news.clock_step == Duration{};
  return news;
}

// The agents' clocks are where they were, so what a step here changes is not told of each of them.
Duration Registry::wall_clock(std::int64_t offset_ns) {
  const Duration step = step_of(wall_clock_offset_ns_, offset_ns);
  if (step != Duration{})
    for (AgentEntry& entry : agents_) judge_clock(entry);
  return step;
}

// Nothing is said of a difference that may be the error of its measurement, and as little of one
// that comes and goes around the limit.
void Registry::judge_clock(AgentEntry& entry) const {
  const bool is_known =
      wall_clock_offset_ns_ != 0 && entry.wall_clock_offset_ns != 0 && entry.offset_bound_ns >= 0;
  if (!is_known) return;
  const Duration lead(entry.wall_clock_offset_ns - entry.offset_ns - wall_clock_offset_ns_);
  const Duration limit = entry.clock_off == Duration{} ? kClockOff : kClockOff / 2;
  const bool is_off = std::chrono::abs(lead) > limit + Duration(entry.offset_bound_ns);
  entry.clock_off = is_off ? lead : Duration{};
}

void Registry::seen(StreamId stream, Instant now) {
  AgentEntry* a = find_stream(stream);
  if (a == nullptr || a->state == AgentState::lost || a->state == AgentState::held) return;
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
    if (a.state == AgentState::lost || a.state == AgentState::held) continue;
    const Duration silent = now - a.last_seen;
    if (!a.stream && now - a.stream_broke_at >= kLostAfter) {
      a.state = AgentState::lost;
      lost.push_back(
          {a.name, a.id, a.hello.incarnation,
           "its stream broke and it did not come back within " + format_duration(kLostAfter)});
    } else if (silent >= kLostAfter) {
      a.state = AgentState::lost;
      lost.push_back(
          {a.name, a.id, a.hello.incarnation, "no heartbeat for " + format_duration(kLostAfter)});
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

const AgentEntry* Registry::find_id(const std::string& id) const {
  const auto it =
      std::find_if(agents_.begin(), agents_.end(), [&](const AgentEntry& a) { return a.id == id; });
  return it == agents_.end() ? nullptr : &*it;
}

// An agent without an id may call itself by either name after " (2)" was added.
AgentEntry* Registry::find_same(const AgentHello& hello) {
  const auto it = std::find_if(agents_.begin(), agents_.end(), [&](const AgentEntry& a) {
    if (!hello.agent_id.empty()) return a.id == hello.agent_id;
    return a.hello.agent_id.empty() && a.hello.incarnation == hello.incarnation &&
           (a.hello.name == hello.name || a.name == hello.name);
  });
  return it == agents_.end() ? nullptr : &*it;
}

std::string Registry::free_name(const std::string& id, const std::string& wanted,
                                const Reserved& reserved) const {
  // The one that a run knows it by comes before the one it gives itself.
  for (const auto& [name, owner] : reserved) {
    if (owner == id) return name;
  }
  std::string candidate = wanted;
  for (std::uint64_t n = 2;; ++n) {
    const AgentEntry* holder = find(candidate);
    const bool is_free = (holder == nullptr || holder->id == id) && !reserved.contains(candidate);
    if (is_free) return candidate;
    candidate = wanted + " (" + std::to_string(n) + ")";
  }
}

void Registry::sort() {
  std::sort(agents_.begin(), agents_.end(),
            [](const AgentEntry& a, const AgentEntry& b) { return a.name < b.name; });
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
