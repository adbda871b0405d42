// bench-sink: the target that is cheaper than any generator. One thread, one epoll loop on a
// loopback port. It walks frame headers, decodes no HPACK, accepts any method, and answers every
// stream that its client has ended with the same prebuilt unary reply (one
// spate.target.v1.CallResponse of 42, status 0). Being so simple it is also an independent witness:
// it counts what it answered.
//
//   bench-sink [--port 0] [--lifetime 3600]
//
// Prints "sink listening on 127.0.0.1:PORT" when ready; on SIGUSR1, and at its end by SIGTERM or
// SIGINT, one JSON object: answered (requests), connections (open now), accepted, reset (streams
// given up by the client before they ended), protocol_errors (connections dropped for that).
//
// HTTP/2 that it keeps: preface, SETTINGS and PING acknowledged, the peer's connection window
// respected (answers wait for WINDOW_UPDATE), its own replenished. Not kept: stream windows below
// the reply's 21 bytes, because no client has them.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "bench/frames.h"

namespace spate::bench {
namespace {

constexpr std::size_t kReadBytes = 65'536;
constexpr std::size_t kUnsentLimit = 1 << 20;  // of a client that does not read; then it is dropped
constexpr std::uint32_t kReceiveWindow = 1 << 30;

// The reply, and where its three stream ids are. Literals without indexing: the same bytes are
// right on every connection at any time.
struct Reply {
  std::string bytes;
  std::array<std::size_t, 3> stream_at;
  std::uint32_t data_bytes = 0;

  Reply() {
    const std::string headers = std::string("\x88\x0f\x10\x10", 4) + "application/grpc";
    const std::string message =  // CallResponse{result: [{number: 42.0}]}
        grpc_message(std::string_view("\x0a\x09\x09\0\0\0\0\0\0\x45\x40", 11));
    const std::string trailers = std::string("\0\x0b", 2) + "grpc-status" + "\x01" + "0";
    data_bytes = static_cast<std::uint32_t>(message.size());
    const std::string parts[] = {frame(kHeaders, kEndHeaders, 0, headers),
                                 frame(kData, 0, 0, message),
                                 frame(kHeaders, kEndHeaders | kEndStream, 0, trailers)};
    for (std::size_t i = 0; i < 3; ++i) {
      stream_at[i] = bytes.size() + 5;
      bytes += parts[i];
    }
  }
};

struct Connection {
  int fd = -1;
  bool greeted = false;
  std::int64_t send_window = 65'535;  // the peer's, for the whole connection
  std::uint32_t consumed = 0;         // of our own window, since the last update
  std::string partial;                // received, less than a frame
  std::string unsent;                 // what the socket did not take
  std::deque<std::uint32_t> waiting;  // streams whose answer the peer's window does not allow yet
};

struct Counts {
  unsigned long long answered = 0, connections = 0, accepted = 0, reset = 0, protocol_errors = 0;
};

class Sink {
 public:
  explicit Sink(std::uint16_t port);
  void run();

 private:
  void accept_all();
  void on_readable(Connection& connection, bool hung_up);
  bool take(Connection& connection, std::size_t size);  // false: the peer broke the protocol
  void take_frame(Connection& connection, FrameHeader header, const char* at);
  void answer(Connection& connection, std::uint32_t stream);
  bool send_out(Connection& connection);
  void drop(Connection& connection);
  bool on_signal();  // false: end
  void print_counts() const;

  const Reply reply_;
  const std::string hello_ = frame(kSettings, 0, 0, setting(4, 16 << 20)) +
                             frame(kWindowUpdate, 0, 0, u32(kReceiveWindow - 65'535));
  const std::string settings_ack_ = frame(kSettings, kAck, 0, "");
  int listener_ = -1, signals_ = -1, epoll_ = -1;
  Counts counts_;
  std::vector<std::unique_ptr<Connection>> connections_;  // by descriptor
  std::vector<char> in_ = std::vector<char>(kReadBytes + kFrameHeader + kMaxPayload);
  std::string out_;  // for the connection being served
};

void require(bool ok, const char* what) {
  if (ok) return;
  std::perror(what);
  std::exit(1);
}

void watch(int epoll, int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  require(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0, "bench-sink: epoll_ctl");
}

Sink::Sink(std::uint16_t port) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  require(bind(listener_, generic, sizeof address) == 0, "bench-sink: bind");
  require(listen(listener_, 65'535) == 0, "bench-sink: listen");
  socklen_t size = sizeof address;
  require(getsockname(listener_, generic, &size) == 0, "bench-sink: getsockname");

  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGTERM, SIGINT, SIGALRM, SIGUSR1}) sigaddset(&set, number);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signals_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  require(signals_ >= 0 && epoll_ >= 0, "bench-sink: epoll");
  watch(epoll_, listener_, EPOLLIN);
  watch(epoll_, signals_, EPOLLIN);
  std::printf("sink listening on 127.0.0.1:%d\n", ntohs(address.sin_port));
  std::fflush(stdout);
}

void Sink::run() {
  std::vector<epoll_event> events(1024);
  for (;;) {
    const int ready = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), -1);
    require(ready >= 0 || errno == EINTR, "bench-sink: epoll_wait");
    for (int i = 0; i < ready; ++i) {
      const auto [flags, data] = events[static_cast<std::size_t>(i)];
      if (data.fd == listener_) {
        accept_all();
      } else if (data.fd == signals_) {
        if (!on_signal()) return;
      } else if (Connection& connection = *connections_[static_cast<std::size_t>(data.fd)];
                 (flags & EPOLLOUT) == 0 || connection.unsent.empty() || send_out(connection)) {
        if (flags & ~static_cast<std::uint32_t>(EPOLLOUT)) {
          on_readable(connection, (flags & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0);
        }
      }
    }
  }
}

void Sink::accept_all() {
  for (;;) {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    const int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    const auto index = static_cast<std::size_t>(fd);
    if (connections_.size() <= index) connections_.resize(index + 64);
    connections_[index] = std::make_unique<Connection>();
    connections_[index]->fd = fd;
    // All interests once: nothing is ever modified, whatever the connection waits for.
    watch(epoll_, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    ++counts_.connections;
    ++counts_.accepted;
  }
}

// Edge-triggered: a read shorter than the room was the last one, unless the peer has hung up behind
// it.
void Sink::on_readable(Connection& connection, bool hung_up) {
  for (;;) {
    const std::size_t kept = connection.partial.size();
    std::memcpy(in_.data(), connection.partial.data(), kept);
    const ssize_t got = recv(connection.fd, in_.data() + kept, kReadBytes, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return drop(connection);
    out_.clear();
    if (!take(connection, kept + static_cast<std::size_t>(got))) {
      ++counts_.protocol_errors;
      return drop(connection);
    }
    if (!out_.empty()) {
      connection.unsent += out_;
      if (!send_out(connection)) return;
    }
    if (static_cast<std::size_t>(got) < kReadBytes && !hung_up) return;
  }
}

bool Sink::take(Connection& connection, std::size_t size) {
  const char* at = in_.data();
  const char* const end = at + size;
  if (!connection.greeted) {
    const std::size_t compared = std::min(size, kPreface.size());
    if (std::memcmp(at, kPreface.data(), compared) != 0) return false;
    if (compared == kPreface.size()) {
      connection.greeted = true;
      at += compared;
      out_ += hello_;
    }
  }
  while (connection.greeted && end - at >= static_cast<std::ptrdiff_t>(kFrameHeader)) {
    const FrameHeader header = frame_header(at);
    if (header.length > kMaxPayload) return false;
    const auto whole = static_cast<std::ptrdiff_t>(kFrameHeader + header.length);
    if (end - at < whole) break;
    take_frame(connection, header, at);
    at += whole;
  }
  connection.partial.assign(at, end);
  return true;
}

void Sink::take_frame(Connection& connection, FrameHeader header, const char* at) {
  const std::uint32_t stream = get_u32(at + 5);
  switch (header.type) {
    case kData:
      connection.consumed += header.length;
      if (connection.consumed > kReceiveWindow / 2) {
        out_ += frame(kWindowUpdate, 0, 0, u32(connection.consumed));
        connection.consumed = 0;
      }
      [[fallthrough]];
    case kHeaders:
      if (header.flags & kEndStream) {
        if (connection.waiting.empty() && connection.send_window >= reply_.data_bytes) {
          answer(connection, stream);
        } else {
          connection.waiting.push_back(stream);
        }
      }
      break;
    case kWindowUpdate:
      if (stream != 0 || header.length != 4) break;
      connection.send_window += get_u32(at + kFrameHeader);
      while (!connection.waiting.empty() && connection.send_window >= reply_.data_bytes) {
        answer(connection, connection.waiting.front());
        connection.waiting.pop_front();
      }
      break;
    case kSettings:
      if (!(header.flags & kAck)) out_ += settings_ack_;
      break;
    case kPing:
      if (!(header.flags & kAck)) {
        out_ += frame(kPing, kAck, 0, {at + kFrameHeader, header.length});
      }
      break;
    case kRstStream:
      ++counts_.reset;
      break;
    default:
      break;
  }
}

void Sink::answer(Connection& connection, std::uint32_t stream) {
  const std::size_t start = out_.size();
  out_ += reply_.bytes;
  for (const std::size_t at : reply_.stream_at) put_u32(out_.data() + start + at, stream);
  connection.send_window -= reply_.data_bytes;
  ++counts_.answered;
}

// False: the connection is gone.
bool Sink::send_out(Connection& connection) {
  std::string& bytes = connection.unsent;
  const ssize_t sent = send(connection.fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (sent > 0) bytes.erase(0, static_cast<std::size_t>(sent));
  if ((sent < 0 && errno != EAGAIN) || bytes.size() > kUnsentLimit) {
    drop(connection);
    return false;
  }
  return true;
}

void Sink::drop(Connection& connection) {
  const int fd = connection.fd;
  close(fd);
  connections_[static_cast<std::size_t>(fd)].reset();
  --counts_.connections;
}

bool Sink::on_signal() {
  signalfd_siginfo info{};
  while (read(signals_, &info, sizeof info) == sizeof info) {
    print_counts();
    if (info.ssi_signo != SIGUSR1) return false;
  }
  return true;
}

void Sink::print_counts() const {
  std::printf(
      "{\"answered\": %llu, \"connections\": %llu, \"accepted\": %llu, \"reset\": %llu, "
      "\"protocol_errors\": %llu}\n",
      counts_.answered, counts_.connections, counts_.accepted, counts_.reset,
      counts_.protocol_errors);
  std::fflush(stdout);
}

}  // namespace
}  // namespace spate::bench

int main(int argc, char** argv) {
  using namespace spate::bench;
  Sink sink(static_cast<std::uint16_t>(flag(argc, argv, "--port", 0)));
  bound_lifetime(flag(argc, argv, "--lifetime", 3600));
  sink.run();
}
