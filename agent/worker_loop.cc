#include "agent/worker_loop.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <system_error>
#include <utility>

#include "agent/message_template.h"
#include "common/check.h"
#include "common/shares.h"

namespace spate::agent {
namespace asio = boost::asio;

namespace {

// Timers handled in one go before the sockets have their turn again: a herd whose pauses end
// together must not keep answers waiting.
constexpr int kTimersPerTurn = 128;

std::vector<EpochShare> parts_of(const Assignment& assignment, std::uint32_t index) {
  std::vector<EpochShare> parts = assignment.timeline.epochs;
  for (EpochShare& part : parts) {
    std::uint64_t& connections = part.parameters.load.connections;
    connections = divide_equally(connections, assignment.workers).at(index);
  }
  return parts;
}

int make_epoll() {
  const int fd = ::epoll_create1(EPOLL_CLOEXEC);
  if (fd < 0) throw std::system_error(errno, std::system_category(), "epoll_create1");
  return fd;
}

std::uint64_t seed_of(const Assignment& assignment, std::uint32_t index) {
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15;
  return assignment.seed ^ ((assignment.first_connection * 1024 + index + 1) * kOdd);
}

}  // namespace

WorkerLoop::WorkerLoop(std::uint32_t index, std::shared_ptr<const Assignment> assignment,
                       WorkerCallbacks callbacks)
    : index_(index),
      assignment_(std::move(assignment)),
      callbacks_(std::move(callbacks)),
      epochs_(parts_of(*assignment_, index)),
      work_(io_.get_executor()),
      epoll_(io_, make_epoll()),
      timer_(io_),
      profile_(*assignment_),
      random_(seed_of(*assignment_, index)),
      message_is_constant_(assignment_->message->is_constant()),
      scratch_(std::make_unique<std::uint8_t[]>(kScratchBytes)) {
  CHECK(!epochs_.empty() && !assignment_->timeline.segments.empty(),
        "an assignment without phases");
}

WorkerLoop::~WorkerLoop() = default;

void WorkerLoop::run() {
  wait_for_sockets();
  io_.run();
  for (const auto& connection : connections_) connection->close_for_good();
}

void WorkerLoop::shut_down() {
  state_ = State::done;
  next_border_ = kNever;
  work_.reset();
  io_.stop();
}

// ---- before the run

void WorkerLoop::open() {
  if (state_ != State::created) return;
  state_ = State::opening;
  const auto first = std::find_if(epochs_.begin(), epochs_.end(), [&](const EpochShare& part) {
    return part.epoch == assignment_->timeline.segments.front().epoch;
  });
  CHECK(first != epochs_.end(), "the first phase names an epoch that is not there");
  epoch_ = static_cast<std::size_t>(first - epochs_.begin());
  fit_connections(tick());
  report_opening();
}

void WorkerLoop::start_at(Instant t0) {
  open();
  if (state_ != State::opening) return;
  t0_ = t0;
  next_border_ = t0;
  arm_timer();
}

void WorkerLoop::report_opening() {
  if (t0_ != kNever && state_ != State::opening) return;
  opening_.requested = load().connections;
  opening_.established = recorder_.established();
  opening_.settled = untried_ == 0;
  const bool is_all = opening_.established >= opening_.requested;
  if (!opening_.settled || (reported_settled_ && (reported_all_ || !is_all))) return;
  reported_settled_ = true;
  reported_all_ = is_all;
  if (callbacks_.opening) callbacks_.opening(index_, opening_);
}

void WorkerLoop::connect_failed(std::uint32_t code, std::string_view text) {
  recorder_.connect_failed(code, text);
  if (state_ > State::opening) return;
  ++opening_.failed_attempts;
  opening_.errors.add(Outcome::reset, code, text);
}

void WorkerLoop::attempt_ended(std::uint32_t slot) {
  --connecting_;
  if (!tried_[slot]) {
    tried_[slot] = true;
    --untried_;
  }
  report_opening();
  connect_more();
}

void WorkerLoop::enqueue(std::uint32_t slot) {
  connect_queue_.push_back(slot);
  connect_more();
}

// Not all at once: a listener's backlog is short, and a SYN that it drops costs a second.
void WorkerLoop::connect_more() {
  if (in_connect_more_) return;
  in_connect_more_ = true;
  const std::size_t most = std::max<std::size_t>(1, kMaxConnecting / assignment_->workers);
  while (connecting_ < most && !connect_queue_.empty()) {
    Connection& connection = *connections_[connect_queue_.front()];
    connect_queue_.pop_front();
    if (connection.state() != Connection::State::queued) continue;
    ++connecting_;
    connection.connect();
  }
  in_connect_more_ = false;
}

// ---- the number of connections

void WorkerLoop::fit_connections(Instant now) {
  if (!wants_connections()) return;
  const std::uint64_t wanted = load().connections;
  recorder_.set_connections_requested(wanted);
  const auto active = static_cast<std::uint64_t>(
      std::count_if(connections_.begin(), connections_.end(), [](const auto& connection) {
        return connection->state() != Connection::State::unused && !connection->is_retiring();
      }));
  if (active < wanted) grow(wanted - active);
  if (active > wanted) shrink(active - wanted, now);
}

void WorkerLoop::grow(std::uint64_t missing) {
  for (const auto& connection : connections_) {
    if (missing == 0) return;
    if (connection->is_retiring())
      connection->stay();
    else if (connection->state() == Connection::State::unused)
      connection->want();
    else
      continue;
    --missing;
  }
  connections_.reserve(connections_.size() + missing);
  for (; missing > 0; --missing) {
    // Interleaved, so that the workers' numbers together are 0, 1, 2, … of the agent in every
    // epoch.
    const auto slot = static_cast<std::uint32_t>(connections_.size());
    const std::uint64_t number =
        assignment_->first_connection + std::uint64_t{slot} * assignment_->workers + index_;
    connections_.push_back(std::make_unique<Connection>(*this, slot, number));
    tried_.push_back(false);
    ++untried_;
  }
  for (const auto& connection : connections_)
    if (connection->state() == Connection::State::unused) connection->want();
}

// First those that are not established, then idle ones, then busy ones, which close after their
// answer.
void WorkerLoop::shrink(std::uint64_t surplus, Instant now) {
  using enum Connection::State;
  const auto retire_where = [&](auto&& matches) {
    for (std::size_t i = connections_.size(); i-- > 0 && surplus > 0;) {
      Connection& connection = *connections_[i];
      if (connection.state() == unused || connection.is_retiring()) continue;
      if (!matches(connection)) continue;
      connection.retire(now);
      --surplus;
    }
  };
  retire_where([](const Connection& c) { return c.state() != ready; });
  retire_where([](const Connection& c) { return !c.has_call(); });
  retire_where([](const Connection&) { return true; });
}

// ---- phases and intervals

IntervalLabel WorkerLoop::label() const {
  return {epochs_[epoch_].epoch, assignment_->timeline.segments[segment_].phase,
          state_ == State::draining || state_ == State::done};
}

// Borders are counted from t0, never added up.
void WorkerLoop::set_next_border(Instant from) {
  const Duration interval = assignment_->interval;
  const Segment& segment = assignment_->timeline.segments[segment_];
  interval_begin_ = from;
  next_border_ = std::min(t0_ + segment.offset + segment.length, std::max(stop_at_, from));
  if (interval.count() > 0)
    next_border_ = std::min(next_border_, t0_ + ((from - t0_) / interval + 1) * interval);
}

void WorkerLoop::cross_borders(Instant now) {
  while (now >= next_border_) {
    const Instant border = next_border_;
    switch (state_) {
      case State::opening:
        begin();
        break;
      case State::running:
        if (border >= phases_end_ || border >= stop_at_) {
          begin_drain(border);
        } else {
          const Segment& segment = assignment_->timeline.segments[segment_];
          const bool is_segment_end = border >= t0_ + segment.offset + segment.length;
          const std::size_t before = epoch_;
          enter_segment(is_segment_end ? segment_ + 1 : segment_, border);
          Record record = recorder_.close(border, label());
          record.gauges.connections_requested = epochs_[before].parameters.load.connections;
          set_next_border(border);
          if (callbacks_.interval) callbacks_.interval(index_, std::move(record));
        }
        break;
      case State::draining:
        next_border_ = kNever;
        end_soon(border);
        break;
      case State::created:
      case State::done:
        next_border_ = kNever;
        break;
    }
  }
}

void WorkerLoop::begin() {
  state_ = State::running;
  const Segment& last = assignment_->timeline.segments.back();
  phases_end_ = t0_ + last.offset + last.length;
  recorder_.start(t0_, label());
  set_next_border(t0_);
  for (const auto& connection : connections_) connection->begin_calls(t0_);
}

void WorkerLoop::enter_segment(std::size_t segment, Instant border) {
  if (segment == segment_) return;
  segment_ = segment;
  const std::uint32_t number = assignment_->timeline.segments[segment].epoch;
  if (number == epochs_[epoch_].epoch) return;
  const auto next = std::find_if(epochs_.begin(), epochs_.end(),
                                 [&](const EpochShare& part) { return part.epoch == number; });
  CHECK(next != epochs_.end(), "a phase names an epoch that is not there");
  epoch_ = static_cast<std::size_t>(next - epochs_.begin());
  recorder_.set_connections_requested(load().connections);
  // Later, not here: a border is crossed in the middle of some connection's event.
  asio::post(io_, [this, border] {
    const Instant until = border + (load().calls_per_loop == 0 ? Duration{} : load().pause);
    for (const auto& connection : connections_) connection->shorten_pause(until);
    fit_connections(tick());
  });
}

void WorkerLoop::first_request(Instant now) {
  first_request_seen_ = true;
  if (callbacks_.first_request) callbacks_.first_request(index_, now);
}

// ---- the end

void WorkerLoop::set_drain(Duration drain) {
  if (!stop_asked_) drain_ = drain;
}

void WorkerLoop::stop(Instant at, Duration drain) {
  drain_ = stop_asked_ ? std::min(drain_, drain) : drain;
  stop_asked_ = true;
  switch (state_) {
    case State::created:
    case State::opening:
      end_before_start();
      break;
    case State::running:
      // An `at` in the past cuts the open interval there all the same; what was sent since is
      // microseconds old and is counted before the cut.
      stop_at_ = std::max(std::min(stop_at_, at), interval_begin_);
      next_border_ = std::min(next_border_, stop_at_);
      break;
    case State::draining:
      drain_deadline_ = std::min(drain_deadline_, std::max(at + drain, interval_begin_));
      next_border_ = drain_deadline_;
      break;
    case State::done:
      break;
  }
  tick();
  arm_timer();
}

void WorkerLoop::begin_drain(Instant at) {
  state_ = State::draining;
  Record record = recorder_.close(at, label());
  interval_begin_ = at;
  drain_deadline_ = at + drain_;
  next_border_ = drain_deadline_;
  if (callbacks_.interval) callbacks_.interval(index_, std::move(record));
  if (recorder_.in_flight() == 0) end_soon(at);
}

// Later, not here, for the same reason as in enter_segment().
void WorkerLoop::end_soon(Instant at) {
  if (end_posted_) return;
  end_posted_ = true;
  asio::post(io_, [this, at] { end(at); });
}

void WorkerLoop::end(Instant at) {
  if (state_ != State::draining) return;
  for (const auto& connection : connections_) connection->cut_off(at);
  state_ = State::done;
  next_border_ = kNever;
  Record record = recorder_.close(at, label());
  if (callbacks_.interval) callbacks_.interval(index_, std::move(record));
  for (const auto& connection : connections_) connection->close_for_good();
  if (callbacks_.drained) callbacks_.drained(index_);
}

void WorkerLoop::end_before_start() {
  state_ = State::done;
  next_border_ = kNever;
  for (const auto& connection : connections_) connection->close_for_good();
  if (callbacks_.drained) callbacks_.drained(index_);
}

// ---- sockets

int WorkerLoop::watch(int fd, std::uint32_t slot, std::uint32_t life) {
  epoll_event event{};
  // Once, for all that may happen: edge-triggered events cost nothing while nobody waits for them.
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.u64 = std::uint64_t{life} << 32 | slot;
  return ::epoll_ctl(epoll_.native_handle(), EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : errno;
}

// The sockets are not Asio's own because its reactor (1.81) costs a system call more per request: a
// pending async_read_some() begins with a recv in vain, since only the end of a stream clears its
// try-again flag, and an async_wait() is an epoll_ctl. Here Asio waits for the epoll of the sockets
// as for one descriptor, which costs three calls for a whole batch of events; and as bytes are read
// when the event is handled, a connection needs no buffer of its own.
void WorkerLoop::wait_for_sockets() {
  epoll_.async_wait(Descriptor::wait_read, [this](const boost::system::error_code& error) {
    if (!error) sockets_ready();
  });
}

void WorkerLoop::sockets_ready() {
  // A few rounds while there are events, then timers and posted calls have their turn.
  constexpr int kRounds = 4;
  std::array<epoll_event, 256> events;
  for (int round = 0; round < kRounds; ++round) {
    const int count = ::epoll_wait(epoll_.native_handle(), events.data(), events.size(), 0);
    if (count <= 0) break;
    for (int i = 0; i < count; ++i) {
      const std::uint64_t tag = events[static_cast<std::size_t>(i)].data.u64;
      connections_[static_cast<std::uint32_t>(tag)]->socket_event(
          static_cast<std::uint32_t>(tag >> 32), events[static_cast<std::size_t>(i)].events);
    }
  }
  wait_for_sockets();
}

// ---- messages and timers

std::string_view WorkerLoop::render(std::uint64_t number) {
  if (message_is_constant_ && !message_.empty()) return message_;
  message_.assign(GrpcConnection::kPrefixBytes, '\0');
  const MessageTemplate::Context context{.random = random_,
                                         .seq = seq_ * assignment_->workers + index_,
                                         .connection = number,
                                         .agent = assignment_->agent};
  ++seq_;
  assignment_->message->render(context, message_);
  GrpcConnection::write_prefix(message_);
  return message_;
}

void WorkerLoop::schedule(std::uint32_t slot, TimerKind kind, Instant at, TimerSlot& timers) {
  if (timers_.schedule(slot, kind, at, timers)) arm_timer();
}

void WorkerLoop::arm_timer() {
  const Instant at = std::min(timers_.next(), next_border_);
  if (at >= timer_at_) return;
  timer_at_ = at;
  timer_.expires_at(at);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) timer_fired();
  });
}

void WorkerLoop::timer_fired() {
  timer_at_ = Instant::min();  // no arming while we are at it
  Instant now = tick();
  const auto slot_of = [this](std::uint32_t slot) -> TimerSlot& {
    return connections_[slot]->timers();
  };
  for (int i = 0; i < kTimersPerTurn; ++i) {
    const auto due = timers_.take_due(now, slot_of);
    if (!due) break;
    connections_[due->connection]->timer_fired(due->kind, now);
    now = tick();
  }
  if (timers_.next() <= now) {
    asio::post(io_, [this] { timer_fired(); });
    return;
  }
  timer_at_ = kNever;
  arm_timer();
}

}  // namespace spate::agent
