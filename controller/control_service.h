#pragma once

// The agents' side of the controller: gRPC's AgentControl, translated. gRPC's threads only turn
// messages into values and post them; everything else here runs on the control loop. The next
// message of a stream is read when the one before has been handled, so a slow controller slows its
// agents down instead of queueing.
//
// What is sent goes to a queue of at most kMaxSendQueue messages per stream; an agent that lets it
// fill up is cut off and may dial again.

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>

#include "controller/agent_events.h"

namespace grpc {
class Service;
}

namespace spate::controller {

inline constexpr std::size_t kMaxSendQueue = 256;

class ControlService {
 public:
  struct Handlers {
    std::function<void(StreamId)> opened;
    std::function<void(StreamId, AgentMessage)> received;
    std::function<void(StreamId)> closed;  // once per opened stream
  };

  // `loop` runs until the server that has this service is shut down.
  ControlService(boost::asio::io_context& loop, Handlers handlers);
  ~ControlService();

  grpc::Service& service();

  // Before anything is sent: the term that every message carries.
  void set_term(std::uint64_t term);

  // On the control loop. Unknown streams are ignored: they broke a moment ago.
  void send(StreamId stream, const ControllerMessage& message);
  // Ends the stream after what is queued was written.
  void close(StreamId stream, const std::string& reason);
  void close_all(const std::string& reason);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spate::controller
