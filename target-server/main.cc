// spate-target: the reference target of a flood. See target.h.

#include <signal.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <string>

#include "common/units.h"
#include "common/version.h"
#include "service/log.h"
#include "target-server/process_info.h"
#include "target-server/target.h"

namespace {

using spate::Result;
using spate::target_server::Target;

constexpr spate::Duration kStopPatience = std::chrono::seconds(4);

struct Flags {
  Target::Options options;
  std::string listen = "127.0.0.1:7000";
  std::string listen_plain;
  std::string stats;
  std::string stack_size = "256KiB";
  spate::service::LogFlags log;
};

void declare(CLI::App& app, Flags& flags) {
  Target::Options& o = flags.options;
  app.set_version_flag("--version", std::string("spate-target ") + spate::kVersion);
  app.add_option("--listen", flags.listen, "HOST:PORT to be flooded on; port 0: any free one")
      ->envname("SPATE_LISTEN")
      ->capture_default_str();
  app.add_option("--listen-plain", flags.listen_plain,
                 "A second HOST:PORT to be flooded on, without TLS beside --listen with it; "
                 "loopback only")
      ->envname("SPATE_LISTEN_PLAIN");
  app.add_option("--stats", flags.stats,
                 "HOST:PORT for statistics; default: the same host, the next port")
      ->envname("SPATE_STATS");
  app.add_option("--threads", o.pool.threads,
                 "Most threads of the pool; they are started on demand")
      ->envname("SPATE_THREADS")
      ->capture_default_str();
  app.add_option("--stack-size", flags.stack_size, "Stack of each pool thread")
      ->envname("SPATE_STACK_SIZE")
      ->capture_default_str();
  app.add_option("--queue", o.pool.queue, "Most requests that wait for a thread; more are refused")
      ->envname("SPATE_QUEUE")
      ->capture_default_str();
  app.add_flag("--compress", o.compress, "Compress answers (gzip) for clients that accept it")
      ->envname("SPATE_COMPRESS");
  app.add_option("--log", o.log_path,
                 "Reference log to write; an old one is kept as FILE.1, FILE.2, ...")
      ->envname("SPATE_LOG");
  app.add_option("--log-every", o.log_every, "A row for every so many completed requests")
      ->envname("SPATE_LOG_EVERY")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--decimal", o.log_decimal, "Decimal character of the log: comma or point")
      ->envname("SPATE_DECIMAL")
      ->transform(CLI::Transformer(std::map<std::string, char>{{"comma", ','}, {"point", '.'}}))
      ->check(CLI::IsMember({',', '.'}))
      ->default_str("comma");
  app.add_option("--ca", o.tls.ca, "Certificate of the CA (PEM)")->envname("SPATE_CA");
  app.add_option("--cert", o.tls.certificate, "Certificate of this target (PEM)")
      ->envname("SPATE_CERT");
  app.add_option("--key", o.tls.key, "Its private key (PEM)")->envname("SPATE_KEY");
  spate::service::declare_log(app, flags.log, {"trace", "debug", "info", "warn", "error", "off"});
}

Result<Target::Options> to_options(const Flags& flags) {
  Target::Options options = flags.options;
  const auto listen = spate::parse_endpoint(flags.listen);
  if (!listen) return listen.error().with_context("--listen");
  options.listen = *listen;
  if (!flags.listen_plain.empty()) {
    const auto plain = spate::parse_endpoint(flags.listen_plain);
    if (!plain) return plain.error().with_context("--listen-plain");
    options.listen_plain = *plain;
  }
  if (flags.stats.empty()) {
    if (listen->port == 65535)
      return spate::invalid("--stats: there is no port after 65535, name one");
    options.stats = {listen->host,
                     static_cast<std::uint16_t>(listen->port == 0 ? 0 : listen->port + 1)};
  } else {
    const auto stats = spate::parse_endpoint(flags.stats);
    if (!stats) return stats.error().with_context("--stats");
    options.stats = *stats;
  }
  const auto stack = spate::parse_size(flags.stack_size);
  if (!stack) return stack.error().with_context("--stack-size");
  options.pool.stack_bytes = *stack;
  return options;
}

// Blocked in every thread, because the mask is inherited, so that only sigwait() sees them.
sigset_t block_ending_signals() {
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGTERM);
  sigaddset(&ending, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ending, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return ending;
}

int fail(const spate::Error& error) {
  std::fprintf(stderr, "spate-target: %s\n", error.message.c_str());
  const bool usage =
      error.code == spate::ErrorCode::invalid || error.code == spate::ErrorCode::refused;
  return usage ? 2 : 1;
}

int serve(const Target::Options& options, const sigset_t& ending) {
  const std::uint64_t descriptors = spate::target_server::raise_descriptor_limit();
  auto target = Target::start(options);
  if (!target) return fail(target.error());
  spdlog::info("target started threads={} stack={} queue={} allocator={} descriptors={}",
               options.pool.threads, spate::format_size(options.pool.stack_bytes),
               options.pool.queue, spate::target_server::loaded_allocator(), descriptors);
  const auto plain = (*target)->plain_endpoint();
  std::printf("spate-target listening on %s stats on %s%s\n",
              (*target)->flood_endpoint().to_string().c_str(),
              (*target)->stats_endpoint().to_string().c_str(),
              plain ? (" plain on " + plain->to_string()).c_str() : "");
  std::fflush(stdout);

  int signal_number = 0;
  sigwait(&ending, &signal_number);
  spdlog::info("target ending signal={}", signal_number);
  pthread_sigmask(SIG_UNBLOCK, &ending, nullptr);  // a second one ends the process at once
  const auto stopped = (*target)->stop(kStopPatience);
  const auto counts = (*target)->counts();
  std::fprintf(stderr, "spate-target: received %llu, completed %llu, refused %llu\n",
               static_cast<unsigned long long>(counts.received),
               static_cast<unsigned long long>(counts.completed),
               static_cast<unsigned long long>(counts.refused));
  return stopped ? 0 : fail(stopped.error());
}

}  // namespace

int main(int argc, char** argv) {
  const sigset_t ending = block_ending_signals();
  CLI::App app("The reference target of a flood: a gRPC server that adds, multiplies and echoes.",
               "spate-target");
  Flags flags;
  declare(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (auto started = spate::service::start_log("target", flags.log); !started)
    return fail(started.error());
  const auto options = to_options(flags);
  if (!options) return fail(options.error());
  try {
    return serve(*options, ending);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "spate-target: %s\n", error.what());
    return 1;
  }
}
