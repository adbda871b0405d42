#include "cli/session.h"

#include <CLI/CLI.hpp>
#include <filesystem>

#include "cli/interrupt.h"
#include "cli/local_cluster.h"

namespace spate::cli {

void add_controller_flags(CLI::App& verb, ControllerFlags& flags) {
  verb.add_option("--controller", flags.controller, "The controller's HOST:PORT")
      ->envname("SPATE_CONTROLLER")
      ->capture_default_str();
  verb.add_option("--ca", flags.ca, "Certificate of the CA (PEM), from `spate pki init`")
      ->envname("SPATE_CA");
  verb.add_option("--cert", flags.certificate,
                  "This operator's certificate (PEM), from `spate pki issue`")
      ->envname("SPATE_CERT");
  verb.add_option("--key", flags.key, "Its key (PEM)")->envname("SPATE_KEY");
}

void add_session_flags(CLI::App& verb, SessionFlags& flags) {
  add_controller_flags(verb, flags.controller);
  verb.add_flag("--local", flags.local,
                "Look at the runs of `run --local` and `demo` on this machine")
      ->envname("SPATE_LOCAL");
  verb.add_option("--store", flags.store,
                  "Where those are stored, with --local [" + default_local_store() + "]")
      ->envname("SPATE_STORE");
}

Session::Session() = default;
Session::Session(Session&&) noexcept = default;
Session::~Session() = default;

Result<Session> Session::open(const SessionFlags& flags) {
  count_interrupts();
  Session session;
  ControllerFlags controller = flags.controller;
  if (flags.local) {
    const std::string store = flags.store.empty() ? default_local_store() : flags.store;
    if (const auto live = live_local_cluster(store)) {
      controller = live->controller;
    } else {
      if (!std::filesystem::exists(store))
        return Error{ErrorCode::not_found,
                     "there is no " + store + ": no local run has been made yet"};
      LocalClusterSpec spec;
      spec.store = store;
      auto cluster = LocalCluster::start(spec, [](const std::string&) {});
      if (!cluster) return cluster.error();
      session.cluster_ = std::move(*cluster);
      controller = session.cluster_->controller();
    }
  }
  auto client = OperatorClient::create(controller);
  if (!client) return client.error();
  session.client_ = std::move(*client);
  return session;
}

}  // namespace spate::cli
