#pragma once

// One connection of a worker: a socket, perhaps TLS, the gRPC driver, and the closed loop of calls
// on it. Lives on its worker's thread and is owned by its WorkerLoop, which says when calls may be
// made.
//
// A connection is bound to one route for the life of its socket, and to one prepared call until the
// epoch has another: it then goes on with that one at its next request, on the same socket if the
// route is the same, else on a new one.
//
// The path of a request, all in one handler run: bytes arrive -> the driver says the call has ended
// -> it is recorded -> the next one is rendered, counted as sent, and written together with
// whatever else the driver has to say -> reading goes on. That is one recv and one send; nothing is
// allocated.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "agent/drivers/http2_grpc.h"
#include "agent/drivers/tls.h"
#include "agent/recorder.h"
#include "agent/timer_queue.h"
#include "common/clock.h"

namespace spate::agent {

class WorkerLoop;

class Connection {
 public:
  enum class State : std::uint8_t {
    unused,       // not wanted: no socket, no timers that matter
    queued,       // waits for its turn to connect
    connecting,   // TCP
    negotiating,  // TLS, then HTTP/2 until the target's SETTINGS
    ready,        // established
    backing_off,  // waits to connect again
  };

  // `slot` is its index in the worker, `number` its cluster-wide number.
  Connection(WorkerLoop& loop, std::uint32_t slot, std::uint64_t number);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  State state() const { return state_; }
  bool has_call() const { return driver_ && driver_->has_call(); }
  bool is_retiring() const { return leaving_ == Leaving::for_good; }
  TimerSlot& timers() { return timers_; }

  // unused -> queued: the loop will connect() it.
  void want();
  void connect();
  // epoll has something to say about the socket of this life.
  void socket_event(std::uint32_t life, std::uint32_t events);
  // The run begins, or goes on after a stretch without calls: the next call is due at `intended`,
  // if none is open and no pause is under way.
  void begin_calls(Instant intended);
  // A timer of this kind fired; it may have fired early.
  void timer_fired(TimerKind kind, Instant now);
  // Its turn among the calls that the owner's cap held back, which came at `opened`. False: there
  // is no call to start.
  bool admitted(Instant opened, Instant now);
  // The pause in effect changed: none may last beyond `until`.
  void shorten_pause(Instant until);
  // No longer wanted: closes now, or after the answer it waits for.
  void retire(Instant now);
  // Still wanted after all.
  void stay() { leaving_ = Leaving::no; }
  // Where calls go may have changed: if it has, a new connection takes this one's place, now, or
  // after the answer it waits for.
  void follow_route(Instant now);
  // The end of the run: first the open call is counted as cancelled, then the socket is closed,
  // which counts as nothing.
  void cut_off(Instant now);
  void close_for_good();

 private:
  // What comes after the open call: the next one, nothing, or a connection to another route.
  enum class Leaving : std::uint8_t { no, for_good, for_another_route };

  // Input. False: the connection is gone.
  bool read(bool until_the_end, Instant now);
  bool take_bytes(const std::uint8_t* data, std::size_t size, Instant now);
  bool take_ciphertext(std::span<const std::uint8_t> bytes, Instant now);
  // Everything that may follow an event: the call's end, the next call, output, the connection's
  // own end.
  bool go_on(Instant now);

  // Calls.
  void call_ended(const CallEnd& end, Instant now);
  void plan_next_call(Instant now);
  void pause_until(Instant wake);
  void start_call(Instant now);
  bool take_call();
  bool has_due_call() const;

  // Output. False: the connection is gone.
  bool flush(Instant now);
  bool send_bytes(std::string_view bytes, Instant now);
  bool writable(Instant now);

  // Life.
  int open_socket();
  void connected(Instant now);
  void negotiated(Instant now);
  void deadline_passed(Instant now);
  void lost(std::uint32_t code, std::string_view why, Instant now);
  void broken(std::string_view why, Instant now);
  void connect_failed(std::uint32_t code, std::string_view why, Instant now);
  bool say_goodbye(Instant now);
  void close_politely(Instant now);
  void leave(Instant now);
  void close_socket();
  void back_off(Instant now);

  WorkerLoop& loop_;
  int fd_ = -1;
  std::shared_ptr<const PreparedCall> call_;  // before the driver, which uses it
  std::optional<GrpcConnection> driver_;
  std::unique_ptr<TlsFilter> tls_;

  RequestTimes times_{};  // of the open call
  Instant deadline_ = kNever;
  Instant wake_ = kNever;
  Instant next_intended_{};
  TimerSlot timers_;
  std::uint64_t number_;
  std::uint64_t calls_in_loop_ = 0;
  std::uint32_t slot_;
  std::uint32_t life_ = 0;  // counts sockets, so that an event of an old one is known
  std::uint32_t attempts_ = 0;
  State state_ = State::unused;
  Leaving leaving_ = Leaving::no;
  bool paused_ = false;
  bool due_ = false;  // a call is to be started as soon as possible, at next_intended_
  bool writing_ = false;

  std::string unsent_;  // what the socket did not take; empty in steady state
};

}  // namespace spate::agent
