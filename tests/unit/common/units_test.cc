#include "common/units.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "common/clock.h"
#include "common/outcome.h"
#include "common/random.h"
#include "common/shares.h"
#include "common/text.h"

namespace spate {
namespace {

using namespace std::chrono_literals;

TEST(Duration, IsReadAsPeopleWriteIt) {
  const std::vector<std::pair<std::string, Duration>> good = {
      {"90s", 90s},         {"1h30m", 90min},
      {"7d", 168h},         {"250ms", 250ms},
      {"1.5s", 1500ms},     {"10us", 10us},
      {"5ns", 5ns},         {"0", 0ns},
      {"0s", 0ns},          {"1d2h3m4s5ms6us7ns", 24h + 2h + 3min + 4s + 5ms + 6us + 7ns},
      {"10\u00b5s", 10us},  {"1m0.5s", 60500ms},
      {"0.000000001s", 1ns}};
  for (const auto& [text, expected] : good) {
    const auto read = parse_duration(text);
    ASSERT_TRUE(read) << text << ": " << read.error().message;
    EXPECT_EQ(*read, expected) << text;
  }
}

TEST(Duration, RefusesWhatIsNotOne) {
  for (const std::string text :
       {"", "s", "30", "-5s", "+5s", "5 s", "5s ", "1m1h", "1s1s", "1.5m1s", "5x", "1e3s", ".5s",
        "5.s", "0.5ns", "300y", "107000d", "9999999999999999999s", "0x10s"}) {
    EXPECT_FALSE(parse_duration(text).has_value()) << text;
  }
  EXPECT_NE(parse_duration("30").error().message.find("\"30s\""), std::string::npos);
}

TEST(Duration, IsWrittenInItsShortestExactForm) {
  const std::vector<std::pair<Duration, std::string>> cases = {
      {0ns, "0s"},          {90s, "1m30s"},   {90min, "1h30m"},          {168h, "7d"},
      {250ms, "250ms"},     {1500ms, "1.5s"}, {1500us, "1.5ms"},         {999ns, "999ns"},
      {60500ms, "1m500ms"}, {-90s, "-1m30s"}, {1s + 1ns, "1.000000001s"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(format_duration(value), text);
}

TEST(Duration, ComesBackFromItsText) {
  Random random(1);
  for (int i = 0; i < 10'000; ++i) {
    const Duration d(random.between(0, std::int64_t{1} << random.between(1, 62)));
    ASSERT_EQ(parse_duration(format_duration(d)).value(), d) << format_duration(d);
  }
}

TEST(Latency, HasThreeDigits) {
  const std::vector<std::pair<std::int64_t, std::string>> cases = {{0, "0ns"},
                                                                   {999, "999ns"},
                                                                   {1'000, "1.00us"},
                                                                   {82'140, "82.1us"},
                                                                   {1'240'000, "1.24ms"},
                                                                   {999'499, "999us"},
                                                                   {999'600, "1.00ms"},
                                                                   {9'996, "10.0us"},
                                                                   {99'960, "100us"},
                                                                   {59'900'000'000, "59.9s"},
                                                                   {59'990'000'000, "1m00s"},
                                                                   {125'000'000'000, "2m05s"},
                                                                   {3'900'000'000'000, "1h05m"},
                                                                   {-1'240'000, "-1.24ms"}};
  for (const auto& [ns, text] : cases) EXPECT_EQ(format_latency(ns), text) << ns;
}

TEST(Size, IsReadInBinaryAndDecimalUnits) {
  EXPECT_EQ(parse_size("64KiB").value(), 65'536u);
  EXPECT_EQ(parse_size("1MiB").value(), 1'048'576u);
  EXPECT_EQ(parse_size("10GiB").value(), 10ull << 30);
  EXPECT_EQ(parse_size("512").value(), 512u);
  EXPECT_EQ(parse_size("512B").value(), 512u);
  EXPECT_EQ(parse_size("1.5KB").value(), 1'500u);
  for (const std::string text :
       {"", "KiB", "-1", "1 KiB", "1kib", "0.3B", "1.0001KB", "999999999TiB"}) {
    EXPECT_FALSE(parse_size(text).has_value()) << text;
  }
}

TEST(Size, IsShownInBinaryUnits) {
  EXPECT_EQ(format_size(0), "0 B");
  EXPECT_EQ(format_size(1023), "1023 B");
  EXPECT_EQ(format_size(65'536), "64 KiB");
  EXPECT_EQ(format_size(210ull << 20), "210 MiB");
  EXPECT_EQ(format_size(1'572'864), "1.5 MiB");
  EXPECT_EQ(format_size(~0ull), "16 EiB");
}

TEST(Rate, IsWrittenPerSecond) {
  EXPECT_EQ(format_rate(500), "500/s");
  EXPECT_EQ(format_rate(12'345.6), "12,346/s");
  EXPECT_EQ(format_rate(0.5), "0.5/s");
  EXPECT_EQ(format_rate(12.34), "12.3/s");
}

TEST(Rate, IsReadPerSecondMinuteAndHour) {
  EXPECT_DOUBLE_EQ(parse_rate("500/s").value(), 500);
  EXPECT_DOUBLE_EQ(parse_rate("30/m").value(), 0.5);
  EXPECT_DOUBLE_EQ(parse_rate("1.5/s").value(), 1.5);
  EXPECT_DOUBLE_EQ(parse_rate("36/h").value(), 0.01);
  for (const std::string text : {"", "500", "/s", "-1/s", "5/d", "5 /s"})
    EXPECT_FALSE(parse_rate(text).has_value());
}

TEST(Count, HasThousandsSeparators) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1'234'567), "1,234,567");
  EXPECT_EQ(format_count(100'000), "100,000");
}

TEST(Shares, AddUpExactly) {
  EXPECT_EQ(divide_equally(3900, 13), std::vector<std::uint64_t>(13, 300));
  EXPECT_EQ(divide_equally(10, 4), (std::vector<std::uint64_t>{3, 3, 2, 2}));
  EXPECT_EQ(divide(10, {1, 2, 0, 1}), (std::vector<std::uint64_t>{3, 5, 0, 2}));
  EXPECT_EQ(divide(5, {0, 0}), (std::vector<std::uint64_t>{3, 2}));
  EXPECT_TRUE(divide(5, {}).empty());
  Random random(2);
  for (int round = 0; round < 2'000; ++round) {
    std::vector<std::uint64_t> weights(static_cast<std::size_t>(random.between(1, 20)));
    for (auto& w : weights) w = random() >> random.between(0, 63);
    const std::uint64_t total = random() >> random.between(0, 63);
    const auto parts = divide(total, weights);
    ASSERT_EQ(std::accumulate(parts.begin(), parts.end(), std::uint64_t{0}), total)
        << "round " << round;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const bool all_zero =
          std::all_of(weights.begin(), weights.end(), [](auto w) { return w == 0; });
      ASSERT_TRUE(weights[i] != 0 || all_zero || parts[i] == 0) << "round " << round;
    }
  }
}

TEST(RandomGenerator, RepeatsFromItsSeedAndStaysInItsRange) {
  Random a(5);
  Random b(5);
  Random c(6);
  bool differs = false;
  for (int i = 0; i < 1'000; ++i) {
    const std::int64_t v = a.between(-3, 3);
    EXPECT_EQ(v, b.between(-3, 3));
    EXPECT_GE(v, -3);
    EXPECT_LE(v, 3);
    differs |= v != c.between(-3, 3);
  }
  EXPECT_TRUE(differs);
  EXPECT_EQ(a.between(9, 9), 9);
  a.between(std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max());
}

TEST(RandomGenerator, IsUniform) {
  Random random(11);
  std::vector<int> hits(10);
  for (int i = 0; i < 100'000; ++i) ++hits[static_cast<std::size_t>(random.between(0, 9))];
  double chi_squared = 0;
  for (const int h : hits) chi_squared += (h - 10'000.0) * (h - 10'000.0) / 10'000;
  EXPECT_LT(chi_squared, 27.9);  // 0.1 % of fair generators exceed this with 9 degrees of freedom
}

TEST(WallClock, IsWrittenAsRfc3339) {
  EXPECT_EQ(rfc3339(0), "1970-01-01T00:00:00Z");
  EXPECT_EQ(rfc3339(1'135'387'843'999), "2005-12-24T01:30:43Z");
  EXPECT_EQ(rfc3339(-1), "1969-12-31T23:59:59Z");
  EXPECT_GT(wall_clock_ms(), 1'600'000'000'000);
}

TEST(OutcomeNames, AreDistinct) {
  std::vector<std::string_view> names;
  for (const Outcome o : kOutcomes) names.push_back(name(o));
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::unique(names.begin(), names.end()), names.end());
}

TEST(Text, IsMadePrintableAndCutBetweenCharacters) {
  EXPECT_EQ(printable_utf8("plain", 160), "plain");
  EXPECT_EQ(printable_utf8("a\nb\x7f", 160), "a?b?");
  EXPECT_EQ(printable_utf8("\xff\xc0\x80", 160), "???");
  EXPECT_EQ(printable_utf8("\u00e9\u00e9", 3), "\u00e9");
  EXPECT_EQ(printable_utf8("\xed\xa0\x80", 160), "???");  // a surrogate
  EXPECT_EQ(printable_utf8("\U0001f600", 160), "\U0001f600");
}

}  // namespace
}  // namespace spate
