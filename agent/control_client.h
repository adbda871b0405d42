#pragma once

// The agent's end of the control stream: one bidirectional gRPC stream, dialled again for ever with
// jittered back-off of at most kBackoffMax, or kRefusedBackoffMax while the controller refuses it.
// Translates between proto/agent.proto and the values of
// agent/messages.h.
//
// All functions and all callbacks: control thread, the one that runs `loop`. gRPC's own threads
// only translate, stamp and post; they touch no state of this class. The loop must outlive the
// client.
//
// Writes wait in a queue of at most kMaxQueue messages; when it overflows the stream is given up
// and dialled again. Nothing is lost by that: the session says everything that was not acknowledged
// again.

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>

#include "agent/messages.h"
#include "common/clock.h"

namespace grpc {
class Channel;
}

namespace spate::agent {

class ControlClient {
 public:
  static constexpr std::size_t kMaxQueue = 256;
  static constexpr Duration kBackoffMin = std::chrono::milliseconds(100);
  // Well inside the 5 s after which a controller counts an agent as lost.
  static constexpr Duration kBackoffMax = std::chrono::seconds(2);
  // Refused for what only its owner can change; or for what passes, so not for long either.
  static constexpr Duration kRefusedBackoffMax = std::chrono::seconds(15);
  // The longest wait after so many attempts without a word of the controller but refusals.
  static Duration backoff_ceiling(int attempts, bool is_refused);

  struct Callbacks {
    std::function<void()> up;                      // a new stream may be written to
    std::function<void(std::string reason)> down;  // it broke, or could not be made
    std::function<void(FromController)> message;   // never after `down` of its stream
  };

  ControlClient(boost::asio::io_context& loop, std::shared_ptr<grpc::Channel> channel,
                Callbacks callbacks);
  ~ControlClient();  // cancels, and waits for gRPC to let go
  ControlClient(const ControlClient&) = delete;
  ControlClient& operator=(const ControlClient&) = delete;

  void dial();
  void send(const AgentMessage& message);  // dropped while there is no stream
  // Gives the stream up without a `down`, and dials again after the back-off.
  void disconnect(bool is_refused = false);
  // Writes what is queued, closes, and calls `closed` when the controller has seen the end, or
  // after `limit`. Dials no more.
  void close(Duration limit, std::function<void()> closed);

 private:
  class Stream;  // the reactor
  class Core;
  std::shared_ptr<Core> core_;
};

}  // namespace spate::agent
