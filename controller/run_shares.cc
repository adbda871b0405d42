#include "controller/run_shares.h"

#include <algorithm>

#include "controller/leases.h"

namespace spate::controller {
namespace {

SendPrepare common_part(const std::string& run, const Plan& plan,
                        const std::string& descriptor_set) {
  SendPrepare prepare;
  prepare.run = run;
  prepare.descriptor_set = descriptor_set;
  prepare.interval = plan.interval;
  prepare.seed = plan.seed;
  prepare.drain = plan.drain;
  prepare.on_controller_loss = plan.on_controller_loss;
  prepare.lease = lease_length(plan);
  return prepare;
}

}  // namespace

Duration lease_length(const Plan& plan) {
  return plan.on_controller_loss == OnControllerLoss::go_on ? plan.controller_loss_limit
                                                            : kShortLease;
}

std::vector<SendPrepare> divide_run(const std::string& run, const Plan& plan,
                                    const Timeline& timeline, const std::string& descriptor_set) {
  std::vector<SendPrepare> parts(plan.agents, common_part(run, plan, descriptor_set));
  std::uint64_t first = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts[i].timeline = share_of(timeline, i);
    parts[i].first_connection = first;
    std::uint64_t largest = 0;
    for (const EpochShare& share : parts[i].timeline.epochs)
      largest = std::max(largest, share.parameters.load.connections);
    first += largest;
  }
  return parts;
}

}  // namespace spate::controller
