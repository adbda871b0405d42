#pragma once

// Answers what is asked of stored runs, on a thread of its own, so that a long report never holds
// up the control loop. Called on the control loop; every `done` is called there, too, once. At most
// kMaxWaitingReads questions wait; more are refused.

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "controller/operator_api.h"

namespace spate::controller {

class RunReader {
 public:
  RunReader(boost::asio::io_context& loop, std::string store_path);
  ~RunReader();  // waits for the question under way

  void report(const std::string& run, const std::string& format,
              std::function<void(Result<std::string>)> done);
  void verify(const std::string& run, std::function<void(Result<VerifyAnswer>)> done);
  void end_of(const std::string& run, std::function<void(Result<WatchEnd>)> done);
  // `live` is what the coordinator knows of it; nothing: the run is not live.
  void status(const std::string& run, std::optional<RunStatus> live,
              std::function<void(Result<RunStatus>)> done);
  // `live` rows are newer than what the store has of the same runs.
  void list(const std::string& wanted, std::vector<RunRow> live,
            std::function<void(Result<std::vector<RunRow>>)> done);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spate::controller
