#pragma once

// The agent's control loop: glues the session to its control stream, its workers, the pre-flight
// and the clock. It decides nothing: events go into Session::step(), the actions that come out are
// carried out in order. Start reading at agent.cc's on_event() and carry_out().
//
// Control thread, the one that runs `loop`; beside it there are the workers' threads (worker.h),
// gRPC's (control_client.h) and one short-lived thread per pre-flight.

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "agent/messages.h"
#include "agent/preflight.h"
#include "agent/spool.h"
#include "agent/term_book.h"

namespace grpc {
class Channel;
}

namespace spate::agent {

struct AgentOptions {
  Hello self;
  Spool* spool = nullptr;  // begun; both outlive the agent
  TermBook* terms = nullptr;
  std::string memory_folder;  // on tmpfs, for open intervals; empty: there is none
  std::string controller;     // HOST:PORT, for people
  std::shared_ptr<grpc::Channel> channel;
  PreflightRules rules;
  PreflightWorld world;
};

class Agent {
 public:
  // `left` is called when the agent is done after shut_down(), with the number of records that the
  // controller did not acknowledge and that stay in the spool.
  Agent(boost::asio::io_context& loop, AgentOptions options,
        std::function<void(std::uint64_t undelivered)> left);
  ~Agent();

  void start();
  // Stops load, drains, delivers; then `left`.
  void shut_down();

 private:
  class Core;
  std::shared_ptr<Core> core_;
};

}  // namespace spate::agent
