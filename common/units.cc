#include "common/units.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

namespace spate {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr std::uint64_t kMaxDurationNs =
    static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string quoted(std::string_view text) { return "\"" + std::string(text.substr(0, 80)) + "\""; }

struct Unit {
  std::string_view name;
  std::uint64_t size;
};

// Descending, so that "1h30m" has one order. "µs" may be written with either of its two code
// points.
constexpr std::array<Unit, 9> kDurationUnits = {{{"d", 86'400'000'000'000},
                                                 {"h", 3'600'000'000'000},
                                                 {"m", 60'000'000'000},
                                                 {"s", 1'000'000'000},
                                                 {"ms", 1'000'000},
                                                 {"us", 1'000},
                                                 {"\u00b5s", 1'000},
                                                 {"\u03bcs", 1'000},
                                                 {"ns", 1}}};

constexpr std::array<Unit, 10> kSizeUnits = {{{"", 1},
                                              {"B", 1},
                                              {"KiB", std::uint64_t{1} << 10},
                                              {"MiB", std::uint64_t{1} << 20},
                                              {"GiB", std::uint64_t{1} << 30},
                                              {"TiB", std::uint64_t{1} << 40},
                                              {"KB", 1'000},
                                              {"MB", 1'000'000},
                                              {"GB", 1'000'000'000},
                                              {"TB", 1'000'000'000'000}}};

template <std::size_t N>
const Unit* find_unit(const std::array<Unit, N>& units, std::string_view name) {
  for (const Unit& unit : units) {
    if (unit.name == name) return &unit;
  }
  return nullptr;
}

// A decimal number as written: "12", "1.5". Kept as digits, so that multiplying by a unit is exact.
struct Decimal {
  std::uint64_t whole = 0;
  std::uint64_t fraction = 0;
  std::uint64_t scale = 1;  // fraction / scale
};

// Takes a number off the front of `text`. At most 18 digits before and 9 after the point.
bool take_decimal(std::string_view& text, Decimal& out) {
  std::size_t i = 0;
  for (; i < text.size() && is_digit(text[i]); ++i) {
    if (i == 18) return false;
    out.whole = out.whole * 10 + static_cast<std::uint64_t>(text[i] - '0');
  }
  if (i == 0) return false;
  if (i < text.size() && text[i] == '.') {
    const std::size_t point = i++;
    for (; i < text.size() && is_digit(text[i]); ++i) {
      if (i - point > 9) return false;
      out.fraction = out.fraction * 10 + static_cast<std::uint64_t>(text[i] - '0');
      out.scale *= 10;
    }
    if (i == point + 1) return false;
  }
  text.remove_prefix(i);
  return true;
}

// False if it is no whole number of the smallest unit.
bool multiply(const Decimal& number, std::uint64_t unit, Wide& out) {
  const Wide parts = static_cast<Wide>(number.fraction) * unit;
  out = static_cast<Wide>(number.whole) * unit + parts / number.scale;
  return parts % number.scale == 0;
}

// Cuts "1.500000" to "1.5" and "2.000" to "2".
std::string cut_zeros(std::string text) {
  if (text.find('.') == std::string::npos) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

// `n` / `unit`, exact; unit is a power of ten of `digits` zeros.
std::string decimal_of(std::uint64_t n, std::uint64_t unit, int digits) {
  std::string fraction = std::to_string(n % unit);
  fraction.insert(0, static_cast<std::size_t>(digits) - fraction.size(), '0');
  return cut_zeros(std::to_string(n / unit) + "." + fraction);
}

std::string three_digits(double value) {
  char text[32];
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

}  // namespace

Result<Duration> parse_duration(std::string_view text) {
  constexpr const char* kExamples = "write for example \"250ms\", \"90s\" or \"1h30m\"";
  if (text == "0") return Duration::zero();
  if (text.empty()) return invalid(std::string("a duration is empty; ") + kExamples);
  if (text[0] == '-') return invalid("duration " + quoted(text) + " is negative");
  std::string_view rest = text;
  Wide total = 0;
  std::uint64_t last_unit = std::numeric_limits<std::uint64_t>::max();
  bool fraction_seen = false;
  while (!rest.empty()) {
    Decimal number;
    if (!take_decimal(rest, number)) {
      return invalid(quoted(text) + " is not a duration; " + kExamples);
    }
    std::size_t length = 0;
    while (length < rest.size() && !is_digit(rest[length]) && rest[length] != '.') ++length;
    const std::string_view name = rest.substr(0, length);
    if (name.empty()) {
      return invalid("duration " + quoted(text) + " has no unit; for seconds write \"" +
                     std::string(text) + "s\" (units: d h m s ms us ns)");
    }
    const Unit* unit = find_unit(kDurationUnits, name);
    if (unit == nullptr) {
      return invalid("duration " + quoted(text) + " has the unknown unit " + quoted(name) +
                     "; units are d h m s ms us ns");
    }
    if (unit->size >= last_unit) {
      return invalid("duration " + quoted(text) + " must go from large units to small ones; " +
                     kExamples);
    }
    if (fraction_seen) {
      return invalid("duration " + quoted(text) + " may have decimals in its last part only");
    }
    Wide part = 0;
    if (!multiply(number, unit->size, part)) {
      return invalid("duration " + quoted(text) + " is finer than a nanosecond");
    }
    total += part;
    if (total > kMaxDurationNs)
      return invalid("duration " + quoted(text) + " is longer than 292 years");
    last_unit = unit->size;
    fraction_seen = number.scale > 1;
    rest.remove_prefix(length);
  }
  return Duration(static_cast<std::int64_t>(total));
}

std::string format_duration(Duration d) {
  if (d < Duration::zero()) {
    // Negated as unsigned: the most negative value has no positive twin.
    const std::uint64_t magnitude = ~static_cast<std::uint64_t>(d.count()) + 1;
    if (magnitude > kMaxDurationNs) return std::to_string(d.count()) + "ns";
    return "-" + format_duration(Duration(static_cast<std::int64_t>(magnitude)));
  }
  auto left = static_cast<std::uint64_t>(d.count());
  if (left == 0) return "0s";
  std::string out;
  for (std::size_t i = 0; i < 3; ++i) {
    const Unit& unit = kDurationUnits[i];
    if (left >= unit.size) out += std::to_string(left / unit.size) + std::string(unit.name);
    left %= unit.size;
  }
  if (left == 0) return out;
  if (left >= 1'000'000'000) return out + decimal_of(left, 1'000'000'000, 9) + "s";
  if (left >= 1'000'000) return out + decimal_of(left, 1'000'000, 6) + "ms";
  if (left >= 1'000) return out + decimal_of(left, 1'000, 3) + "us";
  return out + std::to_string(left) + "ns";
}

std::string format_latency(std::int64_t ns) {
  // The most negative value has no positive twin; a nanosecond more makes no difference here.
  if (ns < 0) return "-" + format_latency(-std::max(ns, -std::numeric_limits<std::int64_t>::max()));
  if (ns < 1'000) return std::to_string(ns) + "ns";
  const auto value = static_cast<double>(ns);
  // Each limit is where three digits would round up to 1000 of the smaller unit.
  if (value < 999.5e3) return three_digits(value / 1e3) + "us";
  if (value < 999.5e6) return three_digits(value / 1e6) + "ms";
  if (value < 59.95e9) return three_digits(value / 1e9) + "s";
  const std::int64_t seconds = ns / 1'000'000'000 + (ns % 1'000'000'000 >= 500'000'000 ? 1 : 0);
  char text[40];
  if (seconds < 3600) {
    std::snprintf(text, sizeof text, "%lldm%02llds", static_cast<long long>(seconds / 60),
                  static_cast<long long>(seconds % 60));
  } else {
    const std::int64_t minutes = seconds / 60 + (seconds % 60 >= 30 ? 1 : 0);
    std::snprintf(text, sizeof text, "%lldh%02lldm", static_cast<long long>(minutes / 60),
                  static_cast<long long>(minutes % 60));
  }
  return text;
}

Result<std::uint64_t> parse_size(std::string_view text) {
  std::string_view rest = text;
  Decimal number;
  if (!take_decimal(rest, number)) {
    return invalid(quoted(text) +
                   " is not a size; write for example \"512\", \"64KiB\" or \"1MiB\"");
  }
  const Unit* unit = find_unit(kSizeUnits, rest);
  if (unit == nullptr) {
    return invalid("size " + quoted(text) + " has the unknown unit " + quoted(rest) +
                   "; units are B KiB MiB GiB TiB (binary) and KB MB GB TB (decimal)");
  }
  Wide bytes = 0;
  if (!multiply(number, unit->size, bytes))
    return invalid("size " + quoted(text) + " is not a whole number of bytes");
  if (bytes > std::numeric_limits<std::uint64_t>::max())
    return invalid("size " + quoted(text) + " is too large");
  return static_cast<std::uint64_t>(bytes);
}

std::string format_size(std::uint64_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + " B";
  constexpr std::array<const char*, 6> kNames = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t i = 0;
  for (; value >= 1023.5 && i + 1 < kNames.size(); ++i) value /= 1024;
  return cut_zeros(three_digits(value)) + " " + kNames[i];
}

Result<double> parse_rate(std::string_view text) {
  constexpr const char* kExamples = "write for example \"500/s\", \"30/m\" or \"2/h\"";
  std::string_view rest = text;
  Decimal number;
  if (!take_decimal(rest, number)) return invalid(quoted(text) + " is not a rate; " + kExamples);
  const double value = static_cast<double>(number.whole) +
                       static_cast<double>(number.fraction) / static_cast<double>(number.scale);
  if (rest == "/s") return value;
  if (rest == "/m") return value / 60;
  if (rest == "/h") return value / 3600;
  if (rest.empty())
    return invalid("rate " + quoted(text) + " has no unit; per second is \"" + std::string(text) +
                   "/s\"");
  return invalid("rate " + quoted(text) + " has the unknown unit " + quoted(rest) + "; " +
                 kExamples);
}

std::string format_rate(double per_s) {
  if (per_s >= 100) return format_count(static_cast<std::uint64_t>(std::llround(per_s))) + "/s";
  return cut_zeros(three_digits(per_s)) + "/s";
}

std::string format_count(std::uint64_t n) {
  std::string digits = std::to_string(n);
  for (std::size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, 1, ',');
  return digits;
}

}  // namespace spate
