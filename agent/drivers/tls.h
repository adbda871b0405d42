#pragma once

// TLS for the flood: a context shared by all connections of a run, and a filter per connection
// between the socket's ciphertext and the driver's plaintext. No sockets here: bytes in, bytes out.
// OpenSSL stays behind the .cc.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/result.h"

struct ssl_st;
struct ssl_ctx_st;

namespace spate::agent {

// PEM files. `certificate` and `key` are both empty when no client certificate is to be shown.
struct TlsFiles {
  std::string ca;
  std::string certificate;
  std::string key;
};

// Verifies the target's certificate against the CA and `host` (a DNS name or an IP literal, as the
// URL names it), TLS 1.2 or newer, ALPN h2. Immutable; may be shared between threads.
class TlsContext {
 public:
  static Result<std::shared_ptr<const TlsContext>> load(const TlsFiles& files, std::string host);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  const std::string& host() const { return host_; }

 private:
  friend class TlsFilter;
  TlsContext(ssl_ctx_st* context, std::string ca_file, std::string host);
  ssl_ctx_st* context_;
  std::string ca_file_;
  std::string host_;
};

// One connection's TLS. One thread. After an error nothing but destruction makes sense; what was
// appended to `cipher` (an alert) may still be sent.
class TlsFilter {
 public:
  // `context` outlives the filter.
  explicit TlsFilter(const TlsContext& context);
  ~TlsFilter();
  TlsFilter(const TlsFilter&) = delete;
  TlsFilter& operator=(const TlsFilter&) = delete;

  // Starts the handshake: appends the first flight to `cipher`.
  Result<void> start(std::string& cipher);
  // The handshake is done; plaintext may flow.
  bool is_open() const { return open_; }
  // The peer ended its side.
  bool is_closed_by_peer() const { return closed_by_peer_; }

  // Ciphertext from the peer; appends what it decrypts to and what has to be sent in answer.
  Result<void> receive(std::span<const std::uint8_t> bytes, std::string& plain,
                       std::string& cipher);
  // Encrypts; requires is_open().
  Result<void> send(std::string_view plain, std::string& cipher);
  // Appends close_notify.
  void close(std::string& cipher);

 private:
  Result<void> handshake();
  Error failure(const char* doing) const;

  const TlsContext& context_;
  ssl_st* ssl_ = nullptr;
  bool open_ = false;
  bool closed_by_peer_ = false;
  // What OpenSSL reads from and writes to, during a call only.
  struct Channel {
    std::span<const std::uint8_t> in;
    std::string* out = nullptr;
  } channel_;
  friend struct TlsChannelMethod;
};

}  // namespace spate::agent
