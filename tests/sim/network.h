#pragma once

// The streams between agents and controllers, as gRPC gives them: reliable and in order until they
// break; what is under way when one breaks is lost. Nobody is told of a break at once: an end
// learns of it when the other machine says so (reset), or when its own keepalive finds silence.
//
// A link joins one agent's machine to one controller's. Each direction has a delay, jitter, and may
// be blocked (a partition: packets wait for retransmission and come late if it heals in time) or
// clogged (everything queued, then released at once). Nothing is delivered twice and nothing is
// reordered within a stream; a message reaches its end only while that end still has the stream.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>

#include "tests/sim/world.h"

namespace spate::sim {

enum class Direction : std::size_t { to_controller = 0, to_agent = 1 };

struct LinkQuality {
  Duration delay = std::chrono::microseconds(200);
  Duration jitter = std::chrono::microseconds(100);
  Duration per_message{};  // a slow link: how long it takes to put one message on the wire
};

class Network {
 public:
  using LinkId = std::size_t;
  using StreamId = std::uint64_t;  // never reused
  // Ping after 20 s of silence, give up 10 s later.
  static constexpr Duration kKeepalive = std::chrono::seconds(30);
  static constexpr Duration kDialTimeout = std::chrono::seconds(5);

  // What an end hears. Not called any more once that end has closed.
  struct End {
    std::function<void(StreamId stream, const std::string& why)> closed;
  };

  explicit Network(World& world) : world_(world) {}

  LinkId add_link() {
    links_.emplace_back();
    return links_.size() - 1;
  }
  LinkQuality& quality(LinkId link) { return links_[link].quality; }
  void block(LinkId link, Direction direction);
  void unblock(LinkId link, Direction direction);
  bool is_blocked(LinkId link, Direction direction) const {
    return links_[link].lanes[index(direction)].is_blocked;
  }
  // A link that is not slow any more does not keep what it has taken on.
  void hurry(LinkId link);
  bool is_open(LinkId link) const {
    return !is_blocked(link, Direction::to_agent) && !is_blocked(link, Direction::to_controller);
  }
  Duration round_trip(LinkId link) { return delay_of(link) + delay_of(link); }

  StreamId open(LinkId link, End agent, End controller);
  // `deliver` runs at the other end, in the order of sending, unless the stream breaks before.
  void send(StreamId stream, Direction direction, std::function<void()> deliver);
  // One end gives the stream up. What it has sent still arrives, then the other end hears of it.
  void close(StreamId stream, Direction towards);
  // The process or machine at that end is gone. The other end hears at once (the machine still
  // answers with resets) or only by its keepalive.
  void lose_end(StreamId stream, Direction towards, bool is_machine_gone);
  // Nobody listens there, or nothing comes through: the end that dialled hears so after a while.
  void fail_dial(StreamId stream, Duration after, const std::string& why);
  // A middlebox forgets the stream: both ends find out by and by.
  void cut(StreamId stream, Duration agent_notices, Duration controller_notices);
  // A stream of `link` that is open at both ends, or 0.
  StreamId any_stream(LinkId link) const;

 private:
  static std::size_t index(Direction d) { return static_cast<std::size_t>(d); }
  struct Lane {
    bool is_blocked = false;
    Moment blocked_since;
    std::deque<StreamId> waiting;  // one for each message that did not get through yet
  };
  struct Link {
    LinkQuality quality;
    Lane lanes[2];
  };
  struct Stream {
    LinkId link = 0;
    End ends[2];  // by the direction that leads to it
    bool is_open_at[2] = {true, true};
    bool is_dead = false;  // broken in the middle: nothing arrives any more
    Moment last_arrival[2];
    std::deque<std::function<void()>> under_way[2];  // messages, in the order of sending
    std::uint64_t timetable[2] = {};                 // their arrivals are of another one: void
  };

  Duration delay_of(LinkId link);
  void dispatch(StreamId id, Direction direction);
  void arrive(StreamId id, Direction direction);
  void tell_closed(StreamId id, Direction at_end_of, Duration after, const std::string& why);
  void watch_silence(StreamId id);

  World& world_;
  std::deque<Link> links_;  // stay where they are when a machine is added
  std::map<StreamId, Stream> streams_;
  StreamId last_stream_ = 0;
};

}  // namespace spate::sim
