#include "controller/run_info.h"

namespace spate::controller {

std::string_view name(RunState s) {
  switch (s) {
    case RunState::preparing:
      return "preparing";
    case RunState::armed:
      return "armed";
    case RunState::running:
      return "running";
    case RunState::draining:
      return "draining";
    case RunState::finished:
      return "finished";
  }
  return "?";
}

std::string_view name(RunEnd e) {
  switch (e) {
    case RunEnd::crashed:
      return "crashed";
    case RunEnd::completed:
      return "completed";
    case RunEnd::stopped:
      return "stopped";
    case RunEnd::failed:
      return "failed";
  }
  return "?";
}

Result<Timeline> planned_timeline_of(const RunInfo& info) {
  return planned_timeline(
      info.plan, info.started_wall_ms == 0 ? info.submitted_wall_ms : info.started_wall_ms);
}

Result<Timeline> timeline_of(const RunInfo& info) {
  auto planned = planned_timeline_of(info);
  if (!planned) return planned.error();
  return changed_timeline(*planned, info.changes);
}

std::map<std::string, ShareHolder> holders_of(const RunInfo& info) {
  std::map<std::string, ShareHolder> holders;
  for (const RunAgent& agent : info.agents) {
    ShareHolder& holder = holders[agent.name];
    holder = {agent.agent_id, agent.incarnation};
    for (const DeadIncarnation& dead : agent.dead)
      holder.incarnation = std::max(holder.incarnation, dead.incarnation);
  }
  return holders;
}

}  // namespace spate::controller
