// bench-grpcpp: the client one would write with the gRPC C++ library: N channels, each with a
// connection of its own, one call in flight on each, one thread on one completion queue (measured
// slightly cheaper than the library's callback API).
//
//   bench-grpcpp --port PORT [--connections 100] [--seconds 2]
//
// At the end one JSON object: requests (answered ok with the right result), errors.

#include <grpc/support/time.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdio>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "bench/frames.h"
#include "proto/target.grpc.pb.h"

namespace spate::bench {
namespace {

using target::v1::CallRequest;
using target::v1::CallResponse;
using target::v1::Calls;
using Clock = std::chrono::steady_clock;

// The library's form of an instant, by its monotonic clock.
gpr_timespec in_seconds(int seconds) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_seconds(seconds, GPR_TIMESPAN));
}

CallRequest forty_plus_two() {
  CallRequest request;
  auto* call = request.add_call();
  call->add_add()->set_number(40);
  call->add_add()->set_number(2);
  return request;
}

// A channel and the one call in flight on it.
class Caller {
 public:
  explicit Caller(const std::string& address) {
    grpc::ChannelArguments arguments;
    // Without this all channels of one process would share one connection.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    channel_ = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
    stub_ = Calls::NewStub(channel_);
    channel_->GetState(true);  // connect now
  }

  bool wait_connected() { return channel_->WaitForConnected(in_seconds(60)); }

  void call(const CallRequest& request, grpc::CompletionQueue& queue) {
    context_.emplace();
    response_.Clear();
    reader_ = stub_->AsyncCall(&*context_, request, &queue);
    reader_->Finish(&response_, &status_, this);
  }

  bool answered_right() const {
    return status_.ok() && response_.result_size() == 1 && response_.result(0).number() == 42;
  }

 private:
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<Calls::Stub> stub_;
  std::optional<grpc::ClientContext> context_;
  CallResponse response_;
  grpc::Status status_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<CallResponse>> reader_;
};

struct Counts {
  unsigned long long requests = 0, errors = 0;
};

Counts flood(std::deque<Caller>& callers, std::chrono::seconds duration) {
  const CallRequest request = forty_plus_two();
  grpc::CompletionQueue queue;
  for (Caller& caller : callers) caller.call(request, queue);
  const auto end = Clock::now() + duration;
  Counts counts;
  std::size_t in_flight = callers.size();
  while (in_flight > 0) {
    void* tag = nullptr;
    bool ok = false;
    if (queue.AsyncNext(&tag, &ok, in_seconds(5)) != grpc::CompletionQueue::GOT_EVENT) break;
    auto& caller = *static_cast<Caller*>(tag);
    ++(caller.answered_right() ? counts.requests : counts.errors);
    if (Clock::now() < end) {
      caller.call(request, queue);
    } else {
      --in_flight;
    }
  }
  return counts;
}

}  // namespace
}  // namespace spate::bench

int main(int argc, char** argv) {
  using namespace spate::bench;
  const unsigned seconds = flag(argc, argv, "--seconds", 2);
  bound_lifetime(seconds + 120);
  const std::string address = "ipv4:127.0.0.1:" + std::to_string(flag(argc, argv, "--port", 0));
  std::deque<Caller> callers;
  for (unsigned i = flag(argc, argv, "--connections", 100); i > 0; --i)
    callers.emplace_back(address);
  for (Caller& caller : callers) {
    if (!caller.wait_connected()) {
      std::fprintf(stderr, "bench-grpcpp: no connection to %s within 60 s\n", address.c_str());
      return 1;
    }
  }
  const Counts counts = flood(callers, std::chrono::seconds(seconds));
  std::printf("{\"requests\": %llu, \"errors\": %llu}\n", counts.requests, counts.errors);
  return counts.errors == 0 ? 0 : 1;
}
