#include "controller/store_space.h"

#include "common/units.h"

namespace spate::controller {
namespace {

using std::chrono::hours;
using std::chrono::minutes;

// Longer is of no interest, and would not fit.
constexpr Duration kForEver = hours(24 * 3650);

std::string whole(Duration length) {
  if (length >= hours(48)) return std::to_string(length / hours(24)) + " days";
  if (length >= hours(2)) return std::to_string(length / hours(1)) + " h";
  if (length >= minutes(2)) return std::to_string(length / minutes(1)) + " min";
  return std::to_string(length / std::chrono::seconds(1)) + " s";
}

}  // namespace

std::string about(Duration length) { return "about " + whole(length); }

void SpaceForecast::add(const StoreSpace& space, Instant now) {
  samples_.emplace_back(now, space);
  while (samples_.size() > 2 && now - samples_[1].first >= kGrowthWindow) samples_.pop_front();
}

std::optional<SpaceForecast::Left> SpaceForecast::left() const {
  if (samples_.empty()) return std::nullopt;
  const auto& [begin, first] = samples_.front();
  const auto& [end, last] = samples_.back();
  const Duration by = end - begin;
  if (by < kGrowthWindowMin || last.used_bytes <= first.used_bytes) return std::nullopt;
  const double growth = static_cast<double>(last.used_bytes - first.used_bytes);
  const double left =
      static_cast<double>(last.room_bytes) / growth * static_cast<double>(by.count());
  if (left >= static_cast<double>(kForEver.count())) return std::nullopt;
  return Left{Duration(static_cast<std::int64_t>(left)), by};
}

std::string SpaceForecast::text() const {
  if (samples_.empty()) return "";
  const StoreSpace& last = samples_.back().second;
  std::string text = format_size(last.used_bytes) + ", " + format_size(last.room_bytes) + " free";
  if (const auto left = this->left()) {
    text += ": " + about(left->left) + " left at the growth of the last " + whole(left->by);
  }
  return text;
}

}  // namespace spate::controller
