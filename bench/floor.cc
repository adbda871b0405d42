// bench-floor: what a gRPC flood costs at least on this machine. One thread on bare epoll; N
// connections with one call in flight each; every request is the same prebuilt bytes with the
// stream id patched in; of the answers only frame headers are looked at. It has no clock per
// request, no histogram, no checks: nobody should flood with it, and nothing that floods honestly
// can be cheaper.
//
//   bench-floor --port PORT [--connections 100] [--seconds 2]
//
// At the end one JSON object: requests (answered), errors, cpu_us (user + system since the
// connections stood), rss_kb, connect_cpu_us.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <vector>

#include "bench/frames.h"

namespace spate::bench {
namespace {

volatile std::sig_atomic_t g_over = 0;  // set by the timer's signal: no clock is read on the way

constexpr std::string_view kPath = "/spate.target.v1.Calls/Call";
// CallRequest{call: [{add: [{number: 40}, {number: 2}]}]}; run.py gives every peer the same 29
// bytes.
constexpr std::string_view kMessage(
    "\x0a\x16\x0a\x09\x21\0\0\0\0\0\0\x44\x40\x0a\x09\x21\0\0\0\0\0\0\0\x40", 24);

struct Connection {
  int fd = -1;
  std::uint32_t stream = 1;
  std::string partial;
};

std::string sized(std::string_view text) {
  return static_cast<char>(text.size()) + std::string(text);
}

// The first request puts five header fields in the peer's table; the later ones name them by a byte
// each.
struct Requests {
  std::string first, next;
  std::size_t headers_stream_at = 5, data_stream_at = 0;

  explicit Requests(std::uint16_t port) {
    const std::string authority = "127.0.0.1:" + std::to_string(port);
    const std::string spelled =
        "\x83\x86"  // :method POST, :scheme http
        "\x44" +
        sized(kPath) + "\x41" + sized(authority) + "\x40" + sized("te") + sized("trailers") +
        "\x5f" + sized("application/grpc") + "\x7a" + sized("spate-bench");
    const std::string indexed = "\x83\x86\xc2\xc1\xc0\xbf\xbe";
    const std::string data = frame(kData, kEndStream, 1, grpc_message(kMessage));
    first = std::string(kPreface) + frame(kSettings, 0, 0, setting(2, 0)) +
            frame(kWindowUpdate, 0, 0, u32(0x7f000000)) + frame(kHeaders, kEndHeaders, 1, spelled) +
            data;
    next = frame(kHeaders, kEndHeaders, 1, indexed);
    data_stream_at = next.size() + 5;
    next += data;
  }
};

class Floor {
 public:
  Floor(std::uint16_t port, unsigned connections) : requests_(port) {
    connect_all(port, connections);
  }
  void run();
  unsigned long long answered() const { return answered_; }
  unsigned long long errors() const { return errors_; }

 private:
  void connect_all(std::uint16_t port, unsigned count);
  void on_readable(Connection& connection);
  bool take(std::size_t size, std::string& partial);  // true: an answer has ended
  void send_bytes(const Connection& connection, std::string_view bytes);

  Requests requests_;
  const std::string settings_ack_ = frame(kSettings, kAck, 0, "");
  int epoll_ = epoll_create1(EPOLL_CLOEXEC);
  unsigned long long answered_ = 0, errors_ = 0;
  std::vector<Connection> connections_;
  std::vector<char> in_ = std::vector<char>(65'536);
  std::string replies_;  // acknowledgements to send along with the next request
};

// Blocking connects: simple, and they cannot overrun the listener's backlog.
void Floor::connect_all(std::uint16_t port, unsigned count) {
  connections_.resize(count);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (Connection& connection : connections_) {
    connection.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(connection.fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      std::perror("bench-floor: connect");
      std::exit(1);
    }
    const int one = 1;
    setsockopt(connection.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(connection.fd, F_SETFL, O_NONBLOCK);
    epoll_event event{};
    event.events = EPOLLIN | EPOLLET;
    event.data.ptr = &connection;
    epoll_ctl(epoll_, EPOLL_CTL_ADD, connection.fd, &event);
  }
}

void Floor::run() {
  for (const Connection& connection : connections_) send_bytes(connection, requests_.first);
  std::vector<epoll_event> events(1024);
  while (!g_over) {
    const int ready = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 100);
    for (int i = 0; i < ready; ++i) {
      on_readable(*static_cast<Connection*>(events[static_cast<std::size_t>(i)].data.ptr));
    }
  }
}

void Floor::on_readable(Connection& connection) {
  const std::size_t kept = connection.partial.size();
  if (kept > 0) std::memcpy(in_.data(), connection.partial.data(), kept);
  const ssize_t got = recv(connection.fd, in_.data() + kept, in_.size() - kept, 0);
  if (got < 0 && errno == EAGAIN) return;
  if (got <= 0) {
    ++errors_;
    close(connection.fd);
    return;
  }
  const bool ended = take(kept + static_cast<std::size_t>(got), connection.partial);
  if (ended) {
    ++answered_;
    connection.stream += 2;
    put_u32(requests_.next.data() + requests_.headers_stream_at, connection.stream);
    put_u32(requests_.next.data() + requests_.data_stream_at, connection.stream);
  }
  if (replies_.empty()) {
    if (ended) send_bytes(connection, requests_.next);
    return;
  }
  if (ended) replies_ += requests_.next;
  send_bytes(connection, replies_);
  replies_.clear();
}

bool Floor::take(std::size_t size, std::string& partial) {
  bool ended = false;
  const char* at = in_.data();
  const char* const end = at + size;
  while (end - at >= static_cast<std::ptrdiff_t>(kFrameHeader)) {
    const FrameHeader header = frame_header(at);
    const auto whole = static_cast<std::ptrdiff_t>(kFrameHeader + header.length);
    if (end - at < whole) break;
    if (header.type == kHeaders || header.type == kData) {
      ended |= (header.flags & kEndStream) != 0;
    } else if (header.type == kSettings && !(header.flags & kAck)) {
      replies_ += settings_ack_;
    } else if (header.type == kPing && !(header.flags & kAck)) {
      replies_ += frame(kPing, kAck, 0, {at + kFrameHeader, header.length});
    } else if (header.type == kRstStream || header.type == kGoAway) {
      ++errors_;
    }
    at += whole;
  }
  if (at != end || !partial.empty()) partial.assign(at, end);
  return ended;
}

// A request is far smaller than an empty socket buffer, and only one is ever under way.
void Floor::send_bytes(const Connection& connection, std::string_view bytes) {
  const ssize_t sent = send(connection.fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(bytes.size())) ++errors_;
}

long cpu_us() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1'000'000 + usage.ru_utime.tv_usec +
         usage.ru_stime.tv_usec;
}

long rss_kb() {
  long total = 0, resident = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  if (std::fscanf(file, "%ld %ld", &total, &resident) != 2) resident = 0;
  std::fclose(file);
  return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

}  // namespace
}  // namespace spate::bench

int main(int argc, char** argv) {
  using namespace spate::bench;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  struct sigaction action {};
  action.sa_handler = [](int) { g_over = 1; };
  for (const int number : {SIGALRM, SIGTERM, SIGINT}) sigaction(number, &action, nullptr);
  const auto port = static_cast<std::uint16_t>(flag(argc, argv, "--port", 0));
  const unsigned connections = flag(argc, argv, "--connections", 100);

  const long at_start = cpu_us();
  Floor floor(port, connections);
  const long connected = cpu_us();
  alarm(flag(argc, argv, "--seconds", 2));
  floor.run();
  std::printf(
      "{\"connections\": %u, \"requests\": %llu, \"errors\": %llu, \"cpu_us\": %ld, \"rss_kb\": "
      "%ld, "
      "\"connect_cpu_us\": %ld}\n",
      connections, floor.answered(), floor.errors(), cpu_us() - connected, rss_kb(),
      connected - at_start);
}
