#include "tests/sim/crash_point.h"

namespace spate::sim {

using namespace std::chrono_literals;
using What = CrashPoint::What;

namespace {

constexpr Duration kBackAfter = 2s;
constexpr Duration kDiskHealsAfter = 1500ms;  // longer than one attempt to write again

}  // namespace

std::string text(const CrashPoint& point) {
  constexpr const char* kWhat[] = {"nothing", "killed before", "killed after", "EIO", "ENOSPC"};
  return std::string(point.is_of_store ? "store" : "spool") + " commit " +
         std::to_string(point.operation) + ": " + kWhat[static_cast<std::size_t>(point.what)];
}

CrashPoints::CrashPoints(Cluster& cluster, const std::optional<CrashPoint>& point)
    : cluster_(cluster), point_(point) {
  if (!point_) return;
  for (const auto& agent : cluster_.agents())
    agent->disk().at_commit = [this, &a = *agent](bool is_after) { at_spool_commit(a, is_after); };
  cluster_.controller().faults().at_commit = [this](bool is_after) { at_store_commit(is_after); };
}

CrashPoints::~CrashPoints() {
  if (!point_) return;
  for (const auto& agent : cluster_.agents()) agent->disk().at_commit = nullptr;
  cluster_.controller().faults().at_commit = nullptr;
}

void CrashPoints::at_spool_commit(AgentHost& agent, bool is_after) {
  if (!is_after) ++spool_commits_;
  if (!is_here(false, spool_commits_)) return;
  World& world = cluster_.world();
  if (point_->what == (is_after ? What::kill_after : What::kill_before)) {
    world.after(kBackAfter, [&agent] { agent.start_process(); });
    throw ProcessDied{};
  }
  if (is_after || (point_->what != What::io_error && point_->what != What::disk_full)) return;
  agent.disk().fault = point_->what == What::io_error ? DiskFault::io_error : DiskFault::full;
  world.after(kDiskHealsAfter, [&agent] { agent.disk().fault = DiskFault::none; });
}

void CrashPoints::at_store_commit(bool is_after) {
  if (!is_after) ++store_commits_;
  if (!is_here(true, store_commits_)) return;
  ControllerHost& controller = cluster_.controller();
  World& world = cluster_.world();
  if (point_->what == (is_after ? What::kill_after : What::kill_before)) {
    world.after(kBackAfter, [&controller] { controller.start_process(); });
    controller.kill(false);
    return;
  }
  if (is_after || (point_->what != What::io_error && point_->what != What::disk_full)) return;
  controller.faults().refuses = true;
  world.after(kDiskHealsAfter, [&controller] { controller.faults().refuses = false; });
}

}  // namespace spate::sim
