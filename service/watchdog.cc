#include "service/watchdog.h"

#include <boost/asio/post.hpp>

namespace spate::service {

Watchdog::Watchdog(boost::asio::io_context& loop, Notifier& notifier, Probe probe)
    : loop_(loop), notifier_(notifier), probe_(std::move(probe)), timer_(loop) {}

void Watchdog::start() {
  if (!notifier_.watchdog()) return;
  period_ = *notifier_.watchdog() / 2;
  tick();
}

void Watchdog::tick() {
  if (std::exchange(*has_come_back_, false)) {
    notifier_.alive();
    probe_(
        [&loop = loop_, has = has_come_back_] { boost::asio::post(loop, [has] { *has = true; }); });
  }
  timer_.expires_after(period_);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) tick();
  });
}

}  // namespace spate::service
