#include "cli/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace spate::cli {
namespace {

constexpr std::size_t kMaxOutput = 64 * 1024;  // what is kept of a child's stdout

Error system_error(const std::string& what) {
  return {ErrorCode::internal, what + ": " + std::strerror(errno)};
}

// What execve wants.
struct Words {
  std::vector<char*> arguments;
  std::vector<char*> environment;
};

// A child gets all its settings as flags. SPATE_… in our own environment is meant for us, and
// would, say, make an agent on loopback want certificates.
Words words_for(const std::string& program, const std::vector<std::string>& arguments) {
  Words words;
  words.arguments.push_back(const_cast<char*>(program.c_str()));
  for (const auto& argument : arguments)
    words.arguments.push_back(const_cast<char*>(argument.c_str()));
  words.arguments.push_back(nullptr);
  for (char** variable = environ; *variable; ++variable)
    if (!std::string_view(*variable).starts_with("SPATE_")) words.environment.push_back(*variable);
  words.environment.push_back(nullptr);
  return words;
}

// Between fork and exec: only calls that are allowed after a fork in a program with threads.
[[noreturn]] void become(const char* program, const Words& words, int out, int log, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);  // it died before the line above
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(null, 0);
  dup2(out, 1);
  dup2(log, 2);
  execve(program, words.arguments.data(), words.environment.data());
  const char* reason = std::strerror(errno);
  for (const char* part : {"cannot start ", program, ": ", reason, "\n"})
    if (write(2, part, std::strlen(part)) < 0) break;
  _exit(127);
}

int remaining_ms(Instant deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - BootClock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000));
}

}  // namespace

Result<ChildProcess> ChildProcess::start(const std::string& program,
                                         const std::vector<std::string>& arguments,
                                         const std::string& log_file) {
  const int log = open(log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (log < 0) return system_error("cannot write " + log_file);
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) {
    close(log);
    return system_error("cannot make a pipe");
  }
  const Words words = words_for(program, arguments);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) become(program.c_str(), words, pipe_ends[1], log, parent);
  const int saved = errno;
  close(log);
  close(pipe_ends[1]);
  if (pid < 0) {
    close(pipe_ends[0]);
    errno = saved;
    return system_error("cannot start " + program);
  }
  fcntl(pipe_ends[0], F_SETFL, O_NONBLOCK);
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  return ChildProcess(pid, pidfd, pipe_ends[0], log_file);
}

ChildProcess::ChildProcess(pid_t pid, int pidfd, int out, std::string log_file)
    : pid_(pid), pidfd_(pidfd), out_(out), log_file_(std::move(log_file)) {}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pidfd_(std::exchange(other.pidfd_, -1)),
      out_(std::exchange(other.out_, -1)),
      log_file_(std::move(other.log_file_)),
      output_(std::move(other.output_)),
      ended_(std::move(other.ended_)) {}

ChildProcess::~ChildProcess() {
  if (pid_ > 0 && !ended()) {
    kill(pid_, SIGKILL);
    reap(0);
  }
  if (pidfd_ >= 0) close(pidfd_);
  if (out_ >= 0) close(out_);
}

void ChildProcess::reap(int options) {
  int status = 0;
  if (ended_ || pid_ <= 0 || waitpid(pid_, &status, options) != pid_) return;
  ended_ = WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                               : "status " + std::to_string(WEXITSTATUS(status));
}

void ChildProcess::read_available() {
  char buffer[4096];
  while (true) {
    const ssize_t n = read(out_, buffer, sizeof buffer);
    if (n <= 0) return;
    output_.append(buffer, static_cast<std::size_t>(n));
    if (output_.size() > kMaxOutput) output_.erase(0, output_.size() - kMaxOutput);
  }
}

std::optional<std::string> ChildProcess::ended() {
  if (out_ >= 0) read_available();
  reap(WNOHANG);
  return ended_;
}

Result<std::string> ChildProcess::wait_for_line(const std::string& text, Duration limit) {
  const Instant deadline = BootClock::now() + limit;
  while (true) {
    // Looked at before the output: what it wrote before it ended is all there then.
    const bool is_over = ended().has_value();
    while (true) {
      const std::size_t end = output_.find('\n');
      if (end == std::string::npos) break;
      std::string line = output_.substr(0, end);
      output_.erase(0, end + 1);
      if (line.find(text) != std::string::npos) return line;
    }
    if (is_over) return Error{ErrorCode::unavailable, "it ended with " + *ended_};
    const int left = remaining_ms(deadline);
    if (left == 0) return Error{ErrorCode::unavailable, "it did not say \"" + text + "\" in time"};
    pollfd wait[2] = {{out_, POLLIN, 0}, {pidfd_, POLLIN, 0}};
    poll(wait, pidfd_ >= 0 ? 2 : 1, std::min(left, 200));
  }
}

void ChildProcess::signal(int number) {
  if (!ended()) kill(pid_, number);
}

bool ChildProcess::wait_for_end(Duration limit) {
  const Instant deadline = BootClock::now() + limit;
  while (!ended()) {
    const int left = remaining_ms(deadline);
    if (left == 0) return false;
    pollfd wait[2] = {{pidfd_, POLLIN, 0}, {out_, POLLIN, 0}};
    poll(wait, 2, std::min(left, 100));
  }
  return true;
}

}  // namespace spate::cli
