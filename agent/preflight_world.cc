#include "agent/preflight_world.h"

#include "agent/message_template.h"
#include "agent/process.h"
#include "agent/target_probe.h"

namespace spate::agent {

PreflightWorld real_world(TlsFiles tls) {
  PreflightWorld world;
  world.descriptors = raise_descriptor_limit;
  world.local_ports = local_port_range;
  world.resolve = resolve;
  world.compile = [](const std::string& method, const std::string& descriptor_set,
                     const std::string& message_json) {
    return MessageTemplate::compile(method, descriptor_set, message_json);
  };
  world.tls =
      [tls = std::move(tls)](const Endpoint& target) -> Result<std::shared_ptr<const TlsContext>> {
    if (tls.ca.empty())
      return Error{ErrorCode::refused,
                   "a grpcs:// target needs --ca, --cert and --key on the agent (see `spate pki`)"};
    return TlsContext::load(tls, target.host);
  };
  world.probe = probe_target;
  return world;
}

}  // namespace spate::agent
