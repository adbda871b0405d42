#include "tests/sim/network.h"

#include <algorithm>
#include <utility>

namespace spate::sim {

using namespace std::chrono_literals;

Duration Network::delay_of(LinkId link) {
  const LinkQuality& q = links_[link].quality;
  return q.delay + world_.between(Duration::zero(), q.jitter);
}

void Network::block(LinkId link, Direction direction) {
  Lane& lane = links_[link].lanes[index(direction)];
  if (lane.is_blocked) return;
  lane.is_blocked = true;
  lane.blocked_since = world_.now();
  // Both ends' keepalives need both directions.
  for (const auto& [id, stream] : streams_)
    if (stream.link == link) watch_silence(id);
}

void Network::unblock(LinkId link, Direction direction) {
  Lane& lane = links_[link].lanes[index(direction)];
  lane.is_blocked = false;
  for (const StreamId stream : std::exchange(lane.waiting, {})) dispatch(stream, direction);
}

void Network::watch_silence(StreamId id) {
  const auto check = [this, id, began = world_.now()] {
    const auto it = streams_.find(id);
    if (it == streams_.end()) return;
    for (const Lane& lane : links_[it->second.link].lanes) {
      if (!lane.is_blocked || lane.blocked_since > began) continue;
      it->second.is_dead = true;
      tell_closed(id, Direction::to_agent, world_.between(0s, 5s), "keepalive timeout");
      tell_closed(id, Direction::to_controller, world_.between(0s, 5s), "keepalive timeout");
      return;
    }
  };
  world_.after(kKeepalive, check);
}

Network::StreamId Network::open(LinkId link, End agent, End controller) {
  const StreamId id = ++last_stream_;
  Stream& stream = streams_[id];
  stream.link = link;
  stream.ends[index(Direction::to_agent)] = std::move(agent);
  stream.ends[index(Direction::to_controller)] = std::move(controller);
  return id;
}

void Network::send(StreamId id, Direction direction, std::function<void()> deliver) {
  const auto it = streams_.find(id);
  if (it == streams_.end() || it->second.is_dead) return;
  it->second.under_way[index(direction)].push_back(std::move(deliver));
  Lane& lane = links_[it->second.link].lanes[index(direction)];
  if (lane.is_blocked)
    lane.waiting.push_back(id);
  else
    dispatch(id, direction);
}

void Network::dispatch(StreamId id, Direction direction) {
  const auto it = streams_.find(id);
  if (it == streams_.end()) return;
  Moment& last = it->second.last_arrival[index(direction)];
  const LinkQuality& quality = links_[it->second.link].quality;
  last = std::max(world_.now() + delay_of(it->second.link), last + quality.per_message);
  world_.at(last, [this, id, direction, timetable = it->second.timetable[index(direction)]] {
    const auto found = streams_.find(id);
    if (found != streams_.end() && found->second.timetable[index(direction)] == timetable)
      arrive(id, direction);
  });
}

void Network::hurry(LinkId link) {
  for (const Direction direction : {Direction::to_controller, Direction::to_agent}) {
    if (is_blocked(link, direction)) continue;  // all of it is going to wait, or does
    for (auto& [id, stream] : streams_) {
      if (stream.link != link) continue;
      ++stream.timetable[index(direction)];
      stream.last_arrival[index(direction)] = world_.now();
      for (std::size_t n = stream.under_way[index(direction)].size(); n > 0; --n)
        dispatch(id, direction);
    }
  }
}

// Whichever packet comes, it is the oldest message that it completes.
void Network::arrive(StreamId id, Direction direction) {
  const auto it = streams_.find(id);
  if (it == streams_.end()) return;
  Stream& stream = it->second;
  if (stream.is_dead || !stream.is_open_at[index(direction)]) return;
  Lane& lane = links_[stream.link].lanes[index(direction)];
  if (lane.is_blocked) {
    lane.waiting.push_back(id);
    return;
  }
  const auto deliver = std::move(stream.under_way[index(direction)].front());
  stream.under_way[index(direction)].pop_front();
  deliver();
}

void Network::close(StreamId id, Direction towards) {
  const auto it = streams_.find(id);
  if (it == streams_.end()) return;
  const Direction self =
      towards == Direction::to_agent ? Direction::to_controller : Direction::to_agent;
  it->second.is_open_at[index(self)] = false;
  // Its last word: follows all that was sent before it.
  send(id, towards, [this, id, towards] { tell_closed(id, towards, 0s, "the other end closed"); });
}

void Network::lose_end(StreamId id, Direction towards, bool is_machine_gone) {
  const auto it = streams_.find(id);
  if (it == streams_.end()) return;
  const Direction self =
      towards == Direction::to_agent ? Direction::to_controller : Direction::to_agent;
  it->second.is_open_at[index(self)] = false;
  if (is_machine_gone || links_[it->second.link].lanes[index(towards)].is_blocked) {
    it->second.is_dead = true;
    tell_closed(id, towards, kKeepalive + world_.between(0s, 5s), "keepalive timeout");
  } else {
    // What was written before the kill is in the socket and still arrives, or is lost with a reset.
    if (world_.chance(0.5)) it->second.is_dead = true;
    tell_closed(id, towards, delay_of(it->second.link) + 1ms, "connection reset");
  }
}

void Network::fail_dial(StreamId id, Duration after, const std::string& why) {
  const auto it = streams_.find(id);
  if (it == streams_.end()) return;  // cut meanwhile, and its dialler was stopped
  it->second.is_dead = true;
  it->second.is_open_at[index(Direction::to_controller)] = false;
  tell_closed(id, Direction::to_agent, after, why);
}

void Network::cut(StreamId id, Duration agent_notices, Duration controller_notices) {
  const auto it = streams_.find(id);
  if (it == streams_.end()) return;
  it->second.is_dead = true;
  tell_closed(id, Direction::to_agent, agent_notices, "connection reset");
  tell_closed(id, Direction::to_controller, controller_notices, "connection reset");
}

void Network::tell_closed(StreamId id, Direction at_end_of, Duration after,
                          const std::string& why) {
  world_.after(after, [this, id, at_end_of, why] {
    const auto it = streams_.find(id);
    if (it == streams_.end() || !it->second.is_open_at[index(at_end_of)]) return;
    it->second.is_open_at[index(at_end_of)] = false;
    const auto closed = it->second.ends[index(at_end_of)].closed;
    const bool is_over = !it->second.is_open_at[0] && !it->second.is_open_at[1];
    if (is_over) streams_.erase(it);
    closed(id, why);
  });
}

Network::StreamId Network::any_stream(LinkId link) const {
  for (const auto& [id, stream] : streams_)
    if (stream.link == link && !stream.is_dead && stream.is_open_at[0] && stream.is_open_at[1])
      return id;
  return 0;
}

}  // namespace spate::sim
