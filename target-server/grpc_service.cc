#include "target-server/grpc_service.h"

#include <grpcpp/grpcpp.h>

#include <charconv>
#include <limits>
#include <new>
#include <string>

#include "proto/target.grpc.pb.h"
#include "target-server/calls.h"

namespace spate::target_server {
namespace {

namespace v1 = ::spate::target::v1;

std::string_view metadata(const grpc::CallbackServerContext& context, const char* key) {
  const auto& all = context.client_metadata();
  const auto found = all.find(key);
  return found == all.end() ? std::string_view{}
                            : std::string_view{found->second.data(), found->second.size()};
}

CountKey key_of(const grpc::CallbackServerContext& context) {
  CountKey key;
  key.agent = metadata(context, "spate-agent");
  if (key.agent.empty()) return key;
  key.run = metadata(context, "spate-run");
  const std::string_view text = metadata(context, "spate-incarnation");
  std::from_chars(text.data(), text.data() + text.size(), key.incarnation);
  return key;
}

grpc::Status evaluate(const grpc::ByteBuffer& request, grpc::ByteBuffer& response) {
  grpc::Slice bytes;
  if (!request.TrySingleSlice(&bytes).ok() && !request.DumpToSingleSlice(&bytes).ok()) {
    return {grpc::StatusCode::INTERNAL, "the request's bytes cannot be read"};
  }
  const auto answer = answer_calls({reinterpret_cast<const char*>(bytes.begin()), bytes.size()});
  if (!answer) return {grpc::StatusCode::INVALID_ARGUMENT, answer.error().message};
  const grpc::Slice slice(*answer);
  response = grpc::ByteBuffer(&slice, 1);
  return grpc::Status::OK;
}

}  // namespace

class CallsService::Impl final : public v1::Calls::WithRawCallbackMethod_Call<v1::Calls::Service> {
 public:
  Impl(Pool& pool, Counters& counters, MemoryLog* log)
      : pool_(pool), counters_(counters), log_(log) {}

  grpc::ServerUnaryReactor* Call(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override {
    // A stream that was cancelled before its message was whole is handed over all the same: agents
    // ask that way whether a method is known. It is no request, and is not counted.
    if (!request->Valid()) {
      grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
      reactor->Finish({grpc::StatusCode::CANCELLED, "the request has no message"});
      return reactor;
    }
    counters_.total().received();
    const CountKey key = key_of(*context);
    Counts* agent = key.agent.empty() ? nullptr : &counters_.of(key);
    if (agent != nullptr) agent->received();
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    auto job = std::make_unique<Request>(*this, agent, *reactor, *request, *response);
    const Pool::Submitted submitted = pool_.submit(*job);
    if (submitted == Pool::Submitted::yes) {
      static_cast<void>(job.release());  // it may be gone already
    } else {
      job->refuse(why(submitted));
    }
    return reactor;
  }

  void refuse_after(Instant deadline) {
    deadline_ns_.store(to_ns(deadline), std::memory_order_relaxed);
  }

 private:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  // One request on its way through the pool. The context's own reactor, not one of ours: gRPC runs
  // the end of that one in place, but hands the end of a foreign one to another thread.
  class Request final : public Pool::Job {
   public:
    Request(Impl& service, Counts* agent, grpc::ServerUnaryReactor& reactor,
            const grpc::ByteBuffer& request, grpc::ByteBuffer& response)
        : service_(service),
          agent_(agent),
          reactor_(reactor),
          request_(request),
          response_(response) {}

    void run() noexcept override {
      const std::unique_ptr<Request> self(this);
      if (service_.is_late()) {
        refuse({grpc::StatusCode::UNAVAILABLE, "the target is ending"});
        return;
      }
      grpc::Status status;
      try {
        status = evaluate(request_, response_);
      } catch (const std::bad_alloc&) {
        status = {grpc::StatusCode::RESOURCE_EXHAUSTED, "the target is out of memory"};
      }
      if (agent_ != nullptr) agent_->completed();
      const std::uint64_t total = service_.counters_.total().completed();
      if (service_.log_ != nullptr) service_.log_->completed(total);
      reactor_.Finish(std::move(status));
    }

    void refuse(grpc::Status status) {
      if (agent_ != nullptr) agent_->refused();
      service_.counters_.total().refused();
      reactor_.Finish(std::move(status));
    }

   private:
    Impl& service_;
    Counts* agent_;
    grpc::ServerUnaryReactor& reactor_;
    const grpc::ByteBuffer& request_;
    grpc::ByteBuffer& response_;
  };

  bool is_late() const {
    const std::int64_t deadline = deadline_ns_.load(std::memory_order_relaxed);
    return deadline != kNever && to_ns(BootClock::now()) > deadline;
  }

  grpc::Status why(Pool::Submitted submitted) const {
    if (submitted == Pool::Submitted::queue_full) {
      return {grpc::StatusCode::RESOURCE_EXHAUSTED,
              "the target's queue is full: " + std::to_string(pool_.options().queue) +
                  " requests wait for " + std::to_string(pool_.threads()) + " threads"};
    }
    if (submitted == Pool::Submitted::no_threads) {
      return {grpc::StatusCode::RESOURCE_EXHAUSTED, "the target cannot start a thread"};
    }
    return {grpc::StatusCode::UNAVAILABLE, "the target is ending"};
  }

  Pool& pool_;
  Counters& counters_;
  MemoryLog* log_;
  std::atomic<std::int64_t> deadline_ns_{kNever};
};

CallsService::CallsService(Pool& pool, Counters& counters, MemoryLog* log)
    : impl_(std::make_unique<Impl>(pool, counters, log)) {}
CallsService::~CallsService() = default;
grpc::Service& CallsService::service() { return *impl_; }
void CallsService::refuse_after(Instant deadline) { impl_->refuse_after(deadline); }

}  // namespace spate::target_server
