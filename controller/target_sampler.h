#pragma once

// Looks at the bundled target's statistics for one run: every interval from T, and whenever asked.
// All functions and callbacks on the control loop; gRPC's own threads only hand the answer over.
// One question at a time, each with a deadline of an interval (1 s at least), so a target that
// hangs costs samples, never memory.

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>

#include "common/endpoint.h"
#include "common/result.h"
#include "controller/run_info.h"

namespace spate::rpc {
struct TlsFiles;
}

namespace spate::controller {

class TargetSampler {
 public:
  // The instant is that of the answer; at_ns of the sample is left to the caller.
  using OnSample = std::function<void(Result<TargetSample>, Instant)>;

  static Result<std::unique_ptr<TargetSampler>> create(boost::asio::io_context& loop,
                                                       const Endpoint& probe,
                                                       const rpc::TlsFiles& tls, std::string run);
  ~TargetSampler();  // an open question is cancelled; its answer is not heard any more

  // Every `interval`, counted from `start` (a sample is taken at once, too).
  void start(Instant start, Duration interval, OnSample on_sample);
  // Stops the regular samples and asks once more.
  void take_final(OnSample on_sample);

 private:
  class Impl;
  explicit TargetSampler(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace spate::controller
