#include "controller/control_service.h"

#include <boost/asio/post.hpp>
#include <deque>
#include <map>

#include "common/check.h"
#include "controller/agent_wire.h"
#include "proto/agent.grpc.pb.h"
#include "rpc/grpc_settings.h"

namespace spate::controller {
namespace {

namespace asio = boost::asio;
using agent::v1::AgentControl;

// "ipv4:10.0.0.5:51000" -> "10.0.0.5", "ipv6:%5B::1%5D:51000" -> "[::1]"
std::string host_of_peer(const std::string& peer) {
  const std::size_t begin = peer.find(':');
  const std::size_t end = peer.rfind(':');
  if (begin == std::string::npos || end <= begin) return peer;
  return peer.substr(begin + 1, end - begin - 1);
}

}  // namespace

class ControlService::Impl final : public AgentControl::CallbackService {
 public:
  Impl(asio::io_context& loop, Handlers handlers) : loop_(loop), handlers_(std::move(handlers)) {}

  class Stream;
  grpc::ServerBidiReactor<agent::v1::AgentMessage, agent::v1::ControllerMessage>* Session(
      grpc::CallbackServerContext* context) override;

  asio::io_context& loop_;
  Handlers handlers_;
  // Of the control loop.
  StreamId next_id_ = 1;
  std::uint64_t term_ = 0;
  std::map<StreamId, Stream*> streams_;
};

// One agent's stream. Deletes itself when gRPC is done with it. On* come on gRPC's threads and only
// post; all members are the control loop's, but for `incoming_`, which gRPC fills between StartRead
// and OnReadDone.
class ControlService::Impl::Stream final
    : public grpc::ServerBidiReactor<agent::v1::AgentMessage, agent::v1::ControllerMessage> {
 public:
  Stream(Impl& service, std::string peer) : service_(service), peer_(std::move(peer)) {
    asio::post(service_.loop_, [this] { opened(); });
  }

  void OnReadDone(bool ok) override {
    const std::int64_t received_at = to_ns(BootClock::now());
    if (!ok) {
      asio::post(service_.loop_, [this] { ended(grpc::Status::OK); });
      return;
    }
    auto message = std::make_shared<AgentMessage>(from_wire(incoming_));
    if (auto* hello = std::get_if<AgentHello>(message.get())) hello->peer = peer_;
    if (auto* heartbeat = std::get_if<AgentHeartbeat>(message.get()))
      heartbeat->t2_controller_ns = received_at;
    asio::post(service_.loop_, [this, message] { received(std::move(*message)); });
  }

  void OnWriteDone(bool ok) override {
    asio::post(service_.loop_, [this, ok] { written(ok); });
  }

  void OnCancel() override {
    asio::post(service_.loop_, [this] { ended(grpc::Status::CANCELLED); });
  }

  void OnDone() override {
    asio::post(service_.loop_, [this] {
      CHECK(is_finished_, "gRPC is done with a stream that was not finished");
      delete this;
    });
  }

  void send(const ControllerMessage& message) {
    if (is_finished_ || is_closing_) return;
    if (queue_.size() >= kMaxSendQueue) {
      ended(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                         "the agent does not read what it is told"));
      return;
    }
    queue_.push_back(message);
    write_next();
  }

  void close(const std::string& reason) {
    if (is_finished_ || is_closing_) return;
    is_closing_ = true;
    close_status_ = grpc::Status(grpc::StatusCode::UNAVAILABLE, reason);
    if (!is_writing_) ended(close_status_);
  }

 private:
  void opened() {
    id_ = service_.next_id_++;
    service_.streams_[id_] = this;
    service_.handlers_.opened(id_);
    if (!is_finished_) StartRead(&incoming_);
  }

  void received(AgentMessage message) {
    if (is_finished_) return;
    service_.handlers_.received(id_, std::move(message));
    if (!is_finished_) StartRead(&incoming_);
  }

  void write_next() {
    if (is_writing_ || is_finished_) return;
    if (queue_.empty()) {
      if (is_closing_) ended(close_status_);
      return;
    }
    is_writing_ = true;
    outgoing_ = to_wire(queue_.front(), service_.term_, to_ns(BootClock::now()));
    queue_.pop_front();
    StartWrite(&outgoing_);
  }

  void written(bool ok) {
    is_writing_ = false;
    if (is_finished_) return;
    if (ok) {
      write_next();
    } else {
      ended(grpc::Status::CANCELLED);
    }
  }

  void ended(const grpc::Status& status) {
    if (is_finished_) return;
    is_finished_ = true;
    service_.streams_.erase(id_);
    service_.handlers_.closed(id_);
    Finish(status);
  }

  Impl& service_;
  const std::string peer_;
  StreamId id_ = 0;
  agent::v1::AgentMessage incoming_;
  agent::v1::ControllerMessage outgoing_;
  std::deque<ControllerMessage> queue_;
  bool is_writing_ = false;
  bool is_closing_ = false;
  bool is_finished_ = false;
  grpc::Status close_status_;
};

namespace {

// Answers a stream that may not be: finished at once, deleted when gRPC is done.
class RefusedStream final
    : public grpc::ServerBidiReactor<agent::v1::AgentMessage, agent::v1::ControllerMessage> {
 public:
  explicit RefusedStream(const std::string& reason) {
    Finish(grpc::Status(grpc::StatusCode::PERMISSION_DENIED, reason));
  }
  void OnDone() override { delete this; }
};

}  // namespace

grpc::ServerBidiReactor<agent::v1::AgentMessage, agent::v1::ControllerMessage>*
ControlService::Impl::Session(grpc::CallbackServerContext* context) {
  if (const auto may = rpc::authorize(*context, {rpc::Role::agent}); !may) {
    return new RefusedStream(may.error().message);
  }
  return new Stream(*this, host_of_peer(context->peer()));
}

ControlService::ControlService(asio::io_context& loop, Handlers handlers)
    : impl_(std::make_unique<Impl>(loop, std::move(handlers))) {}
ControlService::~ControlService() = default;

grpc::Service& ControlService::service() { return *impl_; }

void ControlService::set_term(std::uint64_t term) { impl_->term_ = term; }

void ControlService::send(StreamId stream, const ControllerMessage& message) {
  const auto it = impl_->streams_.find(stream);
  if (it != impl_->streams_.end()) it->second->send(message);
}

void ControlService::close(StreamId stream, const std::string& reason) {
  const auto it = impl_->streams_.find(stream);
  if (it != impl_->streams_.end()) it->second->close(reason);
}

void ControlService::close_all(const std::string& reason) {
  // Closing takes streams out of the map.
  const auto streams = impl_->streams_;
  for (const auto& [id, stream] : streams) stream->close(reason);
}

}  // namespace spate::controller
