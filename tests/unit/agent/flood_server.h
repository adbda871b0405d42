#pragma once

// A small HTTP/2 server in a thread, on 127.0.0.1 and a free port, which answers every gRPC call or
// misbehaves as told. With or without TLS.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <nghttp2/nghttp2.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/agent/h2_frames.h"

namespace spate::agent {

struct Misbehaviour {
  bool silent = false;             // takes calls, never answers
  std::uint64_t close_after = 0;   // answers of one connection, then closes with the next call open
  std::uint64_t goaway_after = 0;  // answers of one connection, then GOAWAY
  bool garbage = false;            // answers the preface with something else
  std::string trailers_only{};     // an HPACK block sent in place of an answer
  SSL_CTX* tls = nullptr;          // not owned; outlives the server
};

// What a request's headers said, as far as parameters are in them.
struct Heard {
  std::string path, encoding, timeout, metadata;
  auto operator<=>(const Heard&) const = default;
};

class FloodServer {
 public:
  explicit FloodServer(Misbehaviour behaviour = {}) : behaviour_(behaviour) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ::bind(listener_, reinterpret_cast<sockaddr*>(&address), size);
    ::listen(listener_, 1024);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    [[maybe_unused]] const int made = ::pipe(stop_.data());
    thread_ = std::thread([this] { run(); });
  }
  ~FloodServer() {
    [[maybe_unused]] const auto n = ::write(stop_[1], "x", 1);
    thread_.join();
    for (const int fd : {listener_, stop_[0], stop_[1]}) ::close(fd);
  }

  std::uint16_t port() const { return port_; }
  std::uint64_t calls() const { return calls_; }
  std::uint64_t accepted() const { return accepted_; }
  std::uint64_t resets() const { return resets_; }
  std::uint64_t open() const { return open_; }
  // Requests by what their headers said, and by the first byte of their messages' prefix.
  std::map<Heard, std::uint64_t> heard() {
    const std::lock_guard lock(mutex_);
    return heard_;
  }
  std::map<char, std::uint64_t> flags() {
    const std::lock_guard lock(mutex_);
    return flags_;
  }
  std::set<std::string> messages() {  // the first thousand different ones
    const std::lock_guard lock(mutex_);
    return messages_;
  }
  std::string last_message() {
    const std::lock_guard lock(mutex_);
    return last_message_;
  }

 private:
  struct Peer {
    std::string in;
    std::string block;  // of headers, in pieces
    std::uint64_t answers = 0;
    bool greeted = false;
    std::unique_ptr<SSL, decltype(&SSL_free)> ssl{nullptr, SSL_free};
    std::unique_ptr<nghttp2_hd_inflater, decltype(&nghttp2_hd_inflate_del)> headers{
        nullptr, nghttp2_hd_inflate_del};
  };

  void welcome() {
    const int fd = ::accept(listener_, nullptr, nullptr);
    if (fd < 0) return;
    ++accepted_;
    ++open_;
    Peer& peer = peers_[fd];
    nghttp2_hd_inflater* inflater = nullptr;
    nghttp2_hd_inflate_new(&inflater);
    peer.headers.reset(inflater);
    if (behaviour_.tls == nullptr) return;
    peer.ssl.reset(SSL_new(behaviour_.tls));
    SSL_set_bio(peer.ssl.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_accept_state(peer.ssl.get());
  }

  // TLS off, if there is any; and on again.
  static std::string opened(Peer& peer, std::string_view bytes) {
    if (!peer.ssl) return std::string(bytes);
    BIO_write(SSL_get_rbio(peer.ssl.get()), bytes.data(), static_cast<int>(bytes.size()));
    std::string plain;
    char buffer[16384];
    for (int n = 0; (n = SSL_read(peer.ssl.get(), buffer, sizeof buffer)) > 0;)
      plain.append(buffer, static_cast<std::size_t>(n));
    return plain;
  }
  static std::string sealed(Peer& peer, const std::string& plain) {
    if (!peer.ssl) return plain;
    if (!plain.empty()) SSL_write(peer.ssl.get(), plain.data(), static_cast<int>(plain.size()));
    std::string cipher(BIO_ctrl_pending(SSL_get_wbio(peer.ssl.get())), '\0');
    BIO_read(SSL_get_wbio(peer.ssl.get()), cipher.data(), static_cast<int>(cipher.size()));
    return cipher;
  }

  void hear(Peer& peer, std::string block) {
    Heard heard;
    auto* in = reinterpret_cast<std::uint8_t*>(block.data());
    std::size_t left = block.size();
    for (;;) {
      nghttp2_nv field;
      int flags = 0;
      const auto n = nghttp2_hd_inflate_hd2(peer.headers.get(), &field, &flags, in, left, 1);
      if (n < 0) {
        heard.path = "HPACK error";
        break;
      }
      in += n;
      left -= static_cast<std::size_t>(n);
      if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0) {
        const std::string name(reinterpret_cast<char*>(field.name), field.namelen);
        const std::string value(reinterpret_cast<char*>(field.value), field.valuelen);
        if (name == ":path") heard.path = value;
        if (name == "grpc-encoding") heard.encoding = value;
        if (name == "grpc-timeout") heard.timeout = value;
        if (name == "x-test") heard.metadata = value;
      }
      if ((flags & NGHTTP2_HD_INFLATE_FINAL) != 0) {
        nghttp2_hd_inflate_end_headers(peer.headers.get());
        break;
      }
    }
    const std::lock_guard lock(mutex_);
    ++heard_[heard];
  }

  void run() {
    for (;;) {
      std::vector<pollfd> fds{{stop_[0], POLLIN, 0}, {listener_, POLLIN, 0}};
      for (const auto& [fd, peer] : peers_) fds.push_back({fd, POLLIN, 0});
      ::poll(fds.data(), fds.size(), -1);
      if (fds[0].revents != 0) break;
      if (fds[1].revents != 0) welcome();
      for (std::size_t i = 2; i < fds.size(); ++i)
        if (fds[i].revents != 0 && !serve(fds[i].fd)) {
          ::close(fds[i].fd);
          peers_.erase(fds[i].fd);
          --open_;
        }
    }
    for (const auto& [fd, peer] : peers_) ::close(fd);
  }

  bool serve(int fd) {
    Peer& peer = peers_[fd];
    char buffer[65536];
    const ssize_t size = ::recv(fd, buffer, sizeof buffer, 0);
    if (size <= 0) return false;
    peer.in += opened(peer, {buffer, static_cast<std::size_t>(size)});
    std::string out;
    if (!peer.greeted && !peer.in.empty()) {
      peer.greeted = true;
      // A window for all calls there may be: this server never gives any of it back.
      out = behaviour_.garbage
                ? "HTTP/1.1 400 Bad Request\r\n\r\n"
                : h2::frame(h2::kSettings, 0, 0, {}) +
                      h2::frame(h2::kWindowUpdate, 0, 0, h2::u32(0x7fff0000 - 65535));
    }
    for (const h2::Frame& frame : h2::take_frames(peer.in)) {
      if (frame.type == h2::kSettings && (frame.flags & h2::kAck) == 0)
        out += h2::frame(h2::kSettings, h2::kAck, 0, {});
      if (frame.type == h2::kPing && (frame.flags & h2::kAck) == 0)
        out += h2::frame(h2::kPing, h2::kAck, 0, frame.payload);
      if (frame.type == h2::kRstStream) ++resets_;
      if (frame.type == h2::kHeaders || frame.type == h2::kContinuation) {
        peer.block += frame.payload;
        if ((frame.flags & h2::kEndHeaders) != 0) hear(peer, std::exchange(peer.block, {}));
      }
      if (frame.type == h2::kData && frame.payload.size() >= 5) {
        const std::lock_guard lock(mutex_);
        ++flags_[frame.payload[0]];
        last_message_ = frame.payload.substr(5);
        if (messages_.size() < 1000) messages_.insert(last_message_);
      }
      if (frame.type == h2::kHeaders && !behaviour_.trailers_only.empty())
        out += h2::frame(h2::kHeaders, h2::kEndHeaders | h2::kEndStream, frame.stream,
                         behaviour_.trailers_only);
      else if (frame.ends_stream() && !answer(peer, frame.stream, out))
        return false;
    }
    out = sealed(peer, out);
    return out.empty() || ::send(fd, out.data(), out.size(), MSG_NOSIGNAL) > 0;
  }

  bool answer(Peer& peer, std::uint32_t stream, std::string& out) {
    ++calls_;
    if (behaviour_.silent) return true;
    if (behaviour_.close_after != 0 && peer.answers >= behaviour_.close_after) return false;
    out += h2::answer(stream);
    if (++peer.answers == behaviour_.goaway_after)
      out += h2::frame(h2::kGoaway, 0, 0, h2::u32(stream) + h2::u32(0));
    return true;
  }

  const Misbehaviour behaviour_;
  int listener_ = -1;
  std::array<int, 2> stop_{};
  std::uint16_t port_ = 0;
  std::atomic<std::uint64_t> calls_{0}, accepted_{0}, resets_{0}, open_{0};
  std::mutex mutex_;
  std::map<Heard, std::uint64_t> heard_;
  std::map<char, std::uint64_t> flags_;
  std::string last_message_;
  std::set<std::string> messages_;
  std::map<int, Peer> peers_;
  std::thread thread_;
};

}  // namespace spate::agent
