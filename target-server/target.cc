#include "target-server/target.h"

#include <absl/synchronization/mutex.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <utility>

#include "target-server/grpc_service.h"
#include "target-server/process_info.h"
#include "target-server/stats_service.h"

namespace spate::target_server {
namespace {

constexpr int kFloodKeepaliveMs = 2 * 60 * 60 * 1000;
constexpr int kFloodHandshakeMs = 60 * 1000;

// What a flooded port needs instead of a control port's limits. After rpc::configure_server(): the
// last word counts.
void set_flood_limits(grpc::ServerBuilder& builder, bool compress) {
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES,
                             0);  // no limit: clients may ping as they like
  // Thousands of idle connections are left alone; a client that sleeps answers no ping.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kFloodKeepaliveMs);
  // Thousands of TLS handshakes at once take their time.
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kFloodHandshakeMs);
  builder.SetMaxReceiveMessageSize(kMaxRequestBytes);
  builder.SetMaxSendMessageSize(-1);  // an answer is hardly longer than its request
  // By level, not by algorithm: gRPC then asks what the client accepts. The lowest level is gzip.
  if (compress) builder.SetDefaultCompressionLevel(GRPC_COMPRESS_LEVEL_LOW);
}

// Health, reflection and statistics are rare; the flood itself is on the callback API.
void keep_synchronous_part_small(grpc::ServerBuilder& builder) {
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
}

// For the last answers to be sent and for clients to take note. A client that reads nothing (an
// idle grpcio) would hold up an end that waits for it.
constexpr auto kGoodbye = std::chrono::seconds(1);

Error cannot_listen(const Endpoint& endpoint) {
  return {ErrorCode::io,
          endpoint.to_string() +
              ": cannot listen there: the port is taken, or the address is none of this machine"};
}

}  // namespace

class Target::Impl {
 public:
  Impl(const Options& options, std::unique_ptr<Pool> pool, std::unique_ptr<MemoryLog> log)
      : options_(options),
        started_(BootClock::now()),
        pool_(std::move(pool)),
        log_(std::move(log)),
        calls_(*pool_, counters_, log_.get()) {}

  Result<void> listen() {
    if (const auto flood = listen_for_flood(); !flood) return flood.error();
    return listen_for_stats();
  }

  Result<void> stop(Duration patience) {
    // The pool first: what is queued is answered, what comes now is refused. Then only answers are
    // under way.
    calls_.refuse_after(BootClock::now() + patience);
    pool_->shutdown();
    if (flood_) flood_->Shutdown(std::chrono::system_clock::now() + kGoodbye);
    if (stats_server_) stats_server_->Shutdown(std::chrono::system_clock::now());
    if (!log_) return {};
    return log_->close(counters_.total().read().completed);
  }

  Endpoint flood_endpoint() const {
    return {options_.listen.host, static_cast<std::uint16_t>(flood_port_)};
  }
  std::optional<Endpoint> plain_endpoint() const {
    if (!options_.listen_plain) return std::nullopt;
    return Endpoint{options_.listen_plain->host, static_cast<std::uint16_t>(plain_port_)};
  }
  Endpoint stats_endpoint() const {
    return {options_.stats.host, static_cast<std::uint16_t>(stats_port_)};
  }
  Counts::Values counts() const { return counters_.total().read(); }

 private:
  Result<void> listen_for_flood() {
    grpc::ServerBuilder builder;
    keep_synchronous_part_small(builder);
    const auto configured =
        rpc::configure_server(builder, options_.listen, options_.tls, &flood_port_);
    if (!configured) return configured.error();
    if (options_.listen_plain) {
      const auto plain =
          rpc::configure_server(builder, *options_.listen_plain, rpc::TlsFiles(), &plain_port_);
      if (!plain) return plain.error();
    }
    set_flood_limits(builder, options_.compress);
    builder.RegisterService(&calls_.service());
    flood_ = builder.BuildAndStart();
    if (!flood_ || flood_port_ == 0)
      return cannot_listen(flood_port_ != 0 && options_.listen_plain ? *options_.listen_plain
                                                                     : options_.listen);
    if (options_.listen_plain && plain_port_ == 0) return cannot_listen(*options_.listen_plain);
    return {};
  }

  Result<void> listen_for_stats() {
    stats_ = std::make_unique<StatsService>(StatsService::Sources{
        counters_,
        *pool_,
        started_,
        {static_cast<std::uint16_t>(flood_port_), static_cast<std::uint16_t>(plain_port_)}});
    grpc::ServerBuilder builder;
    keep_synchronous_part_small(builder);
    const auto configured =
        rpc::configure_server(builder, options_.stats, options_.tls, &stats_port_);
    if (!configured) return configured.error();
    builder.RegisterService(&stats_->service());
    stats_server_ = builder.BuildAndStart();
    if (!stats_server_ || stats_port_ == 0) return cannot_listen(options_.stats);
    return {};
  }

  const Options options_;
  const Instant started_;
  Counters counters_;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<MemoryLog> log_;
  CallsService calls_;
  std::unique_ptr<StatsService> stats_;
  int flood_port_ = 0;
  int plain_port_ = 0;  // 0: there is none
  int stats_port_ = 0;
  // Last, so that they end first.
  std::unique_ptr<grpc::Server> flood_;
  std::unique_ptr<grpc::Server> stats_server_;
};

Result<std::unique_ptr<Target>> Target::start(const Options& options) {
  auto pool = Pool::create(options.pool);
  if (!pool) return pool.error();
  // Refused before the log is touched: a mistake in an address must not leave a file.
  if (const auto allowed = rpc::server_credentials(options.listen, options.tls); !allowed)
    return allowed.error();
  if (const auto allowed = rpc::server_credentials(options.stats, options.tls); !allowed)
    return allowed.error();
  if (options.listen_plain) {
    const auto allowed = rpc::server_credentials(*options.listen_plain, rpc::TlsFiles());
    if (!allowed)
      return invalid("refusing to listen on " + options.listen_plain->to_string() +
                     " without TLS, because it is not loopback");
  }
  std::unique_ptr<MemoryLog> log;
  if (!options.log_path.empty()) {
    auto opened = MemoryLog::open({options.log_path, options.log_every, options.log_decimal,
                                   [] { return process_memory().address_space_bytes; }});
    if (!opened) return opened.error();
    log = std::move(*opened);
  }
  static const bool kPluginsOn = [] {
    // Debian builds Abseil with its search for deadlocks on: a global lock and a graph behind every
    // mutex of gRPC's.
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    return true;
  }();
  static_cast<void>(kPluginsOn);
  auto impl = std::make_unique<Impl>(options, std::move(*pool), std::move(log));
  if (const auto listening = impl->listen(); !listening) {
    static_cast<void>(impl->stop(Duration::zero()));
    return listening.error();
  }
  return std::unique_ptr<Target>(new Target(std::move(impl)));
}

Target::Target(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Target::~Target() = default;
Endpoint Target::flood_endpoint() const { return impl_->flood_endpoint(); }
std::optional<Endpoint> Target::plain_endpoint() const { return impl_->plain_endpoint(); }
Endpoint Target::stats_endpoint() const { return impl_->stats_endpoint(); }
Counts::Values Target::counts() const { return impl_->counts(); }
Result<void> Target::stop(Duration patience) { return impl_->stop(patience); }

}  // namespace spate::target_server
