#pragma once

// A machine that runs an agent: clock, link to the controllers, disk, and the process with the real
// Session. What agent.cc and control_client.cc do in a process (dialling, timers, workers) is done
// here under the simulated world. It can be killed, lose power, be stopped for a while, and start
// again.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "agent/session.h"
#include "agent/spool.h"
#include "agent/term_book.h"
#include "tests/sim/controller_host.h"
#include "tests/sim/fake_crew.h"
#include "tests/sim/fake_target.h"
#include "tests/sim/model_disk.h"
#include "tests/sim/network.h"
#include "tests/sim/world.h"

namespace spate::sim {

class AgentHost {
 public:
  struct Outside {
    World& world;
    Network& network;
    FakeTarget& target;
    // Which controller answers at the address that the agent dials, at this moment.
    std::function<ControllerHost*()> controller;
    // What this host does from now on in `run`.
    std::function<void(const std::string& run, const Load&)> load;
  };
  // `memory`: a folder on tmpfs, this machine's own.
  AgentHost(Outside outside, std::string name, MachineClock clock, std::string memory);
  ~AgentHost();

  void start_process();
  void kill(bool is_power_cut);
  void freeze();
  void thaw();
  void shut_down();  // SIGTERM
  bool is_running() const { return process_ != nullptr; }
  bool is_frozen() const { return process_ && process_->is_frozen; }

  void set_reaches_target(bool reaches);
  MachineClock& clock() { return clock_; }
  Network::LinkId link() const { return link_; }
  const std::string& name() const { return name_; }
  const agent::Session* session() const { return process_ ? process_->session.get() : nullptr; }
  DiskState& disk() { return disk_; }
  // What each commit takes from now on; one that is under way ends when it is zero.
  void slow_disk(Duration commit_takes);
  // The disk of `other`, as it is now. Before the first process.
  void copy_disk(const AgentHost& other);
  // The machine is taken away, with what only it had.
  void discard();
  std::uint64_t highest_term(const std::string& cluster) const {
    return identity_.highest(cluster);
  }

 private:
  // What agent/state_folder.h keeps: on the disk, replaced whole.
  class Identity : public agent::TermBook {
   public:
    std::string last_cluster() const override { return last_cluster_; }
    std::uint64_t highest(const std::string& cluster) const override {
      const auto it = terms_.find(cluster);
      return it == terms_.end() ? 0 : it->second;
    }
    Result<void> keep(const std::string& cluster, std::uint64_t term) override {
      last_cluster_ = cluster;
      terms_[cluster] = term;
      return {};
    }
    std::string id;
    std::string label;  // what the agent calls itself
    std::uint64_t incarnation = 0;
    std::string cause;  // why the last process ended; empty: there was none, or it ended well

   private:
    std::string last_cluster_;
    std::map<std::string, std::uint64_t> terms_;
  };
  struct Process {
    std::uint64_t number = 0;
    std::unique_ptr<ModelDisk> disk;
    std::unique_ptr<agent::Spool> spool;
    std::unique_ptr<agent::Session> session;
    std::shared_ptr<FakeCrew> crew;
    // Sent requests in records that the disk has not taken.
    std::map<Client, std::uint64_t> undurable;
    std::optional<agent::Prepare> checked;           // between a pre-flight and OpenWorkers
    std::map<std::uint32_t, ShareTimeline> changes;  // checked, by epoch
    std::string agent_name;                          // that `checked` knows the agent by
    Network::StreamId stream = 0;
    ControllerHost* controller = nullptr;  // at the other end of `stream`
    // What the controller has said, for the laws: T, and until when which run is leased.
    Moment start;
    std::map<std::string, Duration> first_lease;
    std::map<std::string, Instant> leased;
    std::uint64_t timer = 0;
    Instant timer_at = Instant::max();
    int attempts = 0;
    bool is_frozen = false;
    // Its control thread waits for the disk, and then does these.
    bool is_at_disk = false;
    Moment disk_done;
    std::map<Client, std::uint64_t> sent_at_disk;  // requests in the records of that
    std::deque<agent::Action> after_disk;
    std::deque<std::function<void()>> waiting;  // for the control thread

    bool is_busy() const { return is_frozen || is_at_disk; }
  };

  bool open_spool();
  bool begin();
  void end_without_tidying(std::unique_ptr<Process> process, bool is_power_cut);
  void account_for_loss(bool is_power_cut);
  void in_process(std::uint64_t number, std::function<void()> what);
  void on_event(agent::Event event, std::uint64_t term = 0);
  void carry_out(agent::Event event, std::uint64_t term);
  void act_all(std::deque<agent::Action> actions);
  void wait_for_disk(Duration time, agent::Actions actions);
  void leave_disk(std::uint64_t number);
  void go_on();
  void arm_timer();
  void note(const controller::ControllerMessage& message);
  void check_start(Instant at);
  void dial(Duration after);
  void dialled(std::uint64_t number);
  void dial_later(bool is_refused);
  void knock(Network::StreamId stream, Duration waited);
  void connect(Network::StreamId stream);
  void stream_down(Network::StreamId stream, const std::string& why);
  void heard(std::uint64_t number, Network::StreamId stream,
             const controller::ControllerMessage& message, std::uint64_t term, Instant replied);
  Instant now() const { return clock_.boottime(outside_.world.now()); }

  void act(agent::Send& a);
  void act(agent::Disconnect& a);
  void act(agent::RunPreflight& a);
  void act(agent::OpenWorkers& a);
  void act(agent::StartWorkersAt& a);
  void act(agent::CheckChange& a);
  void act(agent::ChangeWorkers& a);
  void act(agent::LeaseWorkers& a);
  void act(agent::StopWorkers& a);
  void act(agent::ReleaseIntervals& a);
  void act(agent::ReleaseWorkers& a);
  void act(agent::Say& a);
  void act(agent::Leave& a);

  const Outside outside_;
  const std::string name_;
  const std::string memory_;
  MachineClock clock_;
  const Network::LinkId link_;
  DiskState disk_;
  agent::Spool::Limits spool_limits_;
  Identity identity_;
  bool reaches_target_ = true;
  bool is_discarded_ = false;
  // What earlier processes of a copied disk left, the other machine has too.
  std::uint64_t copied_incarnations_ = 0;
  std::unique_ptr<Process> process_;
};

}  // namespace spate::sim
