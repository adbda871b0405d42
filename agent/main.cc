// spate-agent: parses its flags, builds the agent, runs the control loop.

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <memory>

#include "agent/agent.h"
#include "agent/preflight_world.h"
#include "agent/process.h"
#include "agent/recovery.h"
#include "agent/spool_file.h"
#include "agent/state_folder.h"
#include "common/endpoint.h"
#include "common/units.h"
#include "common/version.h"
#include "rpc/grpc_settings.h"
#include "service/log.h"
#include "service/sd_notify.h"
#include "service/watchdog.h"

namespace {

namespace asio = boost::asio;
using namespace spate;

constexpr int kExitError = 1;
constexpr int kExitUsage = 2;
constexpr int kExitStopped = 105;
constexpr std::uint64_t kSmallestSpool = std::uint64_t{1} << 20;

struct Flags {
  std::string controller = "127.0.0.1:7070";
  std::string name = agent::host_name();
  std::vector<std::string> allow;
  std::uint64_t max_connections = 0;
  std::string max_rate;
  std::string state;
  std::string spool_limit = "256MiB";
  service::LogFlags log;
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
  app.add_option("--max-rate", f.max_rate,
                 "Requests that this agent sends at most, e.g. 500/s; what would be more is held "
                 "back, and the report says so. Default: no limit")
      ->envname("SPATE_MAX_RATE");
  app.add_option("--state", f.state,
                 "Folder of this agent's identity and of records not delivered yet. Default: "
                 "$STATE_DIRECTORY, else spate/agents/NAME in $XDG_STATE_HOME or ~/.local/state")
      ->envname("SPATE_STATE");
  app.add_option("--spool-limit", f.spool_limit,
                 "Size of the records kept there; beyond half of it they are made coarser")
      ->envname("SPATE_SPOOL_LIMIT")
      ->capture_default_str();
  app.add_option("--ca", f.tls.ca, "CA certificate (PEM)")->envname("SPATE_CA");
  app.add_option("--cert", f.tls.certificate, "This agent's certificate (PEM)")
      ->envname("SPATE_CERT");
  app.add_option("--key", f.tls.key, "Its key (PEM)")->envname("SPATE_KEY");
  service::declare_log(app, f.log, {"debug", "info", "warn", "error"});
}

int usage_error(const std::string& message) {
  std::cerr << "spate-agent: " << message << "\n";
  return kExitUsage;
}

// What outlives this process: its identity, and what it counted and could not deliver.
struct Durable {
  std::unique_ptr<agent::StateFolder> state;
  std::unique_ptr<agent::SpoolFile> disk;
  std::unique_ptr<agent::Spool> spool;
};

// What the process before this one had counted and not stored is stored first.
Result<void> begin(Durable& d) {
  const std::string& memory = d.state->memory_folder();
  std::vector<std::string> complaints;
  const auto left =
      agent::left_behind(agent::read_remains(memory, complaints),
                         [&](const agent::AccountKey& account) { return d.spool->find(account); });
  const auto log = spdlog::get("agent");
  for (const std::string& c : complaints)
    log->warn("what was open cannot be recovered because={}", c);
  if (auto begun = d.spool->begin(d.state->incarnation(), d.state->cause_of_previous(), left);
      !begun)
    return begun;
  agent::remove_remains(memory);
  for (const agent::LeftBehind& l : left)
    log->info("open intervals recovered run={} incarnation={} records={}", l.account.run,
              l.account.incarnation, l.records.size());
  return {};
}

Result<Durable> open_durable(const Flags& f) {
  const Result<std::uint64_t> limit = parse_size(f.spool_limit);
  if (!limit) return limit.error().with_context("--spool-limit");
  if (*limit < kSmallestSpool)
    return invalid("--spool-limit must be at least " + format_size(kSmallestSpool));
  Durable d;
  auto state = f.state.empty() ? agent::StateFolder::open_default(f.name)
                               : agent::StateFolder::open(f.state);
  if (!state) return state.error();
  d.state = *std::move(state);
  const std::string& memory = d.state->memory_folder();
  d.disk = std::make_unique<agent::SpoolFile>(d.state->spool_path(),
                                              memory.empty() ? memory : memory + "/shelf");
  auto spool = agent::Spool::open(*d.disk, {.bytes = *limit});
  if (!spool) return spool.error();
  d.spool = *std::move(spool);
  if (auto begun = begin(d); !begun) return begun.error();
  return d;
}

Result<agent::AgentOptions> options(const Flags& f) {
  const Result<Endpoint> controller = parse_endpoint(f.controller);
  if (!controller) return controller.error().with_context("--controller");
  const Result<AllowList> allow = AllowList::parse(f.allow);
  if (!allow) return allow.error().with_context("--allow");
  const Result<double> max_rate = f.max_rate.empty() ? Result<double>(0.0) : parse_rate(f.max_rate);
  if (!max_rate) return max_rate.error().with_context("--max-rate");
  if (!f.max_rate.empty() && *max_rate <= 0)
    return invalid("--max-rate must be more than 0; without the flag there is no limit");
  if (f.name.empty()) return invalid("--name must not be empty");
  auto channel = rpc::make_channel(*controller, f.tls, rpc::Role::controller);
  if (!channel) return channel.error();

  agent::AgentOptions o;
  o.self.protocol = kProtocolVersion;
  o.self.version = kVersion;
  o.self.name = f.name;
  o.self.cpus = agent::cpu_count();
  o.self.max_descriptors = agent::raise_descriptor_limit();
  o.self.host = agent::host_name();
  o.controller = controller->to_string();
  o.channel = *std::move(channel);
  o.rules.allow = *allow;
  if (f.max_connections > 0) o.rules.max_connections = f.max_connections;
  o.rules.max_rate_per_s = *max_rate;
  o.world = agent::real_world({f.tls.ca, f.tls.certificate, f.tls.key});
  return o;
}

// The first signal ends the agent well, the second at once.
void wait_for_signal(asio::signal_set& signals, agent::Agent& a, service::Notifier& notifier,
                     int received) {
  signals.async_wait([&signals, &a, &notifier, received](const boost::system::error_code& error,
                                                         int) {
    if (error) return;
    if (received > 0) {
      std::fputs("spate-agent: left at once; load was cut off, what was counted is kept\n", stderr);
      _exit(kExitStopped);
    }
    std::fputs("spate-agent: stopping load, then delivering records; once more to leave at once\n",
               stderr);
    notifier.stopping("stopping load, then delivering records");
    wait_for_signal(signals, a, notifier, received + 1);
    a.shut_down();
  });
}

void say_good_bye(std::uint64_t undelivered, const Durable& durable) {
  if (undelivered == 0) {
    std::fputs("spate-agent: stopped, all records delivered\n", stderr);
    return;
  }
  if (durable.spool->in_trouble())
    std::fprintf(stderr, "spate-agent: %s; what it refused is in %s until this machine ends\n",
                 durable.spool->trouble().c_str(), durable.state->memory_folder().c_str());
  std::fprintf(stderr,
               "spate-agent: stopped; %llu records are not delivered. They stay in %s and go out "
               "when the agent is started again with --state %s\n",
               static_cast<unsigned long long>(undelivered), durable.spool->place().c_str(),
               durable.state->path().c_str());
}

void say_begin(const Durable& durable) {
  const auto log = spdlog::get("agent");
  const agent::StateFolder& state = *durable.state;
  log->info("agent begins state={} agent_id={} incarnation={}", state.path(), state.agent_id(),
            state.incarnation());
  if (!state.cause_of_previous().empty() || !durable.spool->empty())
    log->info("agent was here before ended_by={} records_in_spool={}", state.cause_of_previous(),
              durable.spool->size());
  if (state.memory_folder().empty())
    log->warn(
        "no tmpfs that can be written to: if this process is killed, its open interval is lost");
}

int run(const Flags& f) {
  Result<agent::AgentOptions> o = options(f);
  if (!o) return usage_error(o.error().message);
  Result<Durable> durable = open_durable(f);
  if (!durable) {
    const int code = durable.error().code == ErrorCode::invalid ? kExitUsage : kExitError;
    std::cerr << "spate-agent: " << durable.error().message << "\n";
    return code;
  }
  say_begin(*durable);
  o->self.agent_id = durable->state->agent_id();
  o->self.incarnation = durable->state->incarnation();
  o->self.nonce = agent::new_nonce();
  o->spool = durable->spool.get();
  o->terms = durable->state.get();
  o->memory_folder = durable->state->memory_folder();

  // Whoever read our stdout may leave before us.
  std::signal(SIGPIPE, SIG_IGN);
  auto notifier = service::Notifier::from_environment();
  asio::io_context loop{1};
  // The spool is written on the control loop: a disk that hangs shows there.
  service::Watchdog watchdog(loop, notifier, [](std::function<void()> alive) { alive(); });
  agent::Agent a(loop, *std::move(o), [&](std::uint64_t undelivered) {
    say_good_bye(undelivered, *durable);
    if (auto done = durable->state->ends_well(); !done)
      std::cerr << "spate-agent: " << done.error().message << "\n";
    loop.stop();
  });
  asio::signal_set signals(loop, SIGTERM, SIGINT);
  wait_for_signal(signals, a, notifier, 0);
  a.start();
  notifier.ready("dialling " + f.controller);
  watchdog.start();
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
  if (auto started = service::start_log("agent", flags.log); !started)
    return usage_error(started.error().message);
  try {
    return run(flags);
  } catch (const std::exception& e) {
    std::cerr << "spate-agent: " << e.what() << "\n";
    return kExitError;
  }
}
