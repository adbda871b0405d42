#pragma once

// A controller to ask, however the user named it: by --controller, or as the local cluster's by
// --local.

#include <memory>
#include <string>

#include "cli/operator_client.h"
#include "common/result.h"

namespace CLI {
class App;
}

namespace spate::cli {

class LocalCluster;

struct SessionFlags {
  ControllerFlags controller;
  bool local = false;
  std::string store;  // of --local; "": the default one
};

// --controller, --ca, --cert, --key; each with its environment variable.
void add_controller_flags(CLI::App& verb, ControllerFlags& flags);
// Those, --local and --store.
void add_session_flags(CLI::App& verb, SessionFlags& flags);

class Session {
 public:
  // With --local: the live local cluster's controller, or one started only for this.
  static Result<Session> open(const SessionFlags& flags);
  Session(Session&&) noexcept;
  ~Session();

  OperatorClient& client() { return *client_; }

 private:
  Session();
  std::unique_ptr<LocalCluster> cluster_;  // outlives the client
  std::unique_ptr<OperatorClient> client_;
};

}  // namespace spate::cli
