#include "common/reference_log.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>

namespace spate {
namespace {

constexpr std::string_view kColumns =
    "; Time (sec); Memory (MB); Requests; Avg req/sec; Curr req/sec";

std::string local_time(std::int64_t wall_ms) {
  const auto when = static_cast<time_t>(wall_ms / 1000);
  tm parts{};
  localtime_r(&when, &parts);
  char text[40];
  return std::string(text, strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts));
}

// Three decimals, trailing zeros cut.
std::string number(double value, char decimal) {
  char text[64];
  std::snprintf(text, sizeof text, "%.3f", value);
  std::string out(text);
  out.erase(out.find_last_not_of('0') + 1);
  if (out.back() == '.') out.pop_back();
  std::replace(out.begin(), out.end(), '.', decimal);
  return out;
}

bool read_time(std::string_view text, std::int64_t& wall_ms) {
  const std::string copy(text);
  tm parts{};
  const char* end = strptime(copy.c_str(), "%Y-%m-%d %H:%M:%S", &parts);
  if (end == nullptr || *end != '\0') return false;
  parts.tm_isdst = -1;
  wall_ms = static_cast<std::int64_t>(mktime(&parts)) * 1000;
  return true;
}

template <class Integer>
bool read_integer(std::string_view text, Integer& out) {
  const char* const end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, out);
  return code == std::errc() && stop == end;
}

bool read_number(std::string_view text, double& out) {
  std::string copy(text);
  std::replace(copy.begin(), copy.end(), ',', '.');
  const char* const end = copy.data() + copy.size();
  const auto [stop, code] = std::from_chars(copy.data(), end, out, std::chars_format::fixed);
  return code == std::errc() && stop == end;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// The six columns of a row; false if there are more or fewer.
bool split_row(std::string_view line, std::array<std::string_view, 6>& out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t end = line.find(';');
    if ((end == line.npos) != (i + 1 == out.size())) return false;
    out[i] = trimmed(line.substr(0, end));
    line.remove_prefix(end == line.npos ? line.size() : end + 1);
  }
  return true;
}

bool read_row(std::string_view line, ReferenceRow& row) {
  std::array<std::string_view, 6> columns;
  return split_row(line, columns) && read_time(columns[0], row.wall_ms) &&
         read_integer(columns[1], row.seconds) && row.seconds >= 0 &&
         read_number(columns[2], row.memory_mb) && read_integer(columns[3], row.requests) &&
         read_number(columns[4], row.average_per_s) && read_number(columns[5], row.current_per_s);
}

}  // namespace

std::string reference_header(std::int64_t started_wall_ms) {
  return local_time(started_wall_ms) + std::string(kColumns) + "\n";
}

std::string format_row(const ReferenceRow& row, char decimal) {
  return local_time(row.wall_ms) + "; " + std::to_string(row.seconds) + "; " +
         number(row.memory_mb, decimal) + "; " + std::to_string(row.requests) + "; " +
         number(row.average_per_s, decimal) + "; " + number(row.current_per_s, decimal) + "\n";
}

Result<ReferenceLog> parse_reference_log(std::string_view text) {
  ReferenceLog log;
  int line_number = 0;
  while (!text.empty()) {
    ++line_number;
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    const auto fail = [&](const char* why) {
      return invalid("reference log, line " + std::to_string(line_number) + ": " + why);
    };
    if (line_number == 1) {
      const std::size_t semicolon = line.find(';');
      if (semicolon == line.npos || line.substr(semicolon) != kColumns ||
          !read_time(line.substr(0, semicolon), log.started_wall_ms)) {
        return fail(
            "not the header \"YYYY-MM-DD hh:mm:ss; Time (sec); Memory (MB); Requests; Avg req/sec; "
            "Curr req/sec\"");
      }
      continue;
    }
    if (line.empty()) continue;
    ReferenceRow row;
    if (!read_row(line, row))
      return fail("not a row of six columns (time; seconds; MB; requests; average; current)");
    if (!log.rows.empty() && row.requests < log.rows.back().requests)
      return fail("fewer requests than the row before");
    log.rows.push_back(row);
  }
  if (line_number == 0) return invalid("reference log: empty");
  return log;
}

ReferenceLogWriter::ReferenceLogWriter(std::int64_t started_wall_ms, std::int64_t start_ns,
                                       char decimal)
    : started_wall_ms_(started_wall_ms),
      start_ns_(start_ns),
      decimal_(decimal),
      last_ns_(start_ns) {}

std::string ReferenceLogWriter::header() const { return reference_header(started_wall_ms_); }

std::string ReferenceLogWriter::row(std::int64_t now_ns, std::uint64_t requests,
                                    std::uint64_t memory_bytes) {
  const auto per_second = [](std::uint64_t count, std::int64_t ns) {
    return ns <= 0 ? 0.0 : static_cast<double>(count) * 1e9 / static_cast<double>(ns);
  };
  const std::int64_t elapsed = std::max<std::int64_t>(now_ns - start_ns_, 0);
  ReferenceRow row;
  // From the monotonic clock, so that a step of the wall clock does not tear the log.
  row.wall_ms = started_wall_ms_ + elapsed / 1'000'000;
  row.seconds = elapsed / 1'000'000'000;
  row.memory_mb = static_cast<double>(memory_bytes) / (1024.0 * 1024.0);
  row.requests = requests;
  row.average_per_s = per_second(requests, elapsed);
  row.current_per_s = per_second(requests - std::min(requests, last_requests_), now_ns - last_ns_);
  last_ns_ = now_ns;
  last_requests_ = requests;
  return format_row(row, decimal_);
}

}  // namespace spate
