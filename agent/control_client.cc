// Reading order: Core (control thread, all state), then Stream (gRPC's threads, no state but the
// message being read or written).

#include "agent/control_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <future>
#include <utility>

#include "agent/control_wire.h"
#include "common/random.h"
#include "proto/agent.grpc.pb.h"

namespace spate::agent {

namespace asio = boost::asio;

// One stream. Owned by Core and by itself until OnDone. gRPC allows one read and one write at a
// time; the read is started again here, the write by Core. A hold keeps OnDone away for as long as
// Core may still start a write; Core drops it when it hears that reading has ended, which is how
// every stream ends.
class ControlClient::Stream final
    : public grpc::ClientBidiReactor<v1::AgentMessage, v1::ControllerMessage>,
      public std::enable_shared_from_this<Stream> {
 public:
  // What gRPC's threads report, each called on the control thread. None after `done`.
  struct Events {
    std::function<void(Stream*, FromController)> message;
    std::function<void(Stream*, std::string)> unreadable;
    std::function<void(Stream*, bool ok)> written;
    std::function<void(Stream*)> reading_ended;
    std::function<void(Stream*, std::string)> done;
  };

  Stream(asio::io_context& loop, Events events) : loop_(loop), events_(std::move(events)) {}

  void begin(v1::AgentControl::Stub& stub) {
    self_ = shared_from_this();
    stub.async()->Session(&context_, this);
    AddHold();
    StartRead(&incoming_);
    StartCall();
  }

  // Control thread, one at a time, not after drop_hold().
  void write(v1::AgentMessage message) {
    outgoing_ = std::move(message);
    StartWrite(&outgoing_);
  }
  void finish_writing() { StartWritesDone(); }
  void drop_hold() { RemoveHold(); }
  void cancel() { context_.TryCancel(); }
  void wait_until_done() { ended_.get_future().wait(); }

  void OnReadDone(bool ok) override {
    const Instant now = BootClock::now();
    if (!ok) return post([](Stream& s) { s.events_.reading_ended(&s); });
    Result<FromController> message = from_wire(incoming_, now);
    if (message)
      post([m = *std::move(message)](Stream& s) mutable { s.events_.message(&s, std::move(m)); });
    else
      post([e = message.error().message](Stream& s) { s.events_.unreadable(&s, e); });
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    post([ok](Stream& s) { s.events_.written(&s, ok); });
  }

  void OnDone(const grpc::Status& status) override {
    std::string reason = status.ok() ? "closed by the controller" : status.error_message();
    post([reason = std::move(reason)](Stream& s) { s.events_.done(&s, reason); });
    // Last: whoever waits may let go of this object, and gRPC is done with it.
    const std::shared_ptr<Stream> self = std::move(self_);
    ended_.set_value();
  }

 private:
  template <class F>
  void post(F&& f) {
    asio::post(loop_, [self = shared_from_this(), f = std::forward<F>(f)]() mutable { f(*self); });
  }

  asio::io_context& loop_;
  const Events events_;
  grpc::ClientContext context_;
  v1::ControllerMessage incoming_;
  v1::AgentMessage outgoing_;
  std::shared_ptr<Stream> self_;
  std::promise<void> ended_;
};

class ControlClient::Core : public std::enable_shared_from_this<Core> {
 public:
  Core(asio::io_context& loop, std::shared_ptr<grpc::Channel> channel, Callbacks callbacks)
      : loop_(loop),
        channel_(std::move(channel)),
        stub_(v1::AgentControl::NewStub(channel_)),
        callbacks_(std::move(callbacks)),
        timer_(loop),
        random_(static_cast<std::uint64_t>(to_ns(BootClock::now()))) {}

  void dial() {
    if (closing_ || stream_) return;
    // The channel has a back-off of its own; ours decides, or the two would add up.
    grpc::experimental::ChannelResetConnectionBackoff(channel_.get());
    stream_ = std::make_shared<Stream>(loop_, events());
    streams_.push_back({stream_});
    can_write_ = true;
    stream_->begin(*stub_);
    callbacks_.up();
  }

  void send(AgentMessage message) {
    if (!stream_ || !can_write_) return;
    if (queue_.size() >= kMaxQueue) {
      disconnect(false);
      // Posted: whoever sends is in the middle of something.
      asio::post(loop_, [self = shared_from_this()] {
        self->callbacks_.down("it does not read: " + std::to_string(kMaxQueue) + " messages wait");
      });
      return;
    }
    if (auto* heartbeat = std::get_if<Heartbeat>(&message))
      heartbeat->wall_clock_offset = wall_clock_offset();
    queue_.push_back(to_wire(message));
    write_next();
  }

  void disconnect(bool is_refused) {
    if (!stream_) return;
    stream_->cancel();
    detach();
    dial_later(is_refused);
  }

  void close(Duration limit, std::function<void()> closed) {
    closing_ = true;
    closed_ = std::move(closed);
    timer_.cancel();
    if (!stream_) return finish_close();
    write_next();
    timer_.expires_after(limit);
    timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (!error) self->finish_close();
    });
  }

  // The loop does not run any more: end what is left of the streams, and wait.
  void shut_down() {
    closing_ = true;
    timer_.cancel();
    detach();
    for (const Attached& a : streams_) {
      a.stream->cancel();
      if (!a.hold_dropped) a.stream->drop_hold();
      a.stream->wait_until_done();
    }
    streams_.clear();
  }

 private:
  struct Attached {
    std::shared_ptr<Stream> stream;
    bool hold_dropped = false;
  };

  Stream::Events events() {
    const std::weak_ptr<Core> weak = weak_from_this();
    // A core that is gone hears nothing more; shut_down() has seen to its streams.
    const auto on_core = [weak](auto member) {
      return [weak, member](Stream* s, auto&&... args) {
        if (const auto core = weak.lock())
          ((*core).*member)(s, std::forward<decltype(args)>(args)...);
      };
    };
    return {on_core(&Core::message), on_core(&Core::unreadable), on_core(&Core::written),
            on_core(&Core::reading_ended), on_core(&Core::done)};
  }

  bool is_current(const Stream* s) const { return stream_.get() == s; }

  void message(Stream* s, FromController m) {
    if (!is_current(s)) return;
    if (!std::holds_alternative<Rejected>(m.message)) attempts_ = 0;
    callbacks_.message(std::move(m));
  }

  // A newer controller may say more than we understand; that must not break the stream.
  void unreadable(Stream*, std::string) {}

  void written(Stream* s, bool ok) {
    if (!is_current(s)) return;
    writing_ = false;
    if (ok) write_next();
  }

  void write_next() {
    if (writing_ || !can_write_) return;
    if (queue_.empty()) {
      if (closing_) {
        can_write_ = false;
        stream_->finish_writing();
      }
      return;
    }
    writing_ = true;
    stream_->write(std::move(queue_.front()));
    queue_.pop_front();
  }

  void reading_ended(Stream* s) {
    const auto it = find(s);
    if (it == streams_.end() || it->hold_dropped) return;
    it->hold_dropped = true;
    if (is_current(s)) can_write_ = false;
    s->drop_hold();
  }

  void done(Stream* s, std::string reason) {
    const bool current = is_current(s);
    const auto it = find(s);
    const std::shared_ptr<Stream> keep = it == streams_.end() ? nullptr : it->stream;
    if (it != streams_.end()) streams_.erase(it);
    if (!current) return;
    detach();
    if (closing_) return finish_close();
    callbacks_.down(std::move(reason));
    dial_later(false);
  }

  std::vector<Attached>::iterator find(const Stream* s) {
    return std::find_if(streams_.begin(), streams_.end(),
                        [s](const Attached& a) { return a.stream.get() == s; });
  }

  void detach() {
    stream_.reset();
    queue_.clear();
    writing_ = false;
    can_write_ = false;
  }

  void dial_later(bool is_refused) {
    if (closing_) return;
    // Full jitter above the minimum: a thousand agents must not come back in one instant.
    const Duration ceiling = backoff_ceiling(attempts_, is_refused);
    ++attempts_;
    const Duration wait = Duration(random_.between(kBackoffMin.count() / 2, ceiling.count()));
    timer_.expires_after(wait);
    timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (!error) self->dial();
    });
  }

  void finish_close() {
    timer_.cancel();
    if (auto closed = std::exchange(closed_, nullptr)) closed();
  }

  asio::io_context& loop_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::AgentControl::Stub> stub_;
  const Callbacks callbacks_;
  asio::steady_timer timer_;
  Random random_;

  std::shared_ptr<Stream> stream_;  // the current one
  std::vector<Attached> streams_;   // and those given up that gRPC has not let go of
  std::deque<v1::AgentMessage> queue_;
  bool writing_ = false;
  bool can_write_ = false;
  int attempts_ = 0;  // since the last message that was no refusal
  bool closing_ = false;
  std::function<void()> closed_;
};

Duration ControlClient::backoff_ceiling(int attempts, bool is_refused) {
  return std::min(is_refused ? kRefusedBackoffMax : kBackoffMax,
                  kBackoffMin * (1 << std::clamp(attempts, 0, 10)));
}

ControlClient::ControlClient(asio::io_context& loop, std::shared_ptr<grpc::Channel> channel,
                             Callbacks callbacks)
    : core_(std::make_shared<Core>(loop, std::move(channel), std::move(callbacks))) {}

ControlClient::~ControlClient() { core_->shut_down(); }

void ControlClient::dial() { core_->dial(); }
void ControlClient::send(const AgentMessage& message) { core_->send(message); }
void ControlClient::disconnect(bool is_refused) { core_->disconnect(is_refused); }
void ControlClient::close(Duration limit, std::function<void()> closed) {
  core_->close(limit, std::move(closed));
}

}  // namespace spate::agent
