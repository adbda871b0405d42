#pragma once

// Tells the service manager that this process still works, at half of the time the manager allows,
// and only if it does: before each sign of life, `probe` has gone through the loops and disks whose
// standstill is worth a restart, and has come back. On the loop it is given.

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>

#include "common/clock.h"
#include "service/sd_notify.h"

namespace spate::service {

class Watchdog {
 public:
  // `probe` is called on `loop` and must see to it that its argument is called, on any thread and
  // at any time, once all is seen to move. `loop` and `notifier` outlive this.
  using Probe = std::function<void(std::function<void()> came_back)>;
  Watchdog(boost::asio::io_context& loop, Notifier& notifier, Probe probe);

  // Nothing if the manager does not watch.
  void start();

 private:
  void tick();

  boost::asio::io_context& loop_;
  Notifier& notifier_;
  const Probe probe_;
  Duration period_{};
  boost::asio::steady_timer timer_;
  // Shared with a probe that is under way, which may come back after this has gone.
  std::shared_ptr<bool> has_come_back_ = std::make_shared<bool>(true);
};

}  // namespace spate::service
