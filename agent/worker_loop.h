#pragma once

// Everything of a worker that runs on its thread: the loop, the connections, the segments and
// intervals. worker.h is the outside view. All functions here are called on the worker's thread,
// but for run(), and for order() and lease(), which any thread may call.

#include <atomic>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/basic_stream_descriptor.hpp>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "agent/assignment.h"
#include "agent/connection.h"
#include "agent/drivers/gzip.h"
#include "agent/drivers/http2_grpc.h"
#include "agent/rate_cap.h"
#include "agent/recorder.h"
#include "agent/timer_queue.h"
#include "agent/worker.h"
#include "common/random.h"

namespace spate::agent {

class WorkerLoop {
 public:
  // Connects, handshakes included, that an agent has under way at once; divided among its workers.
  // More would not be faster, and on a PC with few cores each TLS handshake would wait for all
  // others.
  static constexpr std::size_t kMaxConnecting = 64;

  WorkerLoop(std::uint32_t index, std::shared_ptr<const Assignment> assignment,
             WorkerCallbacks callbacks, std::shared_ptr<SlotRing> ring = nullptr);
  ~WorkerLoop();
  WorkerLoop(const WorkerLoop&) = delete;
  WorkerLoop& operator=(const WorkerLoop&) = delete;

  boost::asio::io_context& io() { return io_; }
  void run();        // the thread
  void shut_down();  // ends run(); from any thread by post

  // Left here, and heeded at the next border or at heed(), whichever comes first: so a worker that
  // was asleep cannot walk past a change or the end of its lease before it hears of it.
  void order(std::shared_ptr<const Assignment> next, Instant at);
  void lease(Instant end) { leased_until_.store(end, std::memory_order_release); }
  void heed();

  void open();
  void start_at(Instant t0, Instant begin);
  void join(std::shared_ptr<const Assignment> assignment, Instant t0, Instant begin);
  void stop(Instant at, Duration drain);
  void set_drain(Duration drain);

  // ---- what connections use

  // The clock, read once per event. Closes every interval that has ended by now, so that whatever
  // is counted after it belongs to the interval of its time stamp, and ends the lease that has.
  Instant tick() {
    const Instant now = BootClock::now();
    if (now >= next_border_) [[unlikely]]
      cross_borders(now);
    return now;
  }

  // Of the epoch in effect.
  const Load& load() const { return load_; }  // this worker's part
  const std::shared_ptr<const PreparedCall>& call() const { return call_; }
  Recorder& recorder() { return recorder_; }
  GrpcEngine& engine() { return engine_; }
  Random& random() { return random_; }
  bool may_call() const { return may_call_; }
  // Whether this connection's call may start now as far as the agent's owner is concerned. If not,
  // the connection is in line, and admitted() when it is its turn.
  bool lets_through(std::uint32_t slot, Instant now) {
    return !cap_.is_set() || takes_or_waits(slot, now);
  }
  bool wants_connections() const { return state_ <= State::running; }

  // The body of the next request for connection `number`; valid until the next call of this, or as
  // long as the prepared call if that is constant.
  std::string_view render(std::uint64_t number) {
    return call_->framed.empty() ? render_anew(number) : std::string_view(call_->framed);
  }

  void schedule(std::uint32_t slot, TimerKind kind, Instant at, TimerSlot& timers);
  void request_sent(Instant now) {
    if (!first_request_seen_) [[unlikely]]
      first_request(now);
  }
  void call_finished(Instant now) {
    if (state_ == State::draining && recorder_.in_flight() == 0) [[unlikely]]
      end_soon(now);
  }
  void connect_failed(std::uint32_t code, std::string_view text);
  // A connection attempt came to its end, well or badly.
  void attempt_ended(std::uint32_t slot);
  void enqueue(std::uint32_t slot);
  // Events of `fd` go to the connection in `slot` from now on, until it is closed. 0, or an errno.
  int watch(int fd, std::uint32_t slot, std::uint32_t life);

  // Worker-wide scratch space, for one handler run at a time.
  std::string& out() { return out_; }
  std::string& cipher() { return cipher_; }
  std::string& plain() { return plain_; }
  static constexpr std::size_t kScratchBytes = 64 * 1024;
  std::uint8_t* scratch() { return scratch_.get(); }

 private:
  enum class State : std::uint8_t { created, opening, running, draining, done };
  using Timer = boost::asio::basic_waitable_timer<BootClock, boost::asio::wait_traits<BootClock>,
                                                  boost::asio::io_context::executor_type>;
  using Descriptor =
      boost::asio::posix::basic_stream_descriptor<boost::asio::io_context::executor_type>;

  struct Change {
    std::shared_ptr<const Assignment> assignment;
    Instant at;
  };

  void begin();
  void cross_borders(Instant now);
  void cross(Instant border);
  void next_interval(Instant border);
  void enter(std::size_t segment, Instant at);
  void refit(Instant border);
  void begin_drain(Instant at);
  void end_soon(Instant at);
  void end(Instant at);
  void end_before_start();
  void set_interval_end(Instant from);
  void set_next_border();

  void take_orders();
  Instant cut_at(Instant at) const;
  void take_change(Change change);
  bool make_changes(Instant border);
  void take_lease(Instant now);
  void allow_calls(Instant at);

  void fit_connections(Instant now);
  void grow(std::uint64_t wanted);
  void shrink(std::uint64_t surplus, Instant now);
  std::uint64_t number_of(std::uint32_t slot) const;
  std::string_view render_anew(std::uint64_t number);
  bool takes_or_waits(std::uint32_t slot, Instant now);
  Instant line_moves() const { return line_.empty() ? kNever : cap_.opens(); }
  void move_line(Instant now);
  void connect_more();
  void report_opening();
  void first_request(Instant now);
  IntervalLabel label() const;

  void wait_for_sockets();
  void sockets_ready();
  void arm_timer();
  void timer_fired();

  const std::uint32_t index_;
  const WorkerCallbacks callbacks_;

  // The timeline: what is in effect, and what is to come.
  std::shared_ptr<const Assignment> assignment_;
  std::vector<Change> changes_;  // ascending
  std::size_t segment_ = 0;      // of assignment_
  std::shared_ptr<const PreparedCall> call_;
  Load load_;  // this worker's part of its epoch's
  std::uint32_t epoch_ = 0;
  std::uint32_t threads_ = 1;  // workers that share the epoch's connections
  bool is_paused_ = false;

  // From other threads.
  struct Order {
    Change change;
    Order* before;  // older ones
  };
  std::atomic<Order*> orders_ = nullptr;  // the newest; owned
  std::atomic<Instant> leased_until_ = kNever;

  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  // The sockets' own epoll, edge-triggered, itself watched by Asio: see wait_for_sockets().
  Descriptor epoll_;
  Timer timer_;
  Instant timer_at_ = kNever;  // what timer_ is set to

  GrpcEngine engine_;  // before the connections: it outlives them
  Recorder recorder_;
  Random random_;
  TimerQueue timers_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::deque<std::uint32_t> connect_queue_;
  std::size_t connecting_ = 0;
  bool in_connect_more_ = false;
  std::vector<bool> tried_;  // by slot: an attempt has come to its end
  RateCap cap_;
  std::deque<std::uint32_t> line_;  // slots whose calls the cap holds back; each once
  std::vector<bool> is_in_line_;    // by slot
  std::uint64_t untried_ = 0;
  OpenStatus opening_;
  bool reported_settled_ = false;
  bool reported_all_ = false;

  State state_ = State::created;
  bool may_call_ = false;
  bool is_held_ = false;  // the lease has ended
  bool is_late_ = false;  // opens nothing before it begins
  Instant t0_ = kNever;
  Instant begin_ = kNever;         // t0_, or later
  Instant next_border_ = kNever;   // the next of the two below
  Instant interval_end_ = kNever;  // or begin_, or the drain's deadline
  Instant lease_end_ = kNever;     // as last heard
  Instant interval_begin_ = kNever;
  Instant calls_from_ = kNever;  // calls go on from here, when refit() has its turn
  Instant stop_at_ = kNever;
  Instant drain_deadline_ = kNever;
  Duration drain_ = std::chrono::seconds(5);
  bool first_request_seen_ = false;
  bool stop_asked_ = false;
  bool end_posted_ = false;

  std::uint64_t seq_ = 0;
  std::string message_;
  std::string uncompressed_;
  std::unique_ptr<GzipDeflater> deflater_;  // made when it is needed
  std::string out_;
  std::string cipher_;
  std::string plain_;
  std::unique_ptr<std::uint8_t[]> scratch_;
};

}  // namespace spate::agent
