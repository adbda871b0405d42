#include "agent/connection.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/address.hpp>
#include <cerrno>
#include <utility>

#include "agent/worker_loop.h"
#include "common/units.h"

namespace spate::agent {
namespace asio = boost::asio;
using boost::system::error_code;

namespace {

// TCP, TLS and the target's SETTINGS together.
constexpr Duration kConnectTimeout = std::chrono::seconds(10);
constexpr Duration kBackOffFirst = std::chrono::milliseconds(50);
constexpr Duration kBackOffMost = std::chrono::seconds(5);

asio::ip::tcp::endpoint endpoint_of(const Assignment& assignment) {
  const auto& bytes = assignment.address.bytes();
  if (assignment.address.is_v4()) {
    const asio::ip::address_v4::bytes_type v4{bytes[12], bytes[13], bytes[14], bytes[15]};
    return {asio::ip::address_v4(v4), assignment.target.port};
  }
  return {asio::ip::address_v6(bytes), assignment.target.port};
}

// For people, and the same for every connection, so that the tally stays short.
std::string describe(const error_code& error) {
  if (error == asio::error::eof) return "closed by the target";
  switch (error.value()) {
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
      return error.message();
  }
}

std::uint32_t code_of(const error_code& error) {
  return error == asio::error::eof ? 0 : static_cast<std::uint32_t>(error.value());
}

std::span<const std::uint8_t> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

}  // namespace

struct Connection::ReadHandler {
  using allocator_type = RoomAllocator<void>;

  Connection* connection;
  std::uint32_t life;

  allocator_type get_allocator() const { return allocator_type(connection->room_); }
  void operator()(const error_code& error, std::size_t size) const {
    if (life == connection->life_) connection->read_done(error, size);
  }
};

Connection::Connection(WorkerLoop& loop, std::uint32_t slot, std::uint64_t number)
    : loop_(loop), socket_(loop.io()), number_(number), slot_(slot) {}

// ---- input

void Connection::start_read() {
  socket_.async_read_some(asio::buffer(buffer_), ReadHandler{this, life_});
}

void Connection::read_done(const error_code& error, std::size_t size) {
  const Instant now = loop_.tick();
  if (error) return lost(code_of(error), describe(error), now);
  if (!take_bytes(buffer_.data(), size, now)) return;
  if (size == buffer_.size() && !read_rest(now)) return;
  if (go_on(now)) start_read();
}

// The connection's own buffer was filled: there may be more, read it into the worker's. A read that
// fills less tells Asio that the socket is empty, which saves it a vain recv.
bool Connection::read_rest(Instant now) {
  for (;;) {
    error_code error;
    const std::size_t size =
        socket_.read_some(asio::buffer(loop_.scratch(), WorkerLoop::kScratchBytes), error);
    if (error == asio::error::would_block) return true;
    if (error) {
      lost(code_of(error), describe(error), now);
      return false;
    }
    if (!take_bytes(loop_.scratch(), size, now)) return false;
    if (size < WorkerLoop::kScratchBytes) return true;
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
    if (due_ && loop_.may_call() && !retiring_ && driver_->may_start()) start_call(now);
    if (!flush(now)) return false;
  } while (driver_->has_end());
  if (driver_->is_broken()) [[unlikely]] {
    const std::string why = driver_->error();
    broken(why, now);
    return false;
  }
  if (state_ != State::ready || driver_->has_call()) [[likely]]
    return true;
  if (retiring_) {
    close_politely(now);
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
  if (state_ != State::ready) return;
  paused_ = true;
  wake_ = intended;
  loop_.schedule(slot_, TimerKind::wake, wake_, timers_);
}

void Connection::shorten_pause(Instant until) {
  if (state_ != State::ready || !paused_ || wake_ <= until) return;
  wake_ = until;
  loop_.schedule(slot_, TimerKind::wake, wake_, timers_);
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
  const EpochPart& load = loop_.load();
  if (load.calls_per_loop != 0 && ++calls_in_loop_ >= load.calls_per_loop) {
    calls_in_loop_ = 0;
    if (load.pause.count() > 0) {
      due_ = false;
      begin_calls(now + load.pause);
      return;
    }
  }
  due_ = true;
  next_intended_ = now;
}

void Connection::start_call(Instant now) {
  due_ = false;
  driver_->start(loop_.render(number_), loop_.message_is_constant());
  times_ = {next_intended_, now};
  loop_.recorder().request_sent(times_);
  loop_.request_sent(now);
  const Duration timeout = loop_.assignment().timeout;
  deadline_ = timeout.count() > 0 ? now + timeout : kNever;
  loop_.schedule(slot_, TimerKind::deadline, deadline_, timers_);
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
  error_code error;
  std::size_t size = socket_.write_some(asio::buffer(bytes.data(), bytes.size()), error);
  if (error == asio::error::would_block) {
    size = 0;
  } else if (error) {
    lost(code_of(error), describe(error), now);
    return false;
  }
  loop_.recorder().bytes_sent(size);
  if (size < bytes.size()) {
    unsent_.assign(bytes.substr(size));
    wait_until_writable();
  }
  return true;
}

void Connection::wait_until_writable() {
  writing_ = true;
  socket_.async_wait(Socket::wait_write, [this, life = life_](const error_code& error) {
    if (life == life_) writable(error);
  });
}

void Connection::writable(const error_code& error) {
  const Instant now = loop_.tick();
  if (error) return lost(code_of(error), describe(error), now);
  writing_ = false;
  const std::string rest = std::exchange(unsent_, {});
  if (send_bytes(rest, now) && !writing_) go_on(now);
}

// ---- life

void Connection::want() {
  state_ = State::queued;
  retiring_ = false;
  attempts_ = 0;
  calls_in_loop_ = 0;
  loop_.enqueue(slot_);
}

void Connection::connect() {
  const Instant now = loop_.tick();
  state_ = State::connecting;
  const auto endpoint = endpoint_of(loop_.assignment());
  error_code error;
  socket_.open(endpoint.protocol(), error);
  if (!error) socket_.non_blocking(true, error);
  if (!error) socket_.set_option(asio::ip::tcp::no_delay(true), error);
  if (error) return connect_failed(code_of(error), describe(error), now);
  deadline_ = now + kConnectTimeout;
  loop_.schedule(slot_, TimerKind::deadline, deadline_, timers_);
  socket_.async_connect(endpoint, [this, life = life_](const error_code& failure) {
    if (life == life_) connected(failure);
  });
}

void Connection::connected(const error_code& error) {
  const Instant now = loop_.tick();
  if (error) return connect_failed(code_of(error), describe(error), now);
  state_ = State::negotiating;
  driver_.emplace(loop_.profile());
  if (const auto& tls = loop_.assignment().tls) {
    tls_ = std::make_unique<TlsFilter>(*tls);
    std::string& cipher = loop_.cipher();
    cipher.clear();
    if (const auto result = tls_->start(cipher); !result)
      return lost(0, result.error().message, now);
    if (!send_bytes(cipher, now)) return;
  }
  if (go_on(now)) start_read();
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
    if (!loop_.may_call()) return;
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
  loop_.recorder().request_failed(Outcome::timed_out, 0,
                                  "no answer within " + format_duration(loop_.assignment().timeout),
                                  times_, now);
  plan_next_call(now);
  loop_.call_finished(now);
  go_on(now);
}

void Connection::retire(Instant now) {
  retiring_ = true;
  if (has_call()) return;
  if (state_ == State::ready) return close_politely(now);
  const bool was_trying = state_ == State::connecting || state_ == State::negotiating;
  close_socket();
  state_ = State::unused;
  if (was_trying) loop_.attempt_ended(slot_);
}

void Connection::close_politely(Instant now) {
  driver_->say_goodbye();
  if (!flush(now)) return;
  loop_.recorder().connection_closed(true);
  close_socket();
  state_ = State::unused;
}

void Connection::cut_off(Instant now) {
  if (!has_call()) return;
  driver_->cancel_call();
  loop_.recorder().request_failed(Outcome::cancelled, 0, "cut off by the end of the drain", times_,
                                  now);
}

void Connection::close_for_good() {
  if (state_ == State::ready && !writing_ && !driver_->is_broken()) {
    const std::uint32_t life = life_;
    driver_->say_goodbye();
    retiring_ = true;  // if the flush fails, do not come back
    flush(loop_.tick());
    if (life != life_) return;
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
  loop_.recorder().connection_protocol_error(has_open_call ? std::string_view() : why);
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
  if (retiring_ || !loop_.wants_connections()) {
    retiring_ = false;
    state_ = State::unused;
    return;
  }
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
  error_code ignored;
  socket_.close(ignored);
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
