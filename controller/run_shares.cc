#include "controller/run_shares.h"

#include "common/shares.h"

namespace spate::controller {
namespace {

SendPrepare common_part(const std::string& run, const Plan& plan,
                        const std::string& descriptor_set) {
  SendPrepare prepare;
  prepare.run = run;
  prepare.target_url = plan.target.url;
  prepare.method = plan.call.method;
  prepare.message_json = plan.call.message_json;
  prepare.descriptor_set = descriptor_set;
  prepare.timeout = plan.call.timeout;
  prepare.metadata = plan.call.metadata;
  prepare.threads = plan.threads;
  prepare.interval = plan.interval;
  prepare.seed = plan.seed;
  prepare.drain = plan.drain;
  const PhaseSchedule phases = schedule(plan);
  Duration offset{};
  for (std::size_t i = 0; i < plan.phases.size(); ++i) {
    const Phase& phase = plan.phases[i];
    prepare.phases.push_back({static_cast<std::uint32_t>(i), phase.name, phase.measured, offset,
                              phase.length, phases.epoch_of_phase[i]});
    offset += phase.length;
  }
  return prepare;
}

}  // namespace

std::vector<SendPrepare> divide_run(const std::string& run, const Plan& plan,
                                    const std::string& descriptor_set) {
  std::vector<SendPrepare> parts(plan.agents, common_part(run, plan, descriptor_set));
  for (const PlannedEpoch& epoch : schedule(plan).epochs) {
    const std::vector<std::uint64_t> connections =
        divide_equally(epoch.load.connections, plan.agents);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      parts[i].epochs.push_back(
          {epoch.number, connections[i], epoch.load.calls_per_loop, epoch.load.pause});
    }
  }
  const std::vector<std::uint64_t> largest = divide_equally(plan.max_connections(), plan.agents);
  std::uint64_t first = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts[i].first_connection = first;
    first += largest[i];
  }
  return parts;
}

}  // namespace spate::controller
