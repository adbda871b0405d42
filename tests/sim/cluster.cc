#include "tests/sim/cluster.h"

#include <utility>

namespace spate::sim {

using namespace std::chrono_literals;

namespace {

constexpr int kMaxAttempts = 40;
constexpr Duration kAskAgainAfter = 15s;

}  // namespace

Cluster::Cluster(World& world) : world_(world), network_(world), target_(world) {
  controllers_.push_back(
      std::make_unique<ControllerHost>(world_, network_, target_, "controller", draw_clock()));
  answering_ = controllers_.front().get();
}

MachineClock Cluster::draw_clock() {
  // Each machine has been up for another while; crystals are good to 50 ppm.
  const Duration uptime = world_.between(1min, std::chrono::hours(24 * 90));
  return {uptime, world_.random().between(-50'000, 50'000)};
}

void Cluster::add_agents(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name = "pc-" + std::to_string(agents_.size() + 1);
    agents_.push_back(std::make_unique<AgentHost>(
        AgentHost::Outside{
            world_, network_, target_, [this] { return answering_; },
            [this, name](const std::string& run, std::uint64_t n) { calling_[run][name] = n; }},
        name, draw_clock()));
    LinkQuality& q = network_.quality(agents_.back()->link());
    q.delay = world_.between(50us, 20ms);
    q.jitter = world_.between(10us, 5ms);
  }
}

ControllerHost& Cluster::clone_controller() {
  controllers_.push_back(std::make_unique<ControllerHost>(
      world_, network_, target_, "controller-" + std::to_string(controllers_.size() + 1),
      draw_clock()));
  controllers_.back()->file() = controller().file();
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

// I9: at every instant, no more connections make calls than the run has.
void Cluster::set_calling(const std::string& run, const std::string& agent,
                          std::uint64_t connections) {
  calling_[run][agent] = connections;
  std::uint64_t sum = 0;
  for (const auto& [name, n] : calling_[run]) sum += n;
  const auto stored = controller().file().runs.find(run);
  if (stored == controller().file().runs.end()) return;
  const std::uint64_t most = stored->second.info.plan.max_connections();
  if (sum > most)
    world_.violated("I9 no more than the run", run + " has " + std::to_string(most) +
                                                   " connections, " + std::to_string(sum) +
                                                   " make calls");
}

}  // namespace spate::sim
