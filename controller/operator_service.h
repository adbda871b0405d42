#pragma once

// The client's side of the controller: gRPC's Operator, translated. gRPC's threads only check the
// role, turn requests into values and post them; the handlers and all answers are the control
// loop's.
//
// A watcher that reads slowly misses progress lines (past kMaxProgressQueued), never events or the
// end; one that does not read at all (kMaxWatchQueued) is cut off.

#include <boost/asio/io_context.hpp>
#include <memory>

#include "controller/operator_api.h"

namespace grpc {
class Service;
}

namespace spate::controller {

inline constexpr std::size_t kMaxProgressQueued = 256;
inline constexpr std::size_t kMaxWatchQueued = 8192;
inline constexpr std::size_t kReportChunkBytes = 64 * 1024;

class OperatorService {
 public:
  // `loop` runs until the server that has this service is shut down.
  OperatorService(boost::asio::io_context& loop, OperatorHandlers handlers);
  ~OperatorService();

  grpc::Service& service();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spate::controller
