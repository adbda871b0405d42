#pragma once

// The whole target put together: the flood port, the statistics port, the pool and the log. Start
// reading here; the life of a request is in grpc_service.h.
//
//   flood port  spate.target.v1.Calls, grpc.health.v1, server reflection; perhaps two of them, one
//               with TLS and one without, that lead to the same service and counters
//   stats port  spate.target.v1.Stats, with threads of its own
//
// The owner calls start() and stop() from one thread. Listening follows rpc/grpc_settings.h:
// loopback, or mutual TLS.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/endpoint.h"
#include "common/result.h"
#include "rpc/grpc_settings.h"
#include "target-server/counters.h"
#include "target-server/memory_log.h"
#include "target-server/pool.h"

namespace spate::target_server {

// A flood is thousands of connections with a call or a few on each, not one connection with
// thousands of calls.
inline constexpr int kMaxStreamsPerConnection = 1000;
inline constexpr int kMaxRequestBytes = 4 * 1024 * 1024;
inline constexpr int kMaxMetadataBytes = 16 * 1024;

class Target {
 public:
  struct Options {
    Endpoint listen{"127.0.0.1", 7000};
    Endpoint stats{"127.0.0.1", 7001};
    std::optional<Endpoint> listen_plain;  // a second flood port, never with TLS: loopback only
    rpc::TlsFiles tls;
    Pool::Options pool;
    bool compress = false;  // answers, where the client accepts gzip and it makes them smaller
    std::string log_path;   // empty: no log
    std::uint64_t log_every = 5000;
    char log_decimal = ',';
  };

  // Listens when it returns. Errors: an option out of range, an address without TLS, a port that is
  // taken, a log that cannot be written.
  static Result<std::unique_ptr<Target>> start(const Options& options);
  ~Target();  // stop() first
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  // Where it really listens.
  Endpoint flood_endpoint() const;
  std::optional<Endpoint> plain_endpoint() const;
  Endpoint stats_endpoint() const;
  Counts::Values counts() const;

  // Takes no more requests, evaluates what is queued for at most `patience`, refuses the rest,
  // gives clients one more second to say goodbye, and writes the last row of the log. The error is
  // the log's.
  Result<void> stop(Duration patience);

 private:
  class Impl;
  explicit Target(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace spate::target_server
