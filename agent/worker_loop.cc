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

// Timers, and calls that were held back, handled in one go before the sockets have their turn
// again: a herd whose pauses end together must not keep answers waiting.
constexpr int kTimersPerTurn = 128;

// Requests of workers that the plan did not have are numbered from here on.
constexpr std::uint64_t kExtraSeq = 1'000'000'000'000;

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
                       WorkerCallbacks callbacks, std::shared_ptr<SlotRing> ring)
    : index_(index),
      callbacks_(std::move(callbacks)),
      assignment_(std::move(assignment)),
      work_(io_.get_executor()),
      epoll_(io_, make_epoll()),
      timer_(io_),
      recorder_(std::move(ring)),
      random_(seed_of(*assignment_, index)),
      scratch_(std::make_unique<std::uint8_t[]>(kScratchBytes)) {
  CHECK(!assignment_->segments.empty(), "an assignment without segments");
}

WorkerLoop::~WorkerLoop() {
  for (Order* order = orders_; order != nullptr;) delete std::exchange(order, order->before);
}

void WorkerLoop::run() {
  wait_for_sockets();
  io_.run();
  for (const auto& connection : connections_) connection->close_for_good();
}

void WorkerLoop::shut_down() {
  state_ = State::done;
  next_border_ = kNever;
  may_call_ = false;
  work_.reset();
  io_.stop();
}

// ---- before the run

void WorkerLoop::open() {
  if (state_ != State::created) return;
  state_ = State::opening;
  enter(0, kNever);
  fit_connections(tick());
  report_opening();
}

void WorkerLoop::start_at(Instant t0, Instant begin) {
  open();
  if (state_ != State::opening) return;
  t0_ = t0;
  begin_ = begin;
  interval_end_ = begin;
  set_next_border();
}

void WorkerLoop::join(std::shared_ptr<const Assignment> assignment, Instant t0, Instant begin) {
  if (state_ != State::created) return;
  state_ = State::opening;
  is_late_ = true;
  assignment_ = std::move(assignment);
  start_at(t0, begin);
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
  if (in_connect_more_ || is_held_) return;
  in_connect_more_ = true;
  const std::size_t most = std::max<std::size_t>(1, kMaxConnecting / threads_);
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
  const auto active = static_cast<std::uint64_t>(
      std::count_if(connections_.begin(), connections_.end(), [](const auto& connection) {
        return connection->state() != Connection::State::unused && !connection->is_retiring();
      }));
  if (active < wanted) grow(wanted - active);
  if (active > wanted) shrink(active - wanted, now);
  for (const auto& connection : connections_) connection->follow_route(now);
}

// The plan's connections are numbered 0, 1, 2, … through the cluster, interleaved among the workers
// so that in every epoch those of the agent are 0, 1, 2, … of its own range. Of the range there is
// as much as the plan wants; what a change adds to that gets a number no plan reaches, unique as
// far as agents' ranges begin at different places.
std::uint64_t WorkerLoop::number_of(std::uint32_t slot) const {
  const Assignment& a = *assignment_;
  const std::uint64_t of_agent =
      index_ < a.workers ? std::uint64_t{slot} * a.workers + index_
                         : kMaxConnections + std::uint64_t{slot} * kMaxThreadsPerAgent + index_;
  if (of_agent < a.numbered_connections) return a.first_connection + of_agent;
  return (of_agent + 1) * kMaxConnections + a.first_connection;
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
    const auto slot = static_cast<std::uint32_t>(connections_.size());
    connections_.push_back(std::make_unique<Connection>(*this, slot, number_of(slot)));
    tried_.push_back(false);
    is_in_line_.push_back(false);
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

// ---- segments and intervals

IntervalLabel WorkerLoop::label() const {
  const Segment& segment = assignment_->segments[segment_];
  return {segment.epoch, segment.phase, state_ == State::draining || state_ == State::done,
          segment.guard};
}

// Borders are counted from t0, never added up.
void WorkerLoop::set_interval_end(Instant from) {
  const Duration interval = assignment_->interval;
  const Segment& segment = assignment_->segments[segment_];
  interval_begin_ = from;
  interval_end_ = std::min(t0_ + segment.offset + segment.length, stop_at_);
  if (!changes_.empty()) interval_end_ = std::min(interval_end_, changes_.front().at);
  interval_end_ = std::max(interval_end_, from);
  if (interval.count() > 0)
    interval_end_ = std::min(interval_end_, t0_ + ((from - t0_) / interval + 1) * interval);
}

void WorkerLoop::set_next_border() {
  const bool needs_lease = state_ <= State::running && !is_held_;
  next_border_ = needs_lease ? std::min(interval_end_, lease_end_) : interval_end_;
  arm_timer();
}

void WorkerLoop::cross_borders(Instant now) {
  take_orders();
  while (now >= next_border_) {
    if (next_border_ == interval_end_)
      cross(interval_end_);
    else
      take_lease(now);
    set_next_border();
  }
}

void WorkerLoop::cross(Instant border) {
  switch (state_) {
    case State::opening:
      begin();
      break;
    case State::running:
      if (border >= t0_ + assignment_->end() || border >= stop_at_)
        begin_drain(border);
      else
        next_interval(border);
      break;
    case State::draining:
      interval_end_ = kNever;
      end_soon(border);
      break;
    case State::created:
    case State::done:
      interval_end_ = kNever;
      break;
  }
}

void WorkerLoop::begin() {
  state_ = State::running;
  const std::uint32_t opened_for = epoch_;
  const bool changed = make_changes(begin_);
  enter(assignment_->segment_at(begin_ - t0_), begin_);
  recorder_.start(t0_, begin_, label());
  set_interval_end(begin_);
  if (std::exchange(calls_from_, kNever) != kNever)
    for (const auto& connection : connections_) connection->begin_calls(begin_);
  if (epoch_ != opened_for) asio::post(io_, [this] { refit(begin_); });
  if (changed && callbacks_.changed_over) callbacks_.changed_over(index_, epoch_, begin_);
}

void WorkerLoop::next_interval(Instant border) {
  const std::uint64_t requested = load_.connections;
  const std::uint32_t before = epoch_;
  const bool changed = make_changes(border);
  const std::size_t segment = assignment_->segment_at(border - t0_);
  if (changed || segment != segment_) {
    enter(segment, border);
  } else if (recorder_.should_go_on()) {
    set_interval_end(border);
    return;
  }
  Record record = recorder_.close(border, label());
  record.gauges.connections_requested = requested;
  set_interval_end(border);
  if (callbacks_.interval) callbacks_.interval(index_, std::move(record));
  if (changed && callbacks_.changed_over) callbacks_.changed_over(index_, epoch_, border);
  // Later, not here: a border is crossed in the middle of some connection's event.
  if (epoch_ != before) asio::post(io_, [this, border] { refit(border); });
}

void WorkerLoop::enter(std::size_t segment, Instant at) {
  segment_ = segment;
  const AssignedEpoch& epoch = assignment_->epoch(assignment_->segments[segment].epoch);
  epoch_ = epoch.number;
  call_ = epoch.call;
  threads_ = epoch.parameters.threads;
  is_paused_ = epoch.parameters.paused;
  load_ = epoch.parameters.load;
  const std::uint64_t of_agent = load_.connections;
  load_.connections = index_ < threads_ ? divide_equally(of_agent, threads_).at(index_) : 0;
  cap_.set(assignment_->max_rate_per_s, load_.connections, of_agent, at);
  recorder_.set_connections_requested(load_.connections);
  allow_calls(at);
}

void WorkerLoop::refit(Instant border) {
  if (state_ != State::running) return;
  const Instant until = border + (load_.calls_per_loop == 0 ? Duration{} : load_.pause);
  for (const auto& connection : connections_) connection->shorten_pause(until);
  fit_connections(tick());
  const Instant from = std::exchange(calls_from_, kNever);
  if (from == kNever || !may_call_) return;
  for (const auto& connection : connections_) connection->begin_calls(from);
}

// ---- orders from outside

void WorkerLoop::order(std::shared_ptr<const Assignment> next, Instant at) {
  auto* order = new Order{{std::move(next), at}, orders_.load(std::memory_order_relaxed)};
  while (!orders_.compare_exchange_weak(order->before, order, std::memory_order_release)) {
  }
}

void WorkerLoop::heed() {
  const Instant now = BootClock::now();
  take_orders();
  take_lease(now);
  set_next_border();
  tick();
}

void WorkerLoop::take_orders() {
  // They may be here before the start that they come after.
  if (t0_ == kNever || orders_.load(std::memory_order_relaxed) == nullptr) return;
  std::vector<Change> newest_first;
  for (Order* order = orders_.exchange(nullptr, std::memory_order_acquire); order != nullptr;) {
    newest_first.push_back(std::move(order->change));
    delete std::exchange(order, order->before);
  }
  std::for_each(newest_first.rbegin(), newest_first.rend(),
                [this](Change& change) { take_change(std::move(change)); });
}

// Where the open interval can end for what is to happen at `at`. An instant in the past cuts it
// there all the same: what was sent since is microseconds old and is counted before the cut. One
// before its begin does not: what was counted took some time.
Instant WorkerLoop::cut_at(Instant at) const {
  return at > interval_begin_ ? at : std::max(BootClock::now(), interval_begin_);
}

void WorkerLoop::take_change(Change change) {
  if (state_ > State::running) return;
  while (!changes_.empty() && changes_.back().at >= change.at) changes_.pop_back();
  if (state_ == State::running) interval_end_ = std::min(interval_end_, cut_at(change.at));
  if (state_ == State::opening && is_late_ && change.at < begin_) {
    // What it was to join is not going to be.
    begin_ = change.at;
    interval_end_ = begin_;
  }
  changes_.push_back(std::move(change));
}

// Whether any was due.
bool WorkerLoop::make_changes(Instant border) {
  const auto due = std::find_if(changes_.begin(), changes_.end(),
                                [&](const Change& change) { return change.at > border; });
  if (due == changes_.begin()) return false;
  assignment_ = std::prev(due)->assignment;
  changes_.erase(changes_.begin(), due);
  return true;
}

void WorkerLoop::take_lease(Instant now) {
  lease_end_ = leased_until_.load(std::memory_order_acquire);
  const bool was_held = std::exchange(is_held_, now >= lease_end_);
  if (is_held_ == was_held) return;
  allow_calls(now);
  if (is_held_) return;
  asio::post(io_, [this, now] {
    connect_more();
    refit(now);
  });
}

// Or not any more. `at` is when that became so.
void WorkerLoop::allow_calls(Instant at) {
  const bool could = std::exchange(may_call_, state_ == State::running && !is_held_ && !is_paused_);
  if (may_call_ != could) calls_from_ = may_call_ ? at : kNever;
}

// ---- the owner's cap

// First come, first served: who has been let through stands behind all others the next time.
bool WorkerLoop::takes_or_waits(std::uint32_t slot, Instant now) {
  if (is_in_line_[slot]) return false;
  if (line_.empty() && now >= cap_.opens()) {
    cap_.let_through(now);
    return true;
  }
  is_in_line_[slot] = true;
  line_.push_back(slot);
  arm_timer();
  return false;
}

void WorkerLoop::move_line(Instant now) {
  for (int i = 0; i < kTimersPerTurn && line_moves() <= now; ++i) {
    const std::uint32_t slot = line_.front();
    line_.pop_front();
    is_in_line_[slot] = false;
    const Instant opened = cap_.opens();
    // Else its turn is the next one's: its connection broke, or no calls may be made.
    if (connections_[slot]->admitted(opened, now)) cap_.let_through(now);
    now = tick();
  }
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
      stop_at_ = std::min(stop_at_, cut_at(at));
      interval_end_ = std::min(interval_end_, stop_at_);
      break;
    case State::draining:
      drain_deadline_ = std::min(drain_deadline_, std::max(at + drain, interval_begin_));
      interval_end_ = drain_deadline_;
      break;
    case State::done:
      break;
  }
  set_next_border();
  tick();
}

void WorkerLoop::begin_drain(Instant at) {
  state_ = State::draining;
  allow_calls(at);
  Record record = recorder_.close(at, label());
  interval_begin_ = at;
  drain_deadline_ = at + drain_;
  interval_end_ = drain_deadline_;
  if (callbacks_.interval) callbacks_.interval(index_, std::move(record));
  if (recorder_.in_flight() == 0) end_soon(at);
}

// Later, not here, for the same reason as in next_interval().
void WorkerLoop::end_soon(Instant at) {
  if (end_posted_) return;
  end_posted_ = true;
  asio::post(io_, [this, at] { end(at); });
}

void WorkerLoop::end(Instant at) {
  if (state_ != State::draining) return;
  for (const auto& connection : connections_) connection->cut_off(at);
  state_ = State::done;
  interval_end_ = kNever;
  set_next_border();
  Record record = recorder_.close(at, label());
  if (callbacks_.interval) callbacks_.interval(index_, std::move(record));
  for (const auto& connection : connections_) connection->close_for_good();
  if (callbacks_.drained) callbacks_.drained(index_);
}

void WorkerLoop::end_before_start() {
  state_ = State::done;
  interval_end_ = kNever;
  set_next_border();
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

std::string_view WorkerLoop::render_anew(std::uint64_t number) {
  const Assignment& a = *assignment_;
  const std::uint64_t seq = index_ < a.workers ? seq_ * a.workers + index_
                                               : kExtraSeq + seq_ * kMaxThreadsPerAgent + index_;
  ++seq_;
  const MessageTemplate::Context context{
      .random = random_, .seq = seq, .connection = number, .agent = a.agent};
  message_.assign(GrpcConnection::kPrefixBytes, '\0');
  if (call_->compress) {
    uncompressed_.clear();
    call_->message->render(context, uncompressed_);
    if (!deflater_) deflater_ = std::make_unique<GzipDeflater>();
    deflater_->append(uncompressed_, message_);
  } else {
    call_->message->render(context, message_);
  }
  GrpcConnection::write_prefix(message_, call_->compress);
  return message_;
}

void WorkerLoop::schedule(std::uint32_t slot, TimerKind kind, Instant at, TimerSlot& timers) {
  if (timers_.schedule(slot, kind, at, timers)) arm_timer();
}

void WorkerLoop::arm_timer() {
  const Instant at = std::min({timers_.next(), next_border_, line_moves()});
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
  move_line(now);
  if (std::min(timers_.next(), line_moves()) <= now) {
    asio::post(io_, [this] { timer_fired(); });
    return;
  }
  timer_at_ = kNever;
  arm_timer();
}

}  // namespace spate::agent
