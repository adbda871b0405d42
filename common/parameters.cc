#include "common/parameters.h"

namespace spate {

Parameters patched(Parameters p, const ParameterPatch& patch) {
  const auto set = [](auto& field, const auto& value) {
    if (value) field = *value;
  };
  set(p.target_url, patch.target_url);
  set(p.call.method, patch.method);
  set(p.call.message_json, patch.message_json);
  set(p.call.timeout, patch.timeout);
  set(p.call.compress, patch.compress);
  set(p.call.metadata, patch.metadata);
  set(p.load.connections, patch.connections);
  set(p.load.calls_per_loop, patch.calls_per_loop);
  set(p.load.pause, patch.pause);
  set(p.threads, patch.threads);
  set(p.paused, patch.paused);
  return p;
}

}  // namespace spate
