#include "controller/store_space.h"

#include <gmock/gmock.h>

namespace spate::controller {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using testing::HasSubstr;

constexpr std::uint64_t kMiB = 1 << 20;
const Instant kBegin = from_ns(5'000'000'000);

TEST(SpaceForecast, KnowsNothingBeforeTheStoreHasGrownForAWhile) {
  SpaceForecast forecast;
  EXPECT_EQ(forecast.text(), "");
  forecast.add({kMiB, 100 * kMiB}, kBegin);
  EXPECT_EQ(forecast.text(), "1 MiB, 100 MiB free");
  forecast.add({2 * kMiB, 99 * kMiB}, kBegin + kGrowthWindowMin - minutes(1));
  EXPECT_FALSE(forecast.left().has_value());
  forecast.add({2 * kMiB, 99 * kMiB}, kBegin + kGrowthWindowMin);
  ASSERT_TRUE(forecast.left().has_value());
  EXPECT_EQ(forecast.left()->left, 99 * kGrowthWindowMin);
  EXPECT_THAT(forecast.text(), HasSubstr("about 8 h left at the growth of the last 5 min"));
}

TEST(SpaceForecast, GoesByTheGrowthOfTheLastHour) {
  SpaceForecast forecast;
  for (int m = 0; m <= 60; ++m) forecast.add({m * kMiB, 600 * kMiB}, kBegin + minutes(m));
  EXPECT_EQ(forecast.left()->left, hours(10));
  // Then ten times as slow.
  for (int m = 61; m <= 130; ++m)
    forecast.add({60 * kMiB + (m - 60) * kMiB / 10, 600 * kMiB}, kBegin + minutes(m));
  EXPECT_NEAR(static_cast<double>(forecast.left()->left.count()),
              static_cast<double>(Duration(hours(100)).count()), 1e12);
  EXPECT_EQ(forecast.left()->by, hours(1));
}

TEST(SpaceForecast, OneThatDoesNotGrowLastsForEver) {
  SpaceForecast forecast;
  forecast.add({9 * kMiB, kMiB}, kBegin);
  forecast.add({8 * kMiB, kMiB}, kBegin + hours(1));
  EXPECT_FALSE(forecast.left().has_value());
  forecast.add({8 * kMiB, 0}, kBegin + hours(2));
  EXPECT_EQ(forecast.text(), "8 MiB, 0 B free");
}

TEST(SpaceForecast, SpeaksInWholeUnits) {
  EXPECT_EQ(about(std::chrono::milliseconds(119'999)), "about 119 s");
  EXPECT_EQ(about(minutes(119)), "about 119 min");
  EXPECT_EQ(about(hours(47)), "about 47 h");
  EXPECT_EQ(about(hours(24 * 12 + 5)), "about 12 days");
}

}  // namespace
}  // namespace spate::controller
