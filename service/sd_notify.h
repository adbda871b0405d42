#pragma once

// Tells the service manager how this process is, by the protocol of sd_notify(3): one datagram to
// the socket named in NOTIFY_SOCKET. Without one, everything here does nothing. Any one thread.

#include <optional>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "common/result.h"

namespace spate::service {

class Notifier {
 public:
  // Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, and takes them out of the environment:
  // they are not meant for children.
  static Notifier from_environment();

  Notifier() = default;
  ~Notifier();
  Notifier(Notifier&& other) noexcept;
  Notifier& operator=(Notifier&& other) noexcept;

  void ready(std::string_view status);
  void status(std::string_view text);
  void stopping(std::string_view status);
  void alive();

  // The manager ends a process that says nothing for so long; absent: it does not watch this one.
  std::optional<Duration> watchdog() const { return watchdog_; }

 private:
  void send(const std::string& text) const;
  int fd_ = -1;
  std::string address_;
  std::optional<Duration> watchdog_;
};

}  // namespace spate::service
