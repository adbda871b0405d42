#include "service/sd_notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace spate::service {
namespace {

std::string take(const char* name) {
  const char* value = std::getenv(name);
  std::string text = value == nullptr ? "" : value;
  unsetenv(name);
  return text;
}

std::optional<std::int64_t> number(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value <= 0) return {};
  return value;
}

// A line break would begin another assignment.
std::string one_line(std::string_view text) {
  std::string line(text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

}  // namespace

Notifier Notifier::from_environment() {
  Notifier notifier;
  std::string socket_name = take("NOTIFY_SOCKET");
  const auto watchdog_us = number(take("WATCHDOG_USEC"));
  const auto watchdog_pid = take("WATCHDOG_PID");
  if (socket_name.empty() || (socket_name[0] != '/' && socket_name[0] != '@')) return notifier;
  if (socket_name.size() >= sizeof(sockaddr_un::sun_path)) return notifier;
  notifier.fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (notifier.fd_ < 0) return notifier;
  if (socket_name[0] == '@') socket_name[0] = '\0';  // the abstract namespace
  notifier.address_ = std::move(socket_name);
  const bool is_for_us = watchdog_pid.empty() || watchdog_pid == std::to_string(getpid());
  if (watchdog_us && is_for_us) notifier.watchdog_ = std::chrono::microseconds(*watchdog_us);
  return notifier;
}

Notifier::~Notifier() {
  if (fd_ >= 0) close(fd_);
}

Notifier::Notifier(Notifier&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      address_(std::move(other.address_)),
      watchdog_(std::exchange(other.watchdog_, {})) {}

Notifier& Notifier::operator=(Notifier&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(address_, other.address_);
  std::swap(watchdog_, other.watchdog_);
  return *this;
}

void Notifier::ready(std::string_view text) { send("READY=1\nSTATUS=" + one_line(text)); }
void Notifier::status(std::string_view text) { send("STATUS=" + one_line(text)); }
void Notifier::stopping(std::string_view text) { send("STOPPING=1\nSTATUS=" + one_line(text)); }
void Notifier::alive() { send("WATCHDOG=1"); }

void Notifier::send(const std::string& text) const {
  if (fd_ < 0) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, address_.data(), address_.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  // A manager that does not read must not hold this process up; it is told again.
  (void)sendto(fd_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
               reinterpret_cast<const sockaddr*>(&address), length);
}

}  // namespace spate::service
