#pragma once

// How long the store's disk will last, from how the store has grown. Pure.

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "common/clock.h"

namespace spate::controller {

struct StoreSpace {
  std::uint64_t used_bytes = 0;  // of what is kept
  std::uint64_t room_bytes = 0;  // for more: free on the disk, and free again in the file
};

// The growth of so long counts: less says nothing, more would hide that it has changed.
inline constexpr Duration kGrowthWindowMin = std::chrono::minutes(5);
inline constexpr Duration kGrowthWindow = std::chrono::hours(1);

class SpaceForecast {
 public:
  void add(const StoreSpace& space, Instant now);

  struct Left {
    Duration left{};  // until there is no room
    Duration by{};    // the growth of so long
  };
  // Nothing: not known yet, or it does not grow.
  std::optional<Left> left() const;
  // "312 MiB, 2.1 GiB free: about 12 days left at the growth of the last 55 min"; empty: not known.
  std::string text() const;

 private:
  std::deque<std::pair<Instant, StoreSpace>> samples_;
};

// "about 12 days"
std::string about(Duration length);

}  // namespace spate::controller
