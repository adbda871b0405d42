// spate-agent: parses its flags, builds the agent, runs the control loop.

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <cstdio>
#include <iostream>

#include "agent/agent.h"
#include "agent/preflight_world.h"
#include "agent/process.h"
#include "common/endpoint.h"
#include "common/version.h"
#include "rpc/grpc_settings.h"

namespace {

namespace asio = boost::asio;
using namespace spate;

constexpr int kExitError = 1;
constexpr int kExitUsage = 2;
constexpr int kExitStopped = 105;

struct Flags {
  std::string controller = "127.0.0.1:7070";
  std::string name = agent::host_name();
  std::vector<std::string> allow;
  std::uint64_t max_connections = 0;
  std::string log_level = "info";
  rpc::TlsFiles tls;
};

void declare(CLI::App& app, Flags& f) {
  app.set_version_flag("--version", std::string("spate-agent ") + kVersion);
  app.add_option("--controller", f.controller, "HOST:PORT of the controller")
      ->envname("SPATE_CONTROLLER")
      ->capture_default_str();
  app.add_option("--name", f.name, "What the controller calls this agent")
      ->envname("SPATE_NAME")
      ->capture_default_str();
  app.add_option(
         "--allow", f.allow,
         "CIDR:PORT that this agent may flood, repeatable; PORT is a number, a range a-b, or *. "
         "Default: loopback only")
      ->envname("SPATE_ALLOW")
      ->delimiter(',');
  app.add_option("--max-connections", f.max_connections,
                 "Refuse runs that want more connections from this agent; 0: no limit")
      ->envname("SPATE_MAX_CONNECTIONS");
  app.add_option("--ca", f.tls.ca, "CA certificate (PEM)")->envname("SPATE_CA");
  app.add_option("--cert", f.tls.certificate, "This agent's certificate (PEM)")
      ->envname("SPATE_CERT");
  app.add_option("--key", f.tls.key, "Its key (PEM)")->envname("SPATE_KEY");
  app.add_option("--log-level", f.log_level, "Of the log on stderr")
      ->envname("SPATE_LOG_LEVEL")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
      ->capture_default_str();
}

int usage_error(const std::string& message) {
  std::cerr << "spate-agent: " << message << "\n";
  return kExitUsage;
}

Result<agent::AgentOptions> options(const Flags& f) {
  const Result<Endpoint> controller = parse_endpoint(f.controller);
  if (!controller) return controller.error().with_context("--controller");
  const Result<AllowList> allow = AllowList::parse(f.allow);
  if (!allow) return allow.error().with_context("--allow");
  if (f.name.empty()) return invalid("--name must not be empty");
  auto channel = rpc::make_channel(*controller, f.tls, rpc::Role::controller);
  if (!channel) return channel.error();

  agent::AgentOptions o;
  o.self.protocol = kProtocolVersion;
  o.self.version = kVersion;
  o.self.name = f.name;
  o.self.incarnation = agent::new_incarnation();
  o.self.cpus = agent::cpu_count();
  o.self.max_descriptors = agent::raise_descriptor_limit();
  o.self.host = agent::host_name();
  o.controller = controller->to_string();
  o.channel = *std::move(channel);
  o.rules.allow = *allow;
  if (f.max_connections > 0) o.rules.max_connections = f.max_connections;
  o.world = agent::real_world({f.tls.ca, f.tls.certificate, f.tls.key});
  return o;
}

// The first signal ends the agent well, the second at once.
void wait_for_signal(asio::signal_set& signals, agent::Agent& a, int received) {
  signals.async_wait([&signals, &a, received](const boost::system::error_code& error, int) {
    if (error) return;
    if (received > 0) {
      std::fputs("spate-agent: left at once; load was cut off and records may be missing\n",
                 stderr);
      _exit(kExitStopped);
    }
    std::fputs("spate-agent: stopping load, then delivering records; once more to leave at once\n",
               stderr);
    wait_for_signal(signals, a, received + 1);
    a.shut_down();
  });
}

int run(const Flags& f) {
  Result<agent::AgentOptions> o = options(f);
  if (!o) return usage_error(o.error().message);

  // Whoever read our stdout may leave before us.
  std::signal(SIGPIPE, SIG_IGN);
  asio::io_context loop{1};
  agent::Agent a(loop, *std::move(o), [&loop](std::uint64_t undelivered) {
    if (undelivered == 0)
      std::fputs("spate-agent: stopped, all records delivered\n", stderr);
    else
      std::fprintf(stderr, "spate-agent: stopped, %llu records not delivered\n",
                   static_cast<unsigned long long>(undelivered));
    loop.stop();
  });
  asio::signal_set signals(loop, SIGTERM, SIGINT);
  wait_for_signal(signals, a, 0);
  a.start();
  loop.run();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"spate-agent: floods the targets that its owner allows, as its controller says"};
  Flags flags;
  declare(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kExitUsage;
  }
  const auto log =
      std::make_shared<spdlog::logger>("agent", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  log->set_level(spdlog::level::from_str(flags.log_level));
  log->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %n %v");
  spdlog::register_logger(log);
  try {
    return run(flags);
  } catch (const std::exception& e) {
    std::cerr << "spate-agent: " << e.what() << "\n";
    return kExitError;
  }
}
