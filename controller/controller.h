#pragma once

// The controller: one control loop on one thread that owns the registry, the live runs and the gRPC
// server, and talks to the store's thread and to gRPC's by messages only. `run()` is that thread.
//
// What it decides is the coordinator's (coordinator.h); this is the edge that tells it what happens
// and does what it wants. Runs that an earlier process left unfinished are taken over from the
// store.

#include <functional>
#include <memory>
#include <string>

#include "common/endpoint.h"
#include "common/result.h"

namespace spate::rpc {
struct TlsFiles;
}

namespace spate::controller {

inline constexpr std::size_t kMaxWaitingReads = 32;

class Controller {
 public:
  // Opens the store and listens; nothing is served before run(). Errors of code `invalid` are the
  // user's to mend on the command line. Without `adopts`, unfinished runs are closed as crashed.
  static Result<std::unique_ptr<Controller>> create(const Endpoint& listen,
                                                    const rpc::TlsFiles& tls,
                                                    const std::string& store_path,
                                                    bool adopts = true);
  ~Controller();

  Endpoint listening_on() const;
  // Serves until it is shut down or superseded; the process's exit code.
  int run();
  // From any thread. What there is is stored, then run() returns. Live runs go on without it.
  void shut_down();
  // Calls back, on a thread of its own, when the control loop and the store's writer have moved.
  // From any thread; not after run() has returned.
  void probe(std::function<void()> alive);

 private:
  class Impl;
  explicit Controller(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace spate::controller
