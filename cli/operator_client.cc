#include "cli/operator_client.h"

#include <grpcpp/grpcpp.h>

#include "cli/interrupt.h"
#include "proto/operator.grpc.pb.h"
#include "rpc/grpc_settings.h"

namespace spate::cli {
namespace {

constexpr int kTickMs = 100;          // how often a waiting call looks up
constexpr int kQuickSeconds = 10;     // the controller answers these from memory
constexpr int kReportSeconds = 300;   // it reads a whole run from its store for these
constexpr int kChangeSeconds = 120;   // agents check it, and others may be before it
constexpr int kPrepareSeconds = 300;  // beyond the wait for agents: every connection is tried once

gpr_timespec from_now(std::int64_t ms) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(ms, GPR_TIMESPAN));
}

// gRPC says "failed to connect to all addresses; last error: …: Connection refused".
std::string cause(const std::string& text) {
  if (!text.starts_with("failed to connect")) return text;
  const std::size_t last = text.rfind(": ");
  return last == std::string::npos ? text : text.substr(last + 2);
}

// Whether gRPC says it, not the controller: nobody is there, or the connection broke.
bool is_of_the_transport(const std::string& text) {
  if (text.empty()) return true;
  for (const char* words : {"failed to connect", "Socket closed", "Connection reset", "recvmsg",
                            "Broken pipe", "GOAWAY", "keepalive", "Deadline Exceeded",
                            "Stream removed", "Endpoint closed", "Transport closed"}) {
    if (text.find(words) != std::string::npos) return true;
  }
  return false;
}

bool until_interrupted() { return interrupts() == 0; }

// A queue for one call: waits for each step of it, and is emptied before it is destroyed.
class Steps {
 public:
  explicit Steps(grpc::ClientContext& context) : context_(context) {}
  ~Steps() {
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;

  grpc::CompletionQueue* queue() { return &queue_; }

  // Until the one step that is under way is done. False: it failed, or was given up.
  bool wait(const OperatorClient::KeepWaiting& keep_waiting) {
    void* tag = nullptr;
    bool ok = false;
    while (queue_.AsyncNext(&tag, &ok, from_now(kTickMs)) == grpc::CompletionQueue::TIMEOUT)
      if (keep_waiting && !keep_waiting()) context_.TryCancel();
    return ok;
  }

 private:
  grpc::ClientContext& context_;
  grpc::CompletionQueue queue_;
};

}  // namespace

struct OperatorClient::Impl {
  std::string address;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<ops::v1::Operator::Stub> stub;

  Error error(const grpc::Status& status) const {
    const std::string text = status.error_message();
    switch (status.error_code()) {
      case grpc::StatusCode::UNAVAILABLE:
      case grpc::StatusCode::DEADLINE_EXCEEDED:
        if (!is_of_the_transport(text))
          return {ErrorCode::unavailable, "the controller at " + address + ": " + text};
        if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED &&
            channel->GetState(false) == GRPC_CHANNEL_READY)
          return {ErrorCode::unavailable, "the controller at " + address +
                                              " is there, but did not answer in time: its log says "
                                              "what keeps it"};
        return {ErrorCode::unavailable, "no controller answers at " + address + " (" + cause(text) +
                                            "): start one with `spate-controller --listen " +
                                            address + "`, or name another with --controller"};
      case grpc::StatusCode::NOT_FOUND:
        return {ErrorCode::not_found, text};
      case grpc::StatusCode::INVALID_ARGUMENT:
        return {ErrorCode::invalid, text};
      case grpc::StatusCode::FAILED_PRECONDITION:
        return {ErrorCode::conflict, text};
      case grpc::StatusCode::PERMISSION_DENIED:
      case grpc::StatusCode::UNAUTHENTICATED:
        return {ErrorCode::refused, "the controller at " + address + " refused: " + text};
      case grpc::StatusCode::UNIMPLEMENTED:
        return {ErrorCode::internal,
                "what answers at " + address + " is no spate-controller of this version: " + text};
      default:
        return {ErrorCode::internal, "the controller at " + address + " failed (status " +
                                         std::to_string(status.error_code()) + "): " + text};
    }
  }

  template <class Request, class Reply>
  using Method = std::unique_ptr<grpc::ClientAsyncResponseReader<Reply>> (
      ops::v1::Operator::Stub::*)(grpc::ClientContext*, const Request&, grpc::CompletionQueue*);

  template <class Request, class Reply>
  Result<Reply> call(Method<Request, Reply> method, const Request& request, std::int64_t seconds,
                     const KeepWaiting& keep_waiting) {
    grpc::ClientContext context;
    context.set_deadline(from_now(seconds * 1000));
    Steps steps(context);
    Reply reply;
    grpc::Status status;
    const auto reader = (stub.get()->*method)(&context, request, steps.queue());
    reader->Finish(&reply, &status, this);
    steps.wait(keep_waiting);
    if (!status.ok()) return error(status);
    return reply;
  }

  // Reads a stream to its end.
  template <class Item>
  Result<void> read(grpc::ClientContext& context, Steps& steps,
                    grpc::ClientAsyncReader<Item>& reader,
                    const std::function<void(const Item&)>& on_item,
                    const KeepWaiting& keep_waiting) {
    reader.StartCall(this);
    bool good = steps.wait(keep_waiting);
    while (good) {
      Item item;
      reader.Read(&item, this);
      good = steps.wait(keep_waiting);
      if (good) on_item(item);
    }
    grpc::Status status;
    reader.Finish(&status, &context);
    steps.wait(keep_waiting);
    if (!status.ok()) return error(status);
    return {};
  }
};

OperatorClient::OperatorClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
OperatorClient::~OperatorClient() = default;

Result<std::unique_ptr<OperatorClient>> OperatorClient::create(const ControllerFlags& flags) {
  const auto endpoint = parse_endpoint(flags.controller);
  if (!endpoint) return endpoint.error().with_context("--controller " + flags.controller);
  const rpc::TlsFiles files{flags.ca, flags.certificate, flags.key};
  auto channel = rpc::make_channel(*endpoint, files, rpc::Role::controller);
  if (!channel) return channel.error();
  auto impl = std::make_unique<Impl>();
  impl->address = endpoint->to_string();
  impl->channel = *channel;
  impl->stub = ops::v1::Operator::NewStub(impl->channel);
  return std::unique_ptr<OperatorClient>(new OperatorClient(std::move(impl)));
}

Result<ops::v1::SubmitReply> OperatorClient::submit(const ops::v1::SubmitRequest& request,
                                                    const KeepWaiting& keep_waiting) {
  return impl_->call(&ops::v1::Operator::Stub::AsyncSubmit, request,
                     request.wait_ms() / 1000 + kPrepareSeconds, keep_waiting);
}

Result<void> OperatorClient::stop(const std::string& run, bool now) {
  ops::v1::StopRequest request;
  request.set_run(run);
  request.set_now(now);
  const auto reply = impl_->call(&ops::v1::Operator::Stub::AsyncStop, request, kQuickSeconds, {});
  if (!reply) return reply.error();
  if (!reply->error().empty()) return Error{ErrorCode::not_found, reply->error()};
  return {};
}

Result<ops::v1::SetReply> OperatorClient::set(const ops::v1::SetRequest& request) {
  return impl_->call(&ops::v1::Operator::Stub::AsyncSet, request, kChangeSeconds, {});
}

Result<ops::v1::SetReply> OperatorClient::pause(const ops::v1::PauseRequest& request) {
  return impl_->call(&ops::v1::Operator::Stub::AsyncPause, request, kChangeSeconds, {});
}

Result<ops::v1::SetReply> OperatorClient::resume(const ops::v1::PauseRequest& request) {
  return impl_->call(&ops::v1::Operator::Stub::AsyncResume, request, kChangeSeconds, {});
}

Result<ops::v1::StatusReply> OperatorClient::status(const std::string& run) {
  ops::v1::StatusRequest request;
  request.set_run(run);
  return impl_->call(&ops::v1::Operator::Stub::AsyncStatus, request, kReportSeconds,
                     until_interrupted);
}

Result<ops::v1::ListRunsReply> OperatorClient::list_runs(const std::string& run) {
  ops::v1::ListRunsRequest request;
  request.set_run(run);
  return impl_->call(&ops::v1::Operator::Stub::AsyncListRuns, request, kQuickSeconds,
                     until_interrupted);
}

Result<ops::v1::ListAgentsReply> OperatorClient::list_agents() {
  return impl_->call(&ops::v1::Operator::Stub::AsyncListAgents, ops::v1::ListAgentsRequest(),
                     kQuickSeconds, until_interrupted);
}

Result<ops::v1::VerifyReply> OperatorClient::verify(const std::string& run) {
  ops::v1::VerifyRequest request;
  request.set_run(run);
  return impl_->call(&ops::v1::Operator::Stub::AsyncVerify, request, kReportSeconds,
                     until_interrupted);
}

Result<std::string> OperatorClient::report(const std::string& run, const std::string& format) {
  ops::v1::ReportRequest request;
  request.set_run(run);
  request.set_format(format);
  grpc::ClientContext context;
  context.set_deadline(from_now(kReportSeconds * 1000));
  Steps steps(context);
  const auto reader = impl_->stub->PrepareAsyncReport(&context, request, steps.queue());
  std::string text;
  const auto done = impl_->read<ops::v1::ReportChunk>(
      context, steps, *reader, [&text](const ops::v1::ReportChunk& chunk) { text += chunk.data(); },
      {});
  if (!done) return done.error();
  return text;
}

void OperatorClient::reconnect_for(std::chrono::milliseconds length) {
  impl_->channel->WaitForConnected(from_now(length.count()));
}

Result<void> OperatorClient::watch(const std::string& run,
                                   const std::function<void(const ops::v1::WatchEvent&)>& on_event,
                                   const KeepWaiting& keep_waiting) {
  ops::v1::WatchRequest request;
  request.set_run(run);
  grpc::ClientContext context;
  Steps steps(context);
  const auto reader = impl_->stub->PrepareAsyncWatch(&context, request, steps.queue());
  return impl_->read<ops::v1::WatchEvent>(context, steps, *reader, on_event, keep_waiting);
}

Result<std::string> OperatorClient::resolve_run(const std::string& run) {
  if (run != "last") return run;
  const auto runs = list_runs("");
  if (!runs) return runs.error();
  if (runs->runs().empty()) return Error{ErrorCode::not_found, "there is no run yet"};
  return runs->runs(0).run();
}

}  // namespace spate::cli
