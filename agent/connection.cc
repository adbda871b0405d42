#include "agent/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "agent/worker_loop.h"
#include "common/units.h"

namespace spate::agent {
namespace {

// TCP, TLS and the target's SETTINGS together.
constexpr Duration kConnectTimeout = std::chrono::seconds(10);
constexpr Duration kBackOffFirst = std::chrono::milliseconds(50);
constexpr Duration kBackOffMost = std::chrono::seconds(5);

constexpr int kClosedByPeer = 0;  // in the place of an errno

// For people, and the same for every connection, so that the tally stays short.
std::string describe(int error) {
  switch (error) {
    case kClosedByPeer:
      return "closed by the target";
    case EMFILE:
      return "too many open files in this process (EMFILE); raise its descriptor limit";
    case ENFILE:
      return "too many open files on this machine (ENFILE)";
    case EADDRNOTAVAIL:
      return "no local port left for this target (EADDRNOTAVAIL); widen "
             "net.ipv4.ip_local_port_range";
    case ECONNREFUSED:
      return "connection refused (ECONNREFUSED)";
    default:
      return std::system_category().message(error);
  }
}

std::uint32_t code_of(int error) { return static_cast<std::uint32_t>(error); }

std::span<const std::uint8_t> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

}  // namespace

Connection::Connection(WorkerLoop& loop, std::uint32_t slot, std::uint64_t number)
    : loop_(loop), number_(number), slot_(slot) {}

Connection::~Connection() { close_socket(); }

void Connection::socket_event(std::uint32_t life, std::uint32_t events) {
  if (life != life_) return;
  const Instant now = loop_.tick();
  if (state_ == State::connecting) {
    connected(now);
    // A peer that speaks first may have spoken already: its bytes are not told a second time.
    if (life != life_ || (events & EPOLLIN) == 0) return;
  }
  if (writing_ && (events & EPOLLOUT) != 0 && !writable(now)) return;
  constexpr std::uint32_t kEnd = EPOLLRDHUP | EPOLLHUP | EPOLLERR;
  if ((events & (EPOLLIN | kEnd)) != 0 && !read((events & kEnd) != 0, now)) return;
  go_on(now);
}

// ---- input

// Into the worker's scratch space: nothing is buffered per connection. A read that fills less than
// asked for has emptied the socket, and what comes later is a new event; only the end of the stream
// is not, if epoll has told it together with the last bytes.
bool Connection::read(bool until_the_end, Instant now) {
  for (;;) {
    const ssize_t size = ::recv(fd_, loop_.scratch(), WorkerLoop::kScratchBytes, 0);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (size <= 0) {
      const int error = size < 0 ? errno : kClosedByPeer;
      lost(code_of(error), describe(error), now);
      return false;
    }
    if (!take_bytes(loop_.scratch(), static_cast<std::size_t>(size), now)) return false;
    if (size < static_cast<ssize_t>(WorkerLoop::kScratchBytes) && !until_the_end) return true;
  }
}

bool Connection::take_bytes(const std::uint8_t* data, std::size_t size, Instant now) {
  loop_.recorder().bytes_received(size);
  if (tls_) return take_ciphertext({data, size}, now);
  driver_->receive({data, size});
  return true;
}

bool Connection::take_ciphertext(std::span<const std::uint8_t> bytes, Instant now) {
  std::string& plain = loop_.plain();
  std::string& cipher = loop_.cipher();
  plain.clear();
  cipher.clear();
  const Result<void> result = tls_->receive(bytes, plain, cipher);
  if (!cipher.empty() && !send_bytes(cipher, now)) return false;
  if (!result) {
    lost(0, result.error().message, now);
    return false;
  }
  if (!plain.empty()) driver_->receive(as_bytes(plain));
  if (tls_->is_closed_by_peer()) {
    lost(0, "closed by the target", now);
    return false;
  }
  return true;
}

bool Connection::go_on(Instant now) {
  if (state_ == State::negotiating && driver_->is_ready()) negotiated(now);
  do {
    if (const auto end = driver_->take_end()) call_ended(*end, now);
    if (has_due_call() && loop_.lets_through(slot_, now)) start_call(now);
    if (!flush(now)) return false;
  } while (driver_->has_end());
  if (driver_->is_broken()) [[unlikely]] {
    const std::string why = driver_->error();
    broken(why, now);
    return false;
  }
  if (state_ != State::ready || driver_->has_call()) [[likely]]
    return true;
  if (leaving_ != Leaving::no) {
    leave(now);
    return false;
  }
  if (driver_->is_finished()) {
    lost(0, driver_->goaway(), now);
    return false;
  }
  return true;
}

// ---- calls

void Connection::begin_calls(Instant intended) {
  if (state_ == State::ready && !has_call() && !paused_) pause_until(intended);
}

void Connection::pause_until(Instant wake) {
  paused_ = true;
  due_ = false;
  wake_ = wake;
  loop_.schedule(slot_, TimerKind::wake, wake_, timers_);
}

void Connection::shorten_pause(Instant until) {
  if (state_ == State::ready && paused_ && wake_ > until) pause_until(until);
}

void Connection::call_ended(const CallEnd& end, Instant now) {
  if (end.outcome == Outcome::ok) [[likely]]
    loop_.recorder().request_ok(times_, now);
  else
    loop_.recorder().request_failed(end.outcome, end.code, end.text, times_, now);
  attempts_ = 0;
  plan_next_call(now);
  loop_.call_finished(now);
}

// A closed loop: the next call is due now, or after the pause when the loop is through.
void Connection::plan_next_call(Instant now) {
  const Load& load = loop_.load();
  if (load.calls_per_loop != 0 && ++calls_in_loop_ >= load.calls_per_loop) {
    calls_in_loop_ = 0;
    if (load.pause.count() > 0) return pause_until(now + load.pause);
  }
  // Else it is due when calls may be made again: see begin_calls().
  due_ = loop_.may_call();
  next_intended_ = now;
}

bool Connection::has_due_call() const {
  return due_ && loop_.may_call() && leaving_ == Leaving::no && driver_->may_start();
}

// The time in line is the owner's doing, like a pause: neither the target's nor the agent's lag.
bool Connection::admitted(Instant opened, Instant now) {
  if (!has_due_call()) return false;
  const Instant due = std::exchange(next_intended_, std::max(next_intended_, opened));
  start_call(now);
  if (!has_call()) return false;
  loop_.recorder().request_held(next_intended_ - due);
  go_on(now);
  return true;
}

void Connection::start_call(Instant now) {
  due_ = false;
  if (call_ != loop_.call() && !take_call()) [[unlikely]]
    return;
  driver_->start(loop_.render(number_), !call_->framed.empty());
  times_ = {next_intended_, now};
  loop_.recorder().request_sent(times_);
  loop_.request_sent(now);
  const Duration timeout = call_->timeout;
  deadline_ = timeout.count() > 0 ? now + timeout : kNever;
  loop_.schedule(slot_, TimerKind::deadline, deadline_, timers_);
}

// The epoch's call from now on; false if that goes elsewhere: see follow_route(), which the loop
// calls as soon as it has found out which connections the epoch still wants.
bool Connection::take_call() {
  if (call_->route != loop_.call()->route) return false;
  driver_->use(*loop_.call()->profile);
  call_ = loop_.call();
  return true;
}

// ---- output

bool Connection::flush(Instant now) {
  if (tls_ && !tls_->is_open()) return true;
  while (!writing_) {
    std::string& out = loop_.out();
    out.clear();
    driver_->write(out, WorkerLoop::kScratchBytes);
    if (out.empty()) break;
    const bool is_all = out.size() < WorkerLoop::kScratchBytes;
    std::string_view bytes = out;
    if (tls_) {
      loop_.cipher().clear();
      if (const auto result = tls_->send(out, loop_.cipher()); !result) {
        lost(0, result.error().message, now);
        return false;
      }
      bytes = loop_.cipher();
    }
    if (!send_bytes(bytes, now)) return false;
    if (is_all) break;
  }
  driver_->settle_body();
  return true;
}

bool Connection::send_bytes(std::string_view bytes, Instant now) {
  if (writing_) {
    unsent_.append(bytes);
    return true;
  }
  ssize_t size = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (size < 0) {
    if (errno != EAGAIN && errno != EINTR) {
      const int error = errno;
      lost(code_of(error), describe(error), now);
      return false;
    }
    size = 0;
  }
  loop_.recorder().bytes_sent(static_cast<std::size_t>(size));
  if (static_cast<std::size_t>(size) < bytes.size()) {
    unsent_.assign(bytes.substr(static_cast<std::size_t>(size)));
    writing_ = true;  // until EPOLLOUT
  }
  return true;
}

bool Connection::writable(Instant now) {
  writing_ = false;
  const std::string rest = std::exchange(unsent_, {});
  return send_bytes(rest, now);
}

// ---- life

void Connection::want() {
  state_ = State::queued;
  leaving_ = Leaving::no;
  attempts_ = 0;
  calls_in_loop_ = 0;
  loop_.enqueue(slot_);
}

void Connection::connect() {
  const Instant now = loop_.tick();
  state_ = State::connecting;
  call_ = loop_.call();
  if (const int error = open_socket(); error != 0)
    return connect_failed(code_of(error), describe(error), now);
  deadline_ = now + kConnectTimeout;
  loop_.schedule(slot_, TimerKind::deadline, deadline_, timers_);
}

// 0, or an errno.
int Connection::open_socket() {
  const Route& route = *call_->route;
  const auto& bytes = route.address.bytes();
  sockaddr_storage storage{};
  socklen_t size = 0;
  if (route.address.is_v4()) {
    auto& address = reinterpret_cast<sockaddr_in&>(storage);
    address.sin_family = AF_INET;
    address.sin_port = htons(route.target.port);
    std::memcpy(&address.sin_addr, bytes.data() + 12, sizeof address.sin_addr);
    size = sizeof address;
  } else {
    auto& address = reinterpret_cast<sockaddr_in6&>(storage);
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(route.target.port);
    std::memcpy(&address.sin6_addr, bytes.data(), sizeof address.sin6_addr);
    size = sizeof address;
  }
  fd_ = ::socket(storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd_ < 0) return errno;
  const int on = 1;
  ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::connect(fd_, reinterpret_cast<const sockaddr*>(&storage), size) != 0 &&
      errno != EINPROGRESS)
    return errno;
  return loop_.watch(fd_, slot_, life_);
}

void Connection::connected(Instant now) {
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return connect_failed(code_of(error), describe(error), now);
  state_ = State::negotiating;
  driver_.emplace(loop_.engine(), *call_->profile);
  if (const auto& tls = call_->route->tls) {
    tls_ = std::make_unique<TlsFilter>(*tls);
    std::string& cipher = loop_.cipher();
    cipher.clear();
    if (const auto result = tls_->start(cipher); !result)
      return lost(0, result.error().message, now);
    if (!send_bytes(cipher, now)) return;
  }
  go_on(now);
}

void Connection::negotiated(Instant now) {
  state_ = State::ready;
  deadline_ = kNever;
  loop_.recorder().connection_opened();
  loop_.attempt_ended(slot_);
  // After a reconnect the first call is intended now: before, there was nothing to send it on,
  // which is the target's doing and must not look like a lag of the generator.
  if (loop_.may_call()) {
    due_ = true;
    next_intended_ = now;
  }
}

void Connection::timer_fired(TimerKind kind, Instant now) {
  const Instant at = kind == TimerKind::deadline ? deadline_ : wake_;
  if (at == kNever) return;
  if (now < at) return loop_.schedule(slot_, kind, at, timers_);
  if (kind == TimerKind::deadline) return deadline_passed(now);
  wake_ = kNever;
  if (state_ == State::backing_off) {
    state_ = State::queued;
    loop_.enqueue(slot_);
  } else if (state_ == State::ready && paused_) {
    paused_ = false;
    if (!loop_.may_call()) return;  // see begin_calls()
    due_ = true;
    next_intended_ = at;
    go_on(now);
  }
}

void Connection::deadline_passed(Instant now) {
  if (state_ == State::connecting || state_ == State::negotiating)
    return connect_failed(ETIMEDOUT, "timed out after " + format_duration(kConnectTimeout), now);
  if (!has_call()) return;
  driver_->cancel_call();
  loop_.recorder().request_failed(
      Outcome::timed_out, 0, "no answer within " + format_duration(call_->timeout), times_, now);
  plan_next_call(now);
  loop_.call_finished(now);
  go_on(now);
}

void Connection::retire(Instant now) {
  leaving_ = Leaving::for_good;
  leave(now);
}

void Connection::follow_route(Instant now) {
  if (state_ == State::unused || state_ == State::queued || is_retiring()) return;
  const bool is_there = call_->route == loop_.call()->route;
  leaving_ = is_there ? Leaving::no : Leaving::for_another_route;
  if (!is_there) leave(now);
}

// Now, or after the answer it waits for: go_on() comes here again.
void Connection::leave(Instant now) {
  if (has_call()) return;
  const bool goes_elsewhere = leaving_ == Leaving::for_another_route;
  const bool was_trying = state_ == State::connecting || state_ == State::negotiating;
  if (state_ == State::ready)
    close_politely(now);
  else
    close_socket();
  state_ = State::unused;
  leaving_ = Leaving::no;
  if (was_trying) loop_.attempt_ended(slot_);
  if (goes_elsewhere) want();
}

// GOAWAY, and the end of TLS; false if the connection is gone already.
bool Connection::say_goodbye(Instant now) {
  driver_->say_goodbye();
  if (!flush(now)) return false;
  if (!tls_) return true;
  std::string& cipher = loop_.cipher();
  cipher.clear();
  tls_->close(cipher);
  return cipher.empty() || send_bytes(cipher, now);
}

void Connection::close_politely(Instant now) {
  if (!say_goodbye(now)) return;
  loop_.recorder().connection_closed(true);
  close_socket();
}

void Connection::cut_off(Instant now) {
  if (!has_call()) return;
  driver_->cancel_call();
  loop_.recorder().request_failed(Outcome::cancelled, 0, "cut off by the end of the drain", times_,
                                  now);
}

void Connection::close_for_good() {
  if (state_ == State::ready && !writing_ && !driver_->is_broken()) {
    leaving_ = Leaving::for_good;  // if it cannot be said, do not come back
    if (!say_goodbye(loop_.tick())) return;
    loop_.recorder().connection_closed(false);
  }
  close_socket();
  state_ = State::unused;
}

// The connection is gone, whoever's fault that is.
void Connection::lost(std::uint32_t code, std::string_view why, Instant now) {
  if (state_ != State::ready) return connect_failed(code, why, now);
  if (const auto end = driver_->take_end()) call_ended(*end, now);
  const std::string goaway = driver_->goaway();
  if (has_call()) {
    std::string text = "connection lost: " + std::string(why);
    if (!goaway.empty()) text += " after " + goaway;
    loop_.recorder().request_failed(Outcome::reset, code, text, times_, now);
    loop_.call_finished(now);
  }
  loop_.recorder().connection_closed(true);
  back_off(now);
}

void Connection::broken(std::string_view why, Instant now) {
  const bool has_open_call = has_call();
  if (has_open_call) {
    loop_.recorder().request_failed(Outcome::protocol_error, 0, why, times_, now);
    loop_.call_finished(now);
  }
  // One entry in the tally: with the request, the failed connect, or by itself.
  const bool is_told_elsewhere = has_open_call || state_ != State::ready;
  loop_.recorder().connection_protocol_error(is_told_elsewhere ? std::string_view() : why);
  if (state_ != State::ready) return connect_failed(0, why, now);
  loop_.recorder().connection_closed(true);
  back_off(now);
}

void Connection::connect_failed(std::uint32_t code, std::string_view why, Instant now) {
  loop_.connect_failed(code, "connect: " + std::string(why));
  back_off(now);
  loop_.attempt_ended(slot_);
}

void Connection::back_off(Instant now) {
  close_socket();
  if (is_retiring() || !loop_.wants_connections()) {
    leaving_ = Leaving::no;
    state_ = State::unused;
    return;
  }
  leaving_ = Leaving::no;  // the next attempt goes where calls go by then
  state_ = State::backing_off;
  const Duration full = std::min(kBackOffMost, kBackOffFirst * (1 << std::min(attempts_, 10U)));
  ++attempts_;
  // Between half and all of it, so that a herd does not come back in step.
  const double share = 0.5 + 0.5 * loop_.random().unit();
  wake_ = now + Duration(static_cast<Duration::rep>(static_cast<double>(full.count()) * share));
  loop_.schedule(slot_, TimerKind::wake, wake_, timers_);
}

void Connection::close_socket() {
  ++life_;
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  driver_.reset();
  tls_.reset();
  std::string().swap(unsent_);
  writing_ = false;
  paused_ = false;
  due_ = false;
  deadline_ = kNever;
  wake_ = kNever;
}

}  // namespace spate::agent
