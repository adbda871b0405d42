#pragma once

// Time zones, for what happens at a wall time: the tz database's files (TZif, RFC 8536) and the
// instants they say. Pure, but for load_zone(), which opens one file.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace spate {

class TimeZone {
 public:
  static TimeZone utc() { return {}; }
  // The bytes of a TZif file, version 2 or later. Errors: anything else, or leap seconds in it.
  static Result<TimeZone> from_tzif(std::string_view bytes);
  // What rules() gave.
  static Result<TimeZone> from_rules(std::string_view text);

  // The zone from 2020 on as one short line, for a plan that must mean the same for weeks, whatever
  // happens to the database: "3600 1585443600:7200 … CET-1CEST,M3.5.0,M10.5.0/3".
  std::string rules() const;

  // Seconds east of UTC at an instant, in seconds since 1970.
  std::int32_t offset_at(std::int64_t unix_s) const;
  // The instant when the clocks show `local_s` (seconds since 1970 as if it were UTC). A time that
  // is shown twice: the first; one that is skipped: when it is skipped.
  std::int64_t instant_of(std::int64_t local_s) const;

  bool operator==(const TimeZone&) const = default;

 private:
  // A date in every year: "M3.5.0/2".
  struct YearlyDate {
    enum class Kind { month_week_day, julian_without_leap_day, day_of_year };
    Kind kind = Kind::day_of_year;
    int month = 0;
    int week = 0;
    int day = 0;
    std::int32_t time_s = 7200;  // local, may be negative or past 24 h
    bool operator==(const YearlyDate&) const = default;

    std::int64_t local_s(int year) const;
  };
  // What goes on after the last transition, as a POSIX TZ string says it.
  struct YearlyRule {
    std::string text;  // empty: the last offset goes on
    std::int32_t standard_s = 0;
    std::int32_t summer_s = 0;
    bool has_summer = false;
    YearlyDate begins;
    YearlyDate ends;
    bool operator==(const YearlyRule&) const = default;

    std::int32_t offset_at(std::int64_t unix_s) const;
  };
  struct Transition {
    std::int64_t at_s = 0;
    std::int32_t offset_s = 0;  // from then on
    bool operator==(const Transition&) const = default;
  };
  class RuleReader;

  std::int32_t first_s_ = 0;  // before the first transition
  std::vector<Transition> transitions_;
  YearlyRule rule_;
};

// A zone of the tz database, "Europe/Vienna", from /usr/share/zoneinfo. Errors: no such zone; the
// database is not installed.
Result<TimeZone> load_zone(const std::string& name);

}  // namespace spate
