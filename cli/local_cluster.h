#pragma once

// A whole cluster as child processes on loopback, for `demo` and `run --local`; or only its
// controller, to look at runs that have ended. The runs stay in a store in the user's data
// directory. One live local cluster per store: whoever comes second is told where the first one's
// controller is.
//
// A CA of its own, thrown away with it, lets the target be flooded with TLS beside without.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/child_process.h"
#include "cli/operator_client.h"
#include "common/result.h"

namespace spate::cli {

struct LocalClusterSpec {
  std::string store;  // "": local.sqlite in the data directory
  std::uint32_t agents = 0;
  bool with_target = false;
  std::vector<std::string> allow;   // --allow of every agent
  std::vector<std::string> target;  // more flags of spate-target
};

// The store meant by a --store flag that was not given.
std::string default_local_store();
// A local cluster that another process of this user has started.
struct LiveLocalCluster {
  ControllerFlags controller;  // where it answers, and whom
  std::string target_url;      // "" without a target
  std::string target_tls_url;
};
// The one on `store`; nothing if none is live.
std::optional<LiveLocalCluster> live_local_cluster(const std::string& store);

// "target.url=local" or "target.url=grpcs://local" with the address of that target; any other
// assignment as it is.
std::string with_local_target(const std::string& assignment, const LiveLocalCluster& cluster);

class LocalCluster {
 public:
  using Say = std::function<void(const std::string&)>;  // one line about what was started

  // Everything is ready when this returns: the controller listens, every agent has been welcomed.
  static Result<std::unique_ptr<LocalCluster>> start(const LocalClusterSpec& spec, const Say& say);
  ~LocalCluster();  // stop()

  const ControllerFlags& controller() const { return controller_; }
  const std::string& target_url() const { return target_url_; }  // "" without a target
  const std::string& target_tls_url() const { return target_tls_url_; }
  const std::string& target_probe() const { return target_probe_; }

  // Of each child that has ended since the last call: which, how, and the last lines of its log.
  std::vector<std::string> news_of_deaths();
  bool controller_has_ended();
  bool agents_have_ended();  // all of them
  // Asks everybody to end, waits, makes them end. The logs are kept if anybody had ended badly
  // before.
  void stop();
  // At once.
  void kill();

 private:
  struct Member {
    std::string name;
    ChildProcess process;
    bool reported = false;
  };

  LocalCluster() = default;
  Result<void> lock(const std::string& store);
  Result<void> make_certificates();
  std::string pki() const { return directory_ + "/pki"; }
  Result<Member*> launch(const std::string& name, const std::string& program,
                         std::vector<std::string> arguments);
  Result<std::string> wait_ready(Member& member, const std::string& text);
  Result<void> start_controller(const std::string& store, const Say& say);
  Result<void> publish(const std::string& store);
  Result<void> start_target(const LocalClusterSpec& spec, const Say& say);
  Result<void> start_agents(const LocalClusterSpec& spec, const Say& say);

  int lock_ = -1;
  std::string directory_;  // of the logs, and of the agents' state: each is a new one
  bool keep_logs_ = false;
  ControllerFlags controller_;
  std::string target_url_, target_tls_url_, target_probe_;
  std::vector<std::unique_ptr<Member>> members_;  // the controller first
};

}  // namespace spate::cli
