#include "common/time_zone.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "common/text.h"

namespace spate {
namespace {

constexpr std::int64_t kDay = 86'400;
constexpr std::int64_t kRulesFrom = 1'577'836'800;  // 2020-01-01
constexpr std::size_t kMaxFileBytes = 256 * 1024;
constexpr std::size_t kMaxTransitions = 10'000;
constexpr std::int32_t kMaxOffset = 26 * 3600;
constexpr const char* kDatabase = "/usr/share/zoneinfo";

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

int year_of(std::int64_t local_s) {
  const std::chrono::sys_days day{std::chrono::days(floor_div(local_s, kDay))};
  return static_cast<int>(std::chrono::year_month_day(day).year());
}

std::int64_t seconds_of(std::chrono::sys_days day) { return day.time_since_epoch().count() * kDay; }

// ---- TZif

std::int64_t big_endian(std::string_view bytes) {
  std::uint64_t value = (static_cast<unsigned char>(bytes[0]) & 0x80) != 0 ? ~std::uint64_t{0} : 0;
  for (const char c : bytes) value = value << 8 | static_cast<unsigned char>(c);
  return static_cast<std::int64_t>(value);
}

struct Header {
  std::size_t isut = 0, isstd = 0, leap = 0, times = 0, types = 0, chars = 0;

  std::size_t data_bytes(std::size_t time_bytes) const {
    return times * time_bytes + times + types * 6 + chars + leap * (time_bytes + 4) + isstd + isut;
  }
};
constexpr std::size_t kHeaderBytes = 44;

std::optional<Header> read_header(std::string_view bytes) {
  if (bytes.size() < kHeaderBytes || bytes.substr(0, 4) != "TZif") return std::nullopt;
  Header h;
  std::size_t at = 20;
  for (std::size_t* count : {&h.isut, &h.isstd, &h.leap, &h.times, &h.types, &h.chars}) {
    const std::int64_t value = big_endian(bytes.substr(at, 4));
    if (value < 0 || static_cast<std::size_t>(value) > kMaxFileBytes) return std::nullopt;
    *count = static_cast<std::size_t>(value);
    at += 4;
  }
  return h;
}

bool in_range(std::int64_t offset) { return offset >= -kMaxOffset && offset <= kMaxOffset; }

template <class T>
bool parse_number(std::string_view text, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

// Reads "CET-1CEST,M3.5.0,M10.5.0/3" from the left.
class TimeZone::RuleReader {
 public:
  explicit RuleReader(std::string_view text) : text_(text), rest_(text) {}

  std::optional<YearlyRule> read() {
    YearlyRule rule;
    rule.text = std::string(text_);
    if (text_.empty()) return rule;
    std::int32_t west = 0;
    if (!name() || !time(west) || !in_range(west)) return std::nullopt;
    rule.standard_s = -west;
    if (rest_.empty()) return rule;
    rule.has_summer = true;
    rule.summer_s = rule.standard_s + 3600;
    if (!name()) return std::nullopt;
    if (!rest_.empty() && rest_[0] != ',') {
      if (!time(west) || !in_range(west)) return std::nullopt;
      rule.summer_s = -west;
    }
    const bool good = take(',') && date(rule.begins) && take(',') && date(rule.ends);
    if (!good || !rest_.empty()) return std::nullopt;
    return rule;
  }

 private:
  bool take(char c) {
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  // "CEST" or "<+0330>"
  bool name() {
    if (take('<')) {
      const std::size_t end = rest_.find_first_not_of(
          "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-");
      if (end == rest_.npos || end < 3 || rest_[end] != '>') return false;
      rest_.remove_prefix(end + 1);
      return true;
    }
    std::size_t n = 0;
    while (n < rest_.size() && ((rest_[n] | 0x20) >= 'a' && (rest_[n] | 0x20) <= 'z')) ++n;
    rest_.remove_prefix(n);
    return n >= 3;
  }

  bool number(int most, int& out) {
    std::size_t n = 0;
    while (n < rest_.size() && rest_[n] >= '0' && rest_[n] <= '9') ++n;
    if (n == 0 || n > 3 || !parse_number(rest_.substr(0, n), out)) return false;
    rest_.remove_prefix(n);
    return out <= most;
  }

  // [+-]hh[:mm[:ss]]
  bool time(std::int32_t& out) {
    const bool negative = take('-');
    if (!negative) take('+');
    int hours = 0;
    int minutes = 0;
    int seconds = 0;
    if (!number(167, hours)) return false;
    if (take(':') && !number(59, minutes)) return false;
    if (take(':') && !number(59, seconds)) return false;
    out = (hours * 60 + minutes) * 60 + seconds;
    if (negative) out = -out;
    return true;
  }

  bool date(YearlyDate& out) {
    bool good = false;
    if (take('M')) {
      out.kind = YearlyDate::Kind::month_week_day;
      good = number(12, out.month) && out.month > 0 && take('.') && number(5, out.week) &&
             out.week > 0 && take('.') && number(6, out.day);
    } else if (take('J')) {
      out.kind = YearlyDate::Kind::julian_without_leap_day;
      good = number(365, out.day) && out.day > 0;
    } else {
      good = number(365, out.day);
    }
    return good && (!take('/') || time(out.time_s));
  }

  std::string_view text_;
  std::string_view rest_;
};

std::int64_t TimeZone::YearlyDate::local_s(int year) const {
  using namespace std::chrono;
  const std::chrono::year y(year);
  sys_days date = y / January / 1;
  switch (kind) {
    case Kind::day_of_year:
      date += days(day);
      break;
    case Kind::julian_without_leap_day:  // February 29 is never counted
      date += days(day - 1 + (y.is_leap() && day >= 60 ? 1 : 0));
      break;
    case Kind::month_week_day: {
      const auto m = y / std::chrono::month(static_cast<unsigned>(std::max(month, 1)));
      const std::chrono::weekday w(static_cast<unsigned>(day));
      date = week == 5 ? sys_days(m / w[last]) : sys_days(m / w[static_cast<unsigned>(week)]);
      break;
    }
  }
  return seconds_of(date) + time_s;
}

std::int32_t TimeZone::YearlyRule::offset_at(std::int64_t unix_s) const {
  if (!has_summer) return standard_s;
  const int year = year_of(unix_s + standard_s);
  const std::int64_t begin = begins.local_s(year) - standard_s;
  const std::int64_t end = ends.local_s(year) - summer_s;
  const bool summer =
      begin < end ? unix_s >= begin && unix_s < end : unix_s >= begin || unix_s < end;
  return summer ? summer_s : standard_s;
}

Result<TimeZone> TimeZone::from_tzif(std::string_view bytes) {
  const Error bad = invalid("this is not a time zone file (TZif version 2 or later)");
  const auto v1 = read_header(bytes);
  if (!v1 || bytes.size() > kMaxFileBytes || bytes[4] < '2') return bad;
  const std::size_t skip = kHeaderBytes + v1->data_bytes(4);
  if (skip > bytes.size()) return bad;
  bytes.remove_prefix(skip);
  const auto header = read_header(bytes);
  if (!header || header->types == 0 || header->times > kMaxTransitions) return bad;
  const std::size_t data = header->data_bytes(8);
  if (kHeaderBytes + data > bytes.size()) return bad;
  if (header->leap != 0) return invalid("this zone counts leap seconds; use one that does not");
  const std::string_view times = bytes.substr(kHeaderBytes);
  const std::string_view indices = times.substr(header->times * 8);
  const std::string_view types = indices.substr(header->times);

  const auto offset_of = [&](std::size_t type) { return big_endian(types.substr(type * 6, 4)); };
  for (std::size_t i = 0; i < header->types; ++i) {
    if (!in_range(offset_of(i))) return bad;
  }
  TimeZone zone;
  zone.first_s_ = static_cast<std::int32_t>(offset_of(0));
  for (std::size_t i = 0; i < header->times; ++i) {
    const auto type = static_cast<unsigned char>(indices[i]);
    const std::int64_t at = big_endian(times.substr(i * 8, 8));
    const bool ascends = zone.transitions_.empty() || zone.transitions_.back().at_s < at;
    if (type >= header->types || !ascends) return bad;
    zone.transitions_.push_back({at, static_cast<std::int32_t>(offset_of(type))});
  }
  std::string_view footer = bytes.substr(kHeaderBytes + data);
  if (footer.size() < 2 || footer[0] != '\n') return bad;
  footer.remove_prefix(1);
  const std::size_t end = footer.find('\n');
  if (end == footer.npos) return bad;
  const auto rule = RuleReader(footer.substr(0, end)).read();
  if (!rule) return bad;
  zone.rule_ = *rule;
  return zone;
}

std::string TimeZone::rules() const {
  std::string out = std::to_string(offset_at(kRulesFrom));
  for (const Transition& t : transitions_) {
    if (t.at_s > kRulesFrom) out += " " + std::to_string(t.at_s) + ":" + std::to_string(t.offset_s);
  }
  return out + " " + (rule_.text.empty() ? "-" : rule_.text);
}

Result<TimeZone> TimeZone::from_rules(std::string_view text) {
  const Error bad = invalid("these are not the rules of a time zone");
  std::vector<std::string_view> words;
  while (true) {
    const std::size_t space = text.find(' ');
    words.push_back(text.substr(0, space));
    if (space == text.npos) break;
    text.remove_prefix(space + 1);
  }
  TimeZone zone;
  if (words.size() < 2 || words.size() > kMaxTransitions) return bad;
  if (!parse_number(words[0], zone.first_s_) || !in_range(zone.first_s_)) return bad;
  for (std::size_t i = 1; i + 1 < words.size(); ++i) {
    const std::size_t colon = words[i].find(':');
    Transition t;
    if (colon == words[i].npos || !parse_number(words[i].substr(0, colon), t.at_s) ||
        !parse_number(words[i].substr(colon + 1), t.offset_s) || !in_range(t.offset_s) ||
        (!zone.transitions_.empty() && zone.transitions_.back().at_s >= t.at_s))
      return bad;
    zone.transitions_.push_back(t);
  }
  const auto rule = RuleReader(words.back() == "-" ? "" : words.back()).read();
  if (!rule) return bad;
  zone.rule_ = *rule;
  return zone;
}

std::int32_t TimeZone::offset_at(std::int64_t unix_s) const {
  const auto after =
      std::upper_bound(transitions_.begin(), transitions_.end(), unix_s,
                       [](std::int64_t t, const Transition& x) { return t < x.at_s; });
  if (after == transitions_.end() && !rule_.text.empty()) return rule_.offset_at(unix_s);
  return after == transitions_.begin() ? first_s_ : std::prev(after)->offset_s;
}

std::int64_t TimeZone::instant_of(std::int64_t local_s) const {
  const std::int32_t before = offset_at(local_s - kDay);
  const std::int32_t after = offset_at(local_s + kDay);
  const std::int64_t with_before = local_s - before;
  const std::int64_t with_after = local_s - after;
  if (offset_at(with_before) == before) return with_before;
  if (offset_at(with_after) == after) return with_after;
  // Skipped: the clocks go from `before` to `after` in between.
  std::int64_t low = std::min(with_before, with_after);
  std::int64_t high = std::max(with_before, with_after);
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (offset_at(middle) == before ? low : high) = middle;
  }
  return high;
}

Result<TimeZone> load_zone(const std::string& name) {
  if (name == "UTC") return TimeZone::utc();
  const std::string shown = "\"" + printable_utf8(name, 80) + "\"";
  const Error unknown = invalid("there is no time zone " + shown +
                                "; write for example \"Europe/Vienna\" or \"UTC\"");
  const bool good = !name.empty() && name.size() <= 64 && name[0] != '/' && name[0] != '.' &&
                    name.find("..") == name.npos &&
                    std::all_of(name.begin(), name.end(),
                                [](char c) { return c > ' ' && c < 0x7f && c != '\\'; });
  if (!good) return unknown;
  std::error_code error;
  if (!std::filesystem::is_directory(kDatabase, error))
    return invalid("the time zone " + shown +
                   " is not known here: install the package tzdata, or use \"UTC\"");
  const std::filesystem::path path = std::filesystem::path(kDatabase) / name;
  if (!std::filesystem::is_regular_file(path, error) ||
      std::filesystem::file_size(path, error) > kMaxFileBytes)
    return unknown;
  std::ifstream in(path, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(in), {});
  if (!in) return invalid("the time zone " + shown + " cannot be read from " + path.string());
  auto zone = TimeZone::from_tzif(bytes);
  if (!zone) return invalid("time zone " + shown + ": " + zone.error().message);
  return zone;
}

}  // namespace spate
