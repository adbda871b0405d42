#include "tests/sim/fake_target.h"

#include <utility>

namespace spate::sim {

FakeTarget::FakeTarget(World& world) : world_(world) {}

std::uint64_t FakeTarget::listen(Listener listener) {
  listeners_[++last_listener_] = std::move(listener);
  return last_listener_;
}

void FakeTarget::received(Account& account, std::uint64_t count) {
  account.received += count;
  account.truth.received += count;
}

void FakeTarget::completed(Account& account, std::uint64_t count) {
  // Of an earlier boot: its counter went with it.
  account.completed += std::min(count, account.received - account.completed);
}

void FakeTarget::settle() {
  for (const auto& [id, listener] : listeners_) listener.settle();
}

void FakeTarget::restart(Duration down) {
  if (!is_up_) return;
  settle();
  is_up_ = false;
  for (const auto& [id, listener] : listeners_) listener.broke();
  for (auto& [client, account] : accounts_) account.received = account.completed = 0;
  ++boot_;
  world_.tell("target", "restarts down=" + seconds_text(down));
  world_.after(down, [this] {
    settle();
    is_up_ = true;
    world_.tell("target", "is back boot=" + std::to_string(boot_));
    for (const auto& [id, listener] : listeners_) listener.is_back();
  });
}

controller::TargetSample FakeTarget::sample(const std::string& run) {
  settle();
  controller::TargetSample s;
  s.boot_id = "boot-" + std::to_string(boot_);
  s.allocator = "glibc";
  s.address_space_bytes = s.rss_bytes = 1 << 20;
  for (const auto& [client, counts] : accounts_) {
    if (counts.received == 0) continue;
    s.received += counts.received;
    s.completed += counts.completed;
    if (client.run == run)
      s.agents.push_back({client.agent, client.incarnation, counts.received, counts.completed, 0});
  }
  return s;
}

}  // namespace spate::sim
