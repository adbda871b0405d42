#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/random.h"
#include "common/time_zone.h"

namespace spate {
namespace {

const std::filesystem::path kDatabase = "/usr/share/zoneinfo";

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<std::string> all_zones() {
  std::vector<std::string> zones;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kDatabase)) {
    const std::string name = std::filesystem::relative(entry.path(), kDatabase).string();
    const bool other = name.rfind("posix", 0) == 0 || name.rfind("right", 0) == 0;
    if (!other && entry.is_regular_file() && bytes_of(entry.path()).substr(0, 4) == "TZif")
      zones.push_back(name);
  }
  return zones;
}

// The C library's own reading of the same file.
class SystemZone {
 public:
  explicit SystemZone(const std::string& name) { set((":" + name).c_str()); }
  ~SystemZone() { set("UTC0"); }

  std::int64_t offset_at(std::int64_t unix_s) const {
    const std::time_t t = unix_s;
    std::tm out{};
    localtime_r(&t, &out);
    return out.tm_gmtoff;
  }

 private:
  static void set(const char* value) {
    setenv("TZ", value, 1);
    tzset();
  }
};

std::int64_t utc(int year, int month, int day, int hour = 0, int minute = 0) {
  std::tm t{};
  t.tm_year = year - 1900;
  t.tm_mon = month - 1;
  t.tm_mday = day;
  t.tm_hour = hour;
  t.tm_min = minute;
  return timegm(&t);
}

TimeZone zone(const std::string& name) {
  const auto found = load_zone(name);
  EXPECT_TRUE(found.has_value()) << name << ": " << found.error().message;
  return found ? *found : TimeZone::utc();
}

TEST(TimeZones, AgreeWithTheSystemsEverywhere) {
  const auto names = all_zones();
  ASSERT_GT(names.size(), 300u) << "is the package tzdata installed?";
  Random random(6);
  for (const std::string& name : names) {
    const TimeZone own = zone(name);
    const TimeZone again = TimeZone::from_rules(own.rules()).value();
    EXPECT_LT(own.rules().size(), 4'096u) << name << ": must fit a text of a plan";
    const SystemZone system(name);
    for (int i = 0; i < 400; ++i) {
      const std::int64_t at = random.between(utc(1900, 1, 1), utc(2120, 1, 1));
      ASSERT_EQ(own.offset_at(at), system.offset_at(at)) << name << " at " << at;
      const std::int64_t later = random.between(utc(2020, 1, 2), utc(2120, 1, 1));
      ASSERT_EQ(again.offset_at(later), system.offset_at(later)) << name << " at " << later;
    }
  }
}

// The hours around every change of the clocks in a few years, where mistakes hide.
TEST(TimeZones, AgreeWithTheSystemsWhenTheClocksChange) {
  for (const char* name : {"Europe/Vienna", "America/New_York", "Australia/Lord_Howe",
                           "America/Santiago", "Africa/Casablanca", "Europe/Dublin",
                           "Asia/Kathmandu", "Pacific/Apia", "America/Scoresbysund"}) {
    const TimeZone own = zone(name);
    const SystemZone system(name);
    for (std::int64_t at = utc(2026, 1, 1); at < utc(2029, 1, 1); at += 900)
      ASSERT_EQ(own.offset_at(at), system.offset_at(at)) << name << " at " << at;
    for (std::int64_t at = utc(2050, 1, 1); at < utc(2052, 1, 1); at += 900)
      ASSERT_EQ(own.offset_at(at), system.offset_at(at)) << name << " at " << at;
  }
}

TEST(TimeZones, FindTheInstantOfALocalTime) {
  Random random(7);
  for (const std::string& name : all_zones()) {
    const TimeZone own = zone(name);
    for (int i = 0; i < 100; ++i) {
      const std::int64_t at = random.between(utc(2020, 1, 2), utc(2060, 1, 1));
      const std::int64_t local = at + own.offset_at(at);
      const std::int64_t found = own.instant_of(local);
      ASSERT_EQ(found + own.offset_at(found), local) << name << " at " << at;
      ASSERT_LE(found, at) << name << ": of two, the first";
    }
  }
}

TEST(TimeZones, TakeTheFirstOfTwoAndTheEndOfAGap) {
  const TimeZone vienna = zone("Europe/Vienna");
  // 2026-10-25: 03:00 CEST becomes 02:00 CET; 02:30 is twice.
  EXPECT_EQ(vienna.instant_of(utc(2026, 10, 25, 2, 30)), utc(2026, 10, 25, 0, 30));
  // 2026-03-29: 02:00 CET becomes 03:00 CEST at 01:00 UTC; 02:30 is not there.
  EXPECT_EQ(vienna.instant_of(utc(2026, 3, 29, 2, 30)), utc(2026, 3, 29, 1, 0));
  EXPECT_EQ(vienna.instant_of(utc(2026, 7, 1)), utc(2026, 6, 30, 22));
  // Samoa had no 2011-12-30 at all.
  EXPECT_EQ(zone("Pacific/Apia").instant_of(utc(2011, 12, 30, 12)), utc(2011, 12, 30, 10));
  EXPECT_EQ(TimeZone::utc().instant_of(utc(2026, 3, 29, 2, 30)), utc(2026, 3, 29, 2, 30));
}

TEST(TimeZones, AreRefusedByNameIfThereIsNone) {
  for (const char* name : {"", "Europe/Vienne", "Europe", "/etc/passwd", "../../../etc/passwd",
                           "Europe/../Europe/Vienna", ".", "tzdata.zi", "zone.tab", "CET\n"}) {
    const auto found = load_zone(name);
    ASSERT_FALSE(found.has_value()) << name;
    EXPECT_NE(found.error().message.find("zone"), std::string::npos) << found.error().message;
  }
  EXPECT_EQ(load_zone("UTC").value(), TimeZone::utc());
}

TEST(TimeZones, SurviveMutatedBytes) {
  Random random(8);
  for (const char* name : {"Europe/Vienna", "Africa/Casablanca", "UTC"}) {
    const std::string good = bytes_of(kDatabase / name);
    for (int round = 0; round < 3'000; ++round) {
      std::string bytes = good;
      for (std::int64_t i = random.between(1, 4); i > 0; --i)
        bytes[static_cast<std::size_t>(
            random.between(0, static_cast<std::int64_t>(bytes.size()) - 1))] =
            static_cast<char>(random.between(0, 255));
      if (random.unit() < 0.3)
        bytes.resize(
            static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(bytes.size()))));
      if (const auto read = TimeZone::from_tzif(bytes)) {
        read->offset_at(utc(2026, 6, 1));
        EXPECT_TRUE(TimeZone::from_rules(read->rules()).has_value()) << read->rules();
      }
    }
  }
}

TEST(TimeZones, RefuseRulesThatAreNone) {
  for (const char* rules :
       {"", "3600", "x -", "3600 5 -", "3600 9:3600 8:0 -", "3600 9:999999 -", "0 CET",
        "0 CET-1CEST", "0 CET-1CEST,M3.5.0", "0 CET-1CEST,M13.5.0,M10.5.0", "0 C-1", "0 <+01-1",
        "0 CET-1CEST,M3.5.0,M10.5.0/3 x", "0 CET-1CEST,M3.5.0,M10.5.0/200"})
    EXPECT_FALSE(TimeZone::from_rules(rules).has_value()) << rules;
  EXPECT_EQ(TimeZone::from_rules("3600 -").value().offset_at(0), 3600);
  EXPECT_EQ(TimeZone::from_rules("0 <+0330>-3:30").value().offset_at(0), 12'600);
}

}  // namespace
}  // namespace spate
