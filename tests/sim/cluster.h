#pragma once

// One whole cluster in one world: controllers, agents, the target, the network between them. And an
// operator, who submits runs, changes them and stops them, and asks again when nobody answers.

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/agent_host.h"
#include "tests/sim/controller_host.h"
#include "tests/sim/fake_target.h"
#include "tests/sim/network.h"
#include "tests/sim/world.h"

namespace spate::sim {

class Cluster {
 public:
  explicit Cluster(World& world);
  ~Cluster();

  World& world() { return world_; }
  Network& network() { return network_; }
  FakeTarget& target() { return target_; }
  ControllerHost& controller() { return *controllers_.front(); }
  const std::vector<std::unique_ptr<ControllerHost>>& controllers() const { return controllers_; }
  std::vector<std::unique_ptr<AgentHost>>& agents() { return agents_; }

  void add_agents(std::size_t count);
  // Another machine with a copy of that one's disk as it is now. It is none of agents().
  AgentHost& clone_agent(const AgentHost& original);
  const std::vector<std::unique_ptr<AgentHost>>& clones() const { return clones_; }
  // Its copy was served in that run: whose numbers are whose there, nobody can tell.
  bool was_copy_served(const std::string& run, const std::string& agent) const;
  bool was_cloned(const std::string& agent) const { return cloned_.contains(agent); }
  // Another machine with a copy of the first one's store as it is now.
  ControllerHost& clone_controller();
  // Who answers at the controller's address from now on, for those who dial.
  void route_to(ControllerHost& controller) { answering_ = &controller; }

  // --- the operator

  struct Order {
    std::string plan;
    std::uint32_t agents = 1;
    Duration length{};
  };
  void submit(const Order& order);
  // Sets, pauses, resumes or stops the latest run.
  void meddle();
  const std::vector<std::string>& accepted_runs() const { return accepted_; }
  Load load(const std::string& run, const std::string& agent) const;
  bool is_waiting_for_answer() const { return is_waiting_; }

 private:
  void change(const std::string& run);
  void set_load(const std::string& run, const std::string& agent, const Load& load);
  // What is wrong with the sum of a run's leases; empty: nothing.
  std::string excess(const std::string& run);
  void ask(const Order& order, int attempt);
  MachineClock draw_clock();
  std::unique_ptr<AgentHost> new_agent(const std::string& name);

  World& world_;
  const std::string memory_;  // a folder with one for each machine
  Network network_;
  FakeTarget target_;
  std::vector<std::unique_ptr<ControllerHost>> controllers_;
  ControllerHost* answering_ = nullptr;
  std::map<std::string, std::map<std::string, Load>> loads_;  // run, agent
  std::set<std::string> exceeding_;                           // runs that are looked at again
  std::vector<std::string> accepted_;
  bool is_waiting_ = false;
  int asked_ = 0;
  // Last: they tell us of their end.
  std::vector<std::unique_ptr<AgentHost>> agents_;
  std::vector<std::unique_ptr<AgentHost>> clones_;
  std::set<std::string> cloned_;  // names of their originals
};

}  // namespace spate::sim
