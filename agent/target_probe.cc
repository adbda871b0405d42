#include "agent/target_probe.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "agent/drivers/http2_grpc.h"
#include "agent/drivers/tls.h"
#include "common/units.h"

namespace spate::agent {
namespace {

// A server that does not know a method says so at once; one that knows it waits for the request.
// How long to listen after it has answered our PING, which it read after the request's headers.
constexpr Duration kListenAfterPing = std::chrono::milliseconds(300);
constexpr std::uint32_t kUnimplemented = 12;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

class Probe {
 public:
  Probe(const PreparedCall& call, Instant deadline)
      : call_(call),
        route_(*call.route),
        deadline_(deadline),
        fd_(::socket(route_.address.is_v4() ? AF_INET : AF_INET6,
                     SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
        profile_(call, false),
        driver_(engine_, profile_) {}

  Result<void> run();

 private:
  Result<void> connect();
  Result<void> start_tls();
  Result<void> greet();
  Result<void> ask();
  // Sends what is to be sent, waits for bytes until `until`, takes them. False: nothing came.
  Result<bool> exchange(Instant until);
  Result<void> send_all(std::string_view bytes);
  Result<void> take(std::span<const std::uint8_t> bytes);
  Result<void> judge(const CallEnd& end) const;
  // False: the time is over.
  bool wait_for(short events, Instant until) const;
  Error failed(const std::string& text) const;
  Error failed(int error) const;
  Error not_http2() const;

  const PreparedCall& call_;
  const Route& route_;
  const Instant deadline_;
  Descriptor fd_;
  std::optional<TlsFilter> tls_;
  GrpcEngine engine_;
  GrpcProfile profile_;
  GrpcConnection driver_;
  bool has_answered_ = false;  // any byte
  bool is_closed_ = false;
};

Error Probe::failed(const std::string& text) const {
  std::string where = route_.target.to_string();
  if (const std::string address = route_.address.to_string(); address != route_.target.host)
    where += " (" + address + ")";
  return {ErrorCode::unavailable, "target " + where + ": " + text};
}

Error Probe::failed(int error) const {
  switch (error) {
    case ECONNREFUSED:
      return failed("connection refused; is the server running, and is the port right?");
    case ENETUNREACH:
    case EHOSTUNREACH:
      return failed("no route to it from this machine");
    case ETIMEDOUT:
      return failed(
          "no answer to the connection attempt; is the address right, is a firewall between?");
    default:
      return failed(std::strerror(error));
  }
}

Error Probe::not_http2() const {
  if (route_.tls != nullptr) return failed("answered over TLS, but does not speak HTTP/2");
  return failed(
      "answered, but does not speak HTTP/2 (did you mean grpcs://, or is this a web server's "
      "port?)");
}

bool Probe::wait_for(short events, Instant until) const {
  for (;;) {
    const Duration left = std::min(until, deadline_) - BootClock::now();
    if (left.count() <= 0) return false;
    pollfd poll_fd{fd_.get(), events, 0};
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    const int ready = ::poll(&poll_fd, 1, static_cast<int>(std::min<std::int64_t>(ms, 60'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

Result<void> Probe::connect() {
  if (fd_.get() < 0) return failed(errno);
  const auto& bytes = route_.address.bytes();
  sockaddr_storage storage{};
  socklen_t size = 0;
  if (route_.address.is_v4()) {
    auto& address = reinterpret_cast<sockaddr_in&>(storage);
    address.sin_family = AF_INET;
    address.sin_port = htons(route_.target.port);
    std::memcpy(&address.sin_addr, bytes.data() + 12, 4);
    size = sizeof address;
  } else {
    auto& address = reinterpret_cast<sockaddr_in6&>(storage);
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(route_.target.port);
    std::memcpy(&address.sin6_addr, bytes.data(), bytes.size());
    size = sizeof address;
  }
  const int on = 1;
  ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&storage), size) == 0) return {};
  if (errno != EINPROGRESS) return failed(errno);
  if (!wait_for(POLLOUT, deadline_)) return failed(ETIMEDOUT);
  int error = 0;
  socklen_t error_size = sizeof error;
  ::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &error_size);
  if (error != 0) return failed(error);
  return {};
}

Result<void> Probe::send_all(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EINTR) {
      if (!wait_for(POLLOUT, deadline_)) return failed("does not take what is sent to it");
    } else if (errno == EPIPE || errno == ECONNRESET) {
      is_closed_ = true;
      return {};
    } else {
      return failed(errno);
    }
  }
  return {};
}

Result<void> Probe::take(std::span<const std::uint8_t> bytes) {
  has_answered_ = true;
  if (!tls_) {
    driver_.receive(bytes);
    return {};
  }
  std::string plain;
  std::string cipher;
  const auto result = tls_->receive(bytes, plain, cipher);
  if (auto sent = send_all(cipher); !sent) return sent;
  if (!result) return failed(result.error().message);
  driver_.receive({reinterpret_cast<const std::uint8_t*>(plain.data()), plain.size()});
  if (tls_->is_closed_by_peer()) is_closed_ = true;
  return {};
}

Result<bool> Probe::exchange(Instant until) {
  if (!tls_ || tls_->is_open()) {
    std::string out;
    driver_.write(out, SIZE_MAX);
    if (tls_ && !out.empty()) {
      std::string cipher;
      if (auto sealed = tls_->send(out, cipher); !sealed) return failed(sealed.error().message);
      out = std::move(cipher);
    }
    if (auto sent = send_all(out); !sent) return sent.error();
    if (driver_.is_broken()) return true;
  }
  if (!wait_for(POLLIN, until)) return false;
  std::uint8_t buffer[16 * 1024];
  const ssize_t size = ::recv(fd_.get(), buffer, sizeof buffer, 0);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (size <= 0) {
    is_closed_ = true;
    return true;
  }
  if (auto taken = take({buffer, static_cast<std::size_t>(size)}); !taken) return taken.error();
  return true;
}

Result<void> Probe::start_tls() {
  if (route_.tls == nullptr) return {};
  tls_.emplace(*route_.tls);
  std::string cipher;
  if (auto started = tls_->start(cipher); !started) return failed(started.error().message);
  if (auto sent = send_all(cipher); !sent) return sent;
  while (!tls_->is_open()) {
    auto came = exchange(deadline_);
    if (!came) return came.error();
    if (is_closed_)
      return failed(
          has_answered_
              ? "closed the connection during the TLS handshake; does it accept this "
                "agent's certificate?"
              : "closed the connection instead of a TLS handshake (did you mean grpc://?)");
    if (!*came) return failed("no TLS handshake in time (did you mean grpc://?)");
  }
  return {};
}

Result<void> Probe::greet() {
  while (!driver_.is_ready()) {
    auto came = exchange(deadline_);
    if (!came) return came.error();
    if (driver_.is_ready()) break;
    if (driver_.is_broken()) return not_http2();
    if (is_closed_) {
      if (has_answered_) return not_http2();
      return failed(route_.tls != nullptr
                        ? "closed the connection; does it accept this agent's certificate?"
                        : "closed the connection without an answer (did you mean grpcs://?)");
    }
    if (!*came) return failed("connected, but no HTTP/2 answer in time");
  }
  return {};
}

Result<void> Probe::judge(const CallEnd& end) const {
  switch (end.outcome) {
    case Outcome::application_error:
      // Any other status comes from a server that knows the method and dislikes the request.
      if (end.code == kUnimplemented)
        return failed("method " + call_.method_path + " is not known to the target (" +
                      std::string(end.text) + ")");
      return {};
    case Outcome::bad_response:
      return failed("speaks HTTP/2, but not gRPC (" + std::string(end.text) + ")");
    case Outcome::protocol_error:
      return failed("broke the HTTP/2 protocol (" + std::string(end.text) + ")");
    default:
      return {};
  }
}

Result<void> Probe::ask() {
  if (!driver_.may_start()) return {};  // no stream to ask on now; the flood will wait and see
  driver_.start_unfinished();
  driver_.ping();
  Instant until = deadline_;
  bool ping_seen = false;
  for (;;) {
    auto came = exchange(until);
    if (!came) return came.error();
    if (const auto end = driver_.take_end()) return judge(*end);
    if (driver_.is_broken()) return failed("broke the HTTP/2 protocol (" + driver_.error() + ")");
    if (is_closed_) return failed("closed the connection when it was asked for the method");
    if (driver_.is_ping_answered() && !ping_seen) {
      ping_seen = true;
      until = std::min(deadline_, BootClock::now() + kListenAfterPing);
    }
    if (*came) continue;
    if (!ping_seen) return failed("connected, but does not answer in time");
    break;
  }
  driver_.cancel_call();
  driver_.say_goodbye();
  (void)exchange(BootClock::now());
  return {};
}

Result<void> Probe::run() {
  for (const auto step : {&Probe::connect, &Probe::start_tls, &Probe::greet, &Probe::ask})
    if (auto done = (this->*step)(); !done) return done;
  return {};
}

}  // namespace

Result<void> probe_target(const PreparedCall& call, Duration timeout) {
  return Probe(call, BootClock::now() + timeout).run();
}

}  // namespace spate::agent
