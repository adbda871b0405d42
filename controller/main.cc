// spate-controller: parse, build, run, exit code.

#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "common/version.h"
#include "controller/controller.h"
#include "rpc/grpc_settings.h"
#include "service/log.h"
#include "service/sd_notify.h"
#include "service/watchdog.h"

namespace {

std::string default_store() {
  const char* data = std::getenv("XDG_DATA_HOME");
  if (data != nullptr && *data != '\0') return std::string(data) + "/spate/controller.sqlite";
  const char* home = std::getenv("HOME");
  return std::string(home == nullptr ? "." : home) + "/.local/share/spate/controller.sqlite";
}

// The first signal stores what there is and ends: live runs go on under their agents' leases, and
// the next controller on this store takes them over. The second one ends the process at once;
// nothing is lost then either: what was acknowledged is committed, and agents keep the rest.
void on_signal(boost::asio::signal_set& signals, spate::controller::Controller& controller,
               spate::service::Notifier& notifier, int count) {
  signals.async_wait([&, count](const boost::system::error_code& error, int) {
    if (error) return;
    if (count > 0) std::_Exit(1);
    notifier.stopping("storing what there is; live runs go on");
    controller.shut_down();
    on_signal(signals, controller, notifier, count + 1);
  });
}

int fail(const spate::Error& error) {
  std::fprintf(stderr, "spate-controller: %s\n", error.message.c_str());
  // What the command line or the certificates are to blame for is 2; the machine and the store
  // are 1.
  return error.code == spate::ErrorCode::invalid || error.code == spate::ErrorCode::refused ? 2 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::string listen = "127.0.0.1:7070";
  std::string store = default_store();
  spate::service::LogFlags log;
  bool no_adopt = false;
  spate::rpc::TlsFiles tls;

  CLI::App app("spate-controller: coordinates agents, owns runs, stores every interval");
  app.set_version_flag("--version", std::string("spate-controller ") + spate::kVersion);
  app.add_option("--listen", listen, "HOST:PORT for agents and clients; port 0: any free one")
      ->envname("SPATE_LISTEN")
      ->capture_default_str();
  app.add_option("--store", store, "the file that keeps all runs")
      ->envname("SPATE_STORE")
      ->capture_default_str();
  app.add_flag("--no-adopt", no_adopt,
               "close runs that an earlier controller left unfinished, instead of taking them over")
      ->envname("SPATE_NO_ADOPT");
  app.add_option("--ca", tls.ca, "certificate of the CA, PEM")->envname("SPATE_CA");
  app.add_option("--cert", tls.certificate, "certificate of this controller, PEM")
      ->envname("SPATE_CERT");
  app.add_option("--key", tls.key, "its key, PEM")->envname("SPATE_KEY");
  spate::service::declare_log(app, log,
                              {"trace", "debug", "info", "warn", "error", "critical", "off"});
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (auto started = spate::service::start_log("controller", log); !started)
    return fail(started.error());
  auto notifier = spate::service::Notifier::from_environment();

  const auto endpoint = spate::parse_endpoint(listen);
  if (!endpoint) return fail(endpoint.error().with_context("--listen " + listen));
  auto controller = spate::controller::Controller::create(*endpoint, tls, store, !no_adopt);
  if (!controller) return fail(controller.error());

  boost::asio::io_context signal_loop{1};
  boost::asio::signal_set signals(signal_loop, SIGINT, SIGTERM);
  on_signal(signals, **controller, notifier, 0);
  // A disk that hangs, or a loop that does: worth a restart. Its own thread sees to it.
  spate::service::Watchdog watchdog(signal_loop, notifier, [&](std::function<void()> alive) {
    (*controller)->probe(std::move(alive));
  });
  const std::string address = (*controller)->listening_on().to_string();
  std::printf("spate-controller listening on %s\n", address.c_str());
  std::fflush(stdout);
  notifier.ready("listening on " + address);
  watchdog.start();
  std::thread signal_thread([&] { signal_loop.run(); });
  const int exit_code = (*controller)->run();

  signal_loop.stop();
  signal_thread.join();
  controller->reset();
  return exit_code;
}
