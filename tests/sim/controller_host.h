#pragma once

// A machine that runs a controller: clock, store file, and the process with the real Coordinator.
// What controller.cc does in a process (streams, store thread, timers, sampler) is done here under
// the simulated world. It can be killed, lose power, be stopped for a while, and start again from
// its store alone.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/messages.h"
#include "controller/coordinator.h"
#include "tests/sim/fake_target.h"
#include "tests/sim/model_store.h"
#include "tests/sim/network.h"
#include "tests/sim/world.h"

namespace spate::sim {

class ControllerHost {
 public:
  // Where an agent is when it hears something.
  struct AgentEnd {
    std::function<void(controller::ControllerMessage, std::uint64_t term, Instant replied)> hear;
  };

  ControllerHost(World& world, Network& network, FakeTarget& target, std::string name,
                 MachineClock clock);
  ~ControllerHost();

  // --- the machine

  void start_process();
  void kill(bool is_power_cut);
  void freeze();
  void thaw();
  bool is_running() const { return process_ != nullptr; }
  MachineClock& clock() { return clock_; }
  StoreFile& file() { return file_; }
  StoreFaults& faults() { return faults_; }
  const std::string& name() const { return name_; }
  int last_exit() const { return last_exit_; }
  bool reaches_target = true;
  std::optional<Moment> copied_at;  // its store is a copy, taken then
  bool has_taken_records() const { return has_taken_records_; }
  // An agent of that run could not take a change that others had already: its share stays what it
  // was.
  bool has_straggler(const std::string& run) const { return stragglers_.contains(run); }
  // T of each run in true time, as this machine said last.
  const std::map<std::string, Moment>& starts() const { return starts_; }
  // After a reboot T of a run was not known until then.
  Moment start_unknown_until() const { return start_unknown_until_; }

  // --- agents

  bool listens() const { return process_ != nullptr && !process_->is_frozen; }
  void stream_opened(Network::StreamId stream, AgentEnd end);
  void stream_closed(Network::StreamId stream);
  void received(Network::StreamId stream, agent::AgentMessage message, const std::string& peer);

  // --- operators

  using Answer = std::function<void(const controller::SubmitAnswer&)>;
  void submit(controller::SubmitOrder order, Answer answer);
  void stop(const std::string& run, bool at_once);
  void change(controller::ChangeRequest request);
  const controller::Coordinator* coordinator() const {
    return process_ ? process_->coordinator.get() : nullptr;
  }

 private:
  struct Sampler {
    std::string run;
    Instant start;
    Duration interval{};
    std::uint64_t number = 0;
  };
  struct Process {
    std::uint64_t number = 0;
    std::uint64_t term = 0;
    std::unique_ptr<controller::Coordinator> coordinator;
    std::shared_ptr<ModelStore> store;
    std::map<Network::StreamId, AgentEnd> streams;
    // Who has said hello, and which process of each (agent's id, incarnation) was welcomed.
    std::map<Network::StreamId, agent::Hello> hellos;
    std::map<std::pair<std::string, std::uint64_t>, std::uint64_t> welcomed;
    std::map<std::string, Sampler> samplers;
    std::map<controller::Token, Answer> answers;
    std::deque<controller::Event> events;  // the first one is being handled
    bool is_handling = false;
    bool is_frozen = false;
    std::deque<std::function<void()>> while_frozen;
  };

  // An agent's answer that it cannot serve a change.
  struct Refusal {
    std::string run;
    std::uint32_t epoch = 0;
    std::string agent_id;
  };

  // Runs in the process, if it still lives: at once, or when it is not stopped any more.
  void in_process(std::uint64_t number, std::function<void()> what);
  void step(controller::Event event);
  void tick(std::uint64_t number);
  void sample(std::uint64_t number, const std::string& run, std::uint64_t sampler);
  Instant now() const { return clock_.boottime(world_.now()); }

  void check_welcome(Network::StreamId stream);
  void check_acknowledgement(Network::StreamId stream, const controller::SendRecordAck& ack);
  void check_change(const controller::store_op::PutChange& put);

  void act(controller::action::Send& a);
  void act(controller::action::CloseStream& a);
  void act(controller::action::Write& a);
  void act(controller::action::Barrier& a);
  void act(controller::action::StartSampling& a);
  void act(controller::action::TakeFinalSample& a);
  void act(controller::action::StopSampling& a);
  void act(controller::action::AnswerSubmit& a);
  void act(controller::action::AnswerChange& a);
  void act(controller::action::Log& a);
  void act(controller::action::Exit& a);
  // Answers and shows that nobody in the simulation waits for.
  template <class Other>
  void act(Other&) {}

  World& world_;
  Network& network_;
  FakeTarget& target_;
  const std::string name_;
  MachineClock clock_;
  StoreFile file_;
  StoreFaults faults_;
  std::vector<Refusal> refusals_;
  std::set<std::string> stragglers_;
  bool has_taken_records_ = false;
  std::map<std::string, Moment> starts_;
  Moment start_unknown_until_{};
  std::unique_ptr<Process> process_;
  std::uint64_t processes_ = 0;
  std::uint64_t boots_ = 1;
  std::uint64_t samplers_ = 0;
  controller::Token tokens_ = 0;
  int last_exit_ = -1;
};

}  // namespace spate::sim
