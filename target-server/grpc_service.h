#pragma once

// The flooded service: spate.target.v1.Calls on gRPC's callback API. gRPC's own threads only count
// a request and put it into the pool's queue; a pool thread parses it, evaluates it and sends the
// answer.
//
// What is counted, in total and per agent (metadata spate-run, spate-agent, spate-incarnation):
//   received   the request has arrived whole
//   refused    the queue was full, no thread could be had, or the target is ending:
//   RESOURCE_EXHAUSTED, UNAVAILABLE completed  evaluated and answered, an application error
//   (INVALID_ARGUMENT) too. A request whose client went away
//              before the answer is completed all the same: the work was done
// Each is counted before its answer is sent, so a client that has its answer finds it counted. A
// request without this metadata counts in total only.

#include <atomic>
#include <cstdint>
#include <memory>

#include "common/clock.h"
#include "target-server/counters.h"
#include "target-server/memory_log.h"
#include "target-server/pool.h"

namespace grpc {
class Service;
}

namespace spate::target_server {

class CallsService {
 public:
  // All outlive this object; `log` may be null.
  CallsService(Pool& pool, Counters& counters, MemoryLog* log);
  ~CallsService();

  // For ServerBuilder::RegisterService. Owned by this object.
  grpc::Service& service();
  // Requests that are still queued at this moment are refused instead of being evaluated, so that
  // an end is bounded.
  void refuse_after(Instant deadline);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spate::target_server
