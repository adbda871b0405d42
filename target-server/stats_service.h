#pragma once

// spate.target.v1.Stats: what the target counted, and what it costs. On a server of its own with
// threads of its own (gRPC's synchronous API), so that it answers while the other port is flooded.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "target-server/counters.h"
#include "target-server/pool.h"

namespace grpc {
class Service;
}

namespace spate::target_server {

class StatsService {
 public:
  struct Sources {
    const Counters& counters;
    const Pool& pool;
    Instant started;
    std::vector<std::uint16_t> flood_ports;  // whose connections are counted
  };

  // The sources outlive this object. Takes a boot id and looks up the allocator once.
  explicit StatsService(const Sources& sources);
  ~StatsService();

  // For ServerBuilder::RegisterService. Owned by this object. Answers controllers and operators
  // only.
  grpc::Service& service();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spate::target_server
