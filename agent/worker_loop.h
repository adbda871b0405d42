#pragma once

// Everything of a worker that runs on its thread: the loop, the connections, the phases and
// intervals. worker.h is the outside view. All functions here are called on the worker's thread,
// but for run().

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
#include "agent/drivers/http2_grpc.h"
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
             WorkerCallbacks callbacks);
  ~WorkerLoop();
  WorkerLoop(const WorkerLoop&) = delete;
  WorkerLoop& operator=(const WorkerLoop&) = delete;

  boost::asio::io_context& io() { return io_; }
  void run();        // the thread
  void shut_down();  // ends run(); from any thread by post

  void open();
  void start_at(Instant t0);
  void stop(Instant at, Duration drain);
  void set_drain(Duration drain);

  // ---- what connections use

  // The clock, read once per event. Closes every interval that has ended by now, so that whatever
  // is counted after it belongs to the interval of its time stamp.
  Instant tick() {
    const Instant now = BootClock::now();
    if (now >= next_border_) [[unlikely]]
      cross_borders(now);
    return now;
  }

  const Assignment& assignment() const { return *assignment_; }
  const Load& load() const { return epochs_[epoch_].parameters.load; }
  Recorder& recorder() { return recorder_; }
  GrpcProfile& profile() { return profile_; }
  Random& random() { return random_; }
  bool may_call() const { return state_ == State::running; }
  bool wants_connections() const { return state_ <= State::running; }

  // The next request for connection `number`, with room for the gRPC prefix filled in; valid until
  // the next call, or for ever if message_is_constant().
  std::string_view render(std::uint64_t number);
  bool message_is_constant() const { return message_is_constant_; }

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

  void begin();
  void cross_borders(Instant now);
  void enter_segment(std::size_t segment, Instant border);
  void begin_drain(Instant at);
  void end_soon(Instant at);
  void end(Instant at);
  void end_before_start();
  void set_next_border(Instant from);

  void fit_connections(Instant now);
  void grow(std::uint64_t wanted);
  void shrink(std::uint64_t surplus, Instant now);
  void connect_more();
  void report_opening();
  void first_request(Instant now);
  IntervalLabel label() const;

  void wait_for_sockets();
  void sockets_ready();
  void arm_timer();
  void timer_fired();

  const std::uint32_t index_;
  const std::shared_ptr<const Assignment> assignment_;
  const WorkerCallbacks callbacks_;
  std::vector<EpochShare> epochs_;  // this worker's part of each

  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  // The sockets' own epoll, edge-triggered, itself watched by Asio: see wait_for_sockets().
  Descriptor epoll_;
  Timer timer_;
  Instant timer_at_ = kNever;  // what timer_ is set to

  GrpcProfile profile_;  // before the connections: it outlives them
  Recorder recorder_;
  Random random_;
  TimerQueue timers_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::deque<std::uint32_t> connect_queue_;
  std::size_t connecting_ = 0;
  bool in_connect_more_ = false;
  std::vector<bool> tried_;  // by slot: an attempt has come to its end
  std::uint64_t untried_ = 0;
  OpenStatus opening_;
  bool reported_settled_ = false;
  bool reported_all_ = false;

  State state_ = State::created;
  Instant t0_ = kNever;
  std::size_t segment_ = 0;
  std::size_t epoch_ = 0;  // index into epochs_
  Instant next_border_ =
      kNever;  // of an interval or phase, or t0, or the end, or the drain's deadline
  Instant interval_begin_ = kNever;
  Instant phases_end_ = kNever;
  Instant stop_at_ = kNever;
  Instant drain_deadline_ = kNever;
  Duration drain_ = std::chrono::seconds(5);
  bool first_request_seen_ = false;
  bool stop_asked_ = false;
  bool end_posted_ = false;

  std::uint64_t seq_ = 0;
  bool message_is_constant_;
  std::string message_;
  std::string out_;
  std::string cipher_;
  std::string plain_;
  std::unique_ptr<std::uint8_t[]> scratch_;
};

}  // namespace spate::agent
