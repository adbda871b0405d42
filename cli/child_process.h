#pragma once

// A program started by this one. It has its own process group, so that Ctrl-C in the terminal
// reaches only us, and is told to end when we die, however that happens. Its first lines of stdout
// can be waited for; its stderr goes to a file. Reaped by the destructor at the latest.

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/result.h"

namespace spate::cli {

class ChildProcess {
 public:
  // `program` is a path. A program that cannot be executed is an error of wait_for_line.
  static Result<ChildProcess> start(const std::string& program,
                                    const std::vector<std::string>& arguments,
                                    const std::string& log_file);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess();  // SIGKILL if it still runs

  // The first line on its stdout that contains `text`. An error if it ends or takes longer than
  // `limit`.
  Result<std::string> wait_for_line(const std::string& text, Duration limit);
  // "status 2" or "signal 9" if it has ended. Also empties its stdout, so that it can always go on
  // writing.
  std::optional<std::string> ended();
  void signal(int number);
  // False: it still runs after `limit`.
  bool wait_for_end(Duration limit);

  pid_t pid() const { return pid_; }
  const std::string& log_file() const { return log_file_; }

 private:
  ChildProcess(pid_t pid, int pidfd, int out, std::string log_file);
  void reap(int options);
  void read_available();

  pid_t pid_;
  int pidfd_;
  int out_;
  std::string log_file_;
  std::string output_;  // of its stdout, not yet asked for; bounded
  std::optional<std::string> ended_;
};

}  // namespace spate::cli
