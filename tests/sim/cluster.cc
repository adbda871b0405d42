#include "tests/sim/cluster.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <span>
#include <utility>

namespace spate::sim {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

constexpr int kMaxAttempts = 40;
constexpr Duration kAskAgainAfter = 15s;

// On tmpfs: it is as fast as memory, and it is what the product uses.
std::string memory_folder() {
  const std::string root = fs::exists("/dev/shm") ? "/dev/shm" : fs::temp_directory_path().string();
  return root + "/spate-sim-" + std::to_string(::getpid());
}

constexpr Duration kNear = 1s;

// All agents together around `elapsed`: clocks do not agree on a border, and a change that is late
// is made a moment after it is heard, so each of them may be on either side of one.
std::uint64_t most_connections(const Timeline& timeline, Duration elapsed) {
  std::vector<std::uint64_t> most(timeline.epochs.front().shares.size());
  for (const Segment& s : timeline.segments) {
    if (s.offset > elapsed + kNear || s.offset + s.length < elapsed - kNear) continue;
    const std::vector<AgentShare>& shares = timeline.epoch(s.epoch).shares;
    for (std::size_t i = 0; i < most.size(); ++i)
      most[i] = std::max(most[i], shares[i].parameters.load.connections);
  }
  return std::accumulate(most.begin(), most.end(), std::uint64_t{0});
}

// Of what the run was to be by its plan and what it is to be after each of its changes: agents that
// have not heard of a change may be doing what was before it.
std::uint64_t most_connections(const controller::RunInfo& info, Duration elapsed) {
  const auto planned = planned_timeline(info.plan, info.started_wall_ms);
  if (!planned) return UINT64_MAX;
  std::uint64_t most = 0;
  for (std::size_t n = 0; n <= info.changes.size(); ++n) {
    const Timeline timeline = changed_timeline(*planned, std::span(info.changes).first(n));
    most = std::max(most, most_connections(timeline, elapsed));
  }
  return most;
}

}  // namespace

Cluster::Cluster(World& world)
    : world_(world), memory_(memory_folder()), network_(world), target_(world) {
  controllers_.push_back(
      std::make_unique<ControllerHost>(world_, network_, target_, "controller", draw_clock()));
  answering_ = controllers_.front().get();
}

Cluster::~Cluster() {
  agents_.clear();
  clones_.clear();
  fs::remove_all(memory_);
}

MachineClock Cluster::draw_clock() {
  // Each machine has been up for another while; crystals are good to 50 ppm.
  const Duration uptime = world_.between(1min, std::chrono::hours(24 * 90));
  return {uptime, world_.random().between(-50'000, 50'000)};
}

void Cluster::add_agents(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    agents_.push_back(new_agent("pc-" + std::to_string(agents_.size() + 1)));
}

std::unique_ptr<AgentHost> Cluster::new_agent(const std::string& name) {
  auto agent = std::make_unique<AgentHost>(
      AgentHost::Outside{
          world_, network_, target_, [this] { return answering_; },
          [this, name](const std::string& run, const Load& load) { set_load(run, name, load); }},
      name, draw_clock(), memory_ + "/" + name);
  LinkQuality& q = network_.quality(agent->link());
  q.delay = world_.between(50us, 20ms);
  q.jitter = world_.between(10us, 5ms);
  return agent;
}

AgentHost& Cluster::clone_agent(const AgentHost& original) {
  clones_.push_back(new_agent(original.name() + "-copy-" + std::to_string(clones_.size() + 1)));
  clones_.back()->copy_disk(original);
  cloned_.insert(original.name());
  return *clones_.back();
}

ControllerHost& Cluster::clone_controller() {
  controllers_.push_back(std::make_unique<ControllerHost>(
      world_, network_, target_, "controller-" + std::to_string(controllers_.size() + 1),
      draw_clock()));
  controllers_.back()->file() = controller().file();
  controllers_.back()->copied_at = world_.now();
  return *controllers_.back();
}

// --- the operator

void Cluster::submit(const Order& order) {
  is_waiting_ = true;
  ask(order, 0);
}

void Cluster::ask(const Order& order, int attempt) {
  if (attempt >= kMaxAttempts) {
    is_waiting_ = false;
    world_.tell("operator", "gives up");
    return;
  }
  const int mine = ++asked_;
  world_.tell("operator", "submits");
  controller::SubmitOrder submit;
  submit.plan = order.plan;
  submit.wait = 10s;
  controller().submit(submit, [this, order, attempt, mine](const controller::SubmitAnswer& a) {
    if (mine != asked_) return;  // asked again since
    ++asked_;
    if (a.problems.empty()) {
      world_.tell("operator", "is told run=" + a.run);
      accepted_.push_back(a.run);
      is_waiting_ = false;
      return;
    }
    world_.tell("operator", "is refused because=" + a.problems.front());
    world_.after(5s, [this, order, attempt] { ask(order, attempt + 1); });
  });
  world_.after(kAskAgainAfter + 60s, [this, order, attempt, mine] {
    if (mine == asked_) ask(order, attempt + 1);
  });
}

void Cluster::meddle() {
  if (accepted_.empty()) return;
  const std::string& run = accepted_.back();
  if (world_.chance(0.92)) return change(run);
  world_.tell("operator", "stops the run");
  controller().stop(run, world_.chance(0.3));
}

void Cluster::change(const std::string& run) {
  controller::ChangeRequest request;
  request.run = run;
  request.who = "operator";
  request.reason = "simulation";
  const double draw = world_.random().unit();
  if (draw < 0.12) {
    request.verb = controller::ChangeRequest::Verb::pause;
  } else if (draw < 0.3) {
    request.verb = controller::ChangeRequest::Verb::resume;
  } else if (draw < 0.8) {
    request.assignments = {"load.connections=" +
                           std::to_string(agents_.size() * (1 + world_.pick(8)))};
  } else {
    request.assignments = {"agents.threads=" + std::to_string(1 + world_.pick(4))};
  }
  if (world_.chance(0.2)) request.agents = {agents_[world_.pick(agents_.size())]->name()};
  if (world_.chance(0.3)) request.at = "+" + std::to_string(1 + world_.pick(20)) + "s";
  if (world_.chance(0.1)) request.if_epoch = 1 + static_cast<std::uint32_t>(world_.pick(4));
  if (request.agents.empty() && world_.chance(0.15)) request.canary_percent = 25;
  world_.tell("operator", "changes " + (request.assignments.empty() ? std::string("pause or resume")
                                                                    : request.assignments.front()));
  controller().change(std::move(request));
}

bool Cluster::was_copy_served(const std::string& run, const std::string& agent) const {
  return std::ranges::any_of(target_.accounts(), [&](const auto& one) {
    const auto& [client, account] = one;
    return client.run == run && client.agent == agent && account.truth.is_of_a_copy;
  });
}

Load Cluster::load(const std::string& run, const std::string& agent) const {
  const auto agents = loads_.find(run);
  if (agents == loads_.end()) return {};
  const auto mine = agents->second.find(agent);
  return mine == agents->second.end() ? Load{} : mine->second;
}

// I9: no more connections hold a lease than the run has.
void Cluster::set_load(const std::string& run, const std::string& agent, const Load& load) {
  Load& mine = loads_[run][agent];
  if (std::exchange(mine, load).leased >= load.leased) return;  // no more than before
  if (excess(run).empty() || !exceeding_.insert(run).second) return;
  // Where shares change over, one machine's clock may be ahead of another's: is it so a moment
  // later?
  world_.after(kNear, [this, run] {
    exceeding_.erase(run);
    if (const std::string text = excess(run); !text.empty())
      world_.violated("I9 no more than the run", text);
  });
}

std::string Cluster::excess(const std::string& run) {
  std::uint64_t sum = 0;
  std::string who;
  for (const auto& [name, one] : loads_[run]) {
    if (was_copy_served(run, name)) return "";
    sum += one.leased;
    who += " " + name + "=" + std::to_string(one.leased);
  }
  const auto stored = controller().file().runs.find(run);
  const auto start = controller().starts().find(run);
  if (stored == controller().file().runs.end() || start == controller().starts().end()) return "";
  const std::uint64_t most = most_connections(stored->second.info, world_.now() - start->second);
  if (sum <= most) return "";
  return run + " has " + std::to_string(most) + " connections, " + std::to_string(sum) +
         " hold a lease:" + who;
}

}  // namespace spate::sim
