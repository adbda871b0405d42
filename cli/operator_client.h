#pragma once

// What a controller can be asked, as plain calls. One thread; every call blocks, but asks
// `keep_waiting` ten times a second and gives up when that says no.

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "common/result.h"

namespace spate::ops::v1 {
class ListAgentsReply;
class ListRunsReply;
class PauseRequest;
class SetReply;
class SetRequest;
class StatusReply;
class SubmitReply;
class SubmitRequest;
class VerifyReply;
class WatchEvent;
}  // namespace spate::ops::v1

namespace spate::cli {

// Where the controller is, and what proves to it who we are. Flags of every verb that asks one.
struct ControllerFlags {
  std::string controller = "127.0.0.1:7070";
  std::string ca;
  std::string certificate;
  std::string key;
};

class OperatorClient {
 public:
  using KeepWaiting = std::function<bool()>;

  // Nothing is sent yet. Refuses what is not a loopback address unless all three files are given.
  static Result<std::unique_ptr<OperatorClient>> create(const ControllerFlags& flags);
  ~OperatorClient();

  Result<ops::v1::SubmitReply> submit(const ops::v1::SubmitRequest& request,
                                      const KeepWaiting& keep_waiting);
  Result<void> stop(const std::string& run, bool now);
  // Answered when the agents have prepared the change and it is stored, or refused.
  Result<ops::v1::SetReply> set(const ops::v1::SetRequest& request);
  Result<ops::v1::SetReply> pause(const ops::v1::PauseRequest& request);
  Result<ops::v1::SetReply> resume(const ops::v1::PauseRequest& request);
  Result<ops::v1::StatusReply> status(const std::string& run);
  Result<ops::v1::ListRunsReply> list_runs(const std::string& run);
  Result<ops::v1::ListAgentsReply> list_agents();
  Result<ops::v1::VerifyReply> verify(const std::string& run);
  Result<std::string> report(const std::string& run, const std::string& format);

  // Waits so long for the connection to be there again. A handshake only makes progress while
  // somebody waits for it: between two calls that fail at once it would never end.
  void reconnect_for(std::chrono::milliseconds length);
  // Calls `on_event` for each event until the stream ends. An error if it broke, and if
  // keep_waiting ended it.
  Result<void> watch(const std::string& run,
                     const std::function<void(const ops::v1::WatchEvent&)>& on_event,
                     const KeepWaiting& keep_waiting);

  // `run` itself, or the id of the newest run if it is "last".
  Result<std::string> resolve_run(const std::string& run);

 private:
  struct Impl;
  explicit OperatorClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace spate::cli
