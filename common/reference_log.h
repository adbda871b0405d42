#pragma once

// The reference log: one row for every N completed requests, as written by the bundled target and
// by `spate report --format reference`. Semicolon-separated, decimal comma, header first:
//
//   2005-12-24 01:30:43; Time (sec); Memory (MB); Requests; Avg req/sec; Curr req/sec
//   2005-12-24 01:30:46; 2; 122,348; 5000; 2037,49; 2037,49
//
// Time is whole seconds since the start, rounded down; MB is 2^20 bytes; numbers have at most three
// decimals, trailing zeros cut. Times are local.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace spate {

struct ReferenceRow {
  std::int64_t wall_ms = 0;
  std::int64_t seconds = 0;
  double memory_mb = 0;
  std::uint64_t requests = 0;  // completed since the start
  double average_per_s = 0;    // since the start
  double current_per_s = 0;    // since the row before

  bool operator==(const ReferenceRow&) const = default;
};

struct ReferenceLog {
  std::int64_t started_wall_ms = 0;
  std::vector<ReferenceRow> rows;
};

// `decimal` is ',' or '.'. Lines end with "\n".
std::string reference_header(std::int64_t started_wall_ms);
std::string format_row(const ReferenceRow& row, char decimal = ',');
// Accepts both decimal characters and "\r\n". Errors name the line.
Result<ReferenceLog> parse_reference_log(std::string_view text);

// Computes rows from a running count: both the target and the report use it.
class ReferenceLogWriter {
 public:
  ReferenceLogWriter(std::int64_t started_wall_ms, std::int64_t start_ns, char decimal);
  std::string header() const;
  // A row at `now_ns` (monotonic) with `requests` completed since the start and the memory in use.
  std::string row(std::int64_t now_ns, std::uint64_t requests, std::uint64_t memory_bytes);

 private:
  std::int64_t started_wall_ms_;
  std::int64_t start_ns_;
  char decimal_;
  std::int64_t last_ns_;
  std::uint64_t last_requests_ = 0;
};

}  // namespace spate
