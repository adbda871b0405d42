#pragma once

// Numbers with units as people write them: in plans, flags and on the screen.

#include <cstdint>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "common/result.h"

namespace spate {

// "90s" "1h30m" "7d" "250ms" "1.5s" "10us" "5ns"; "0" alone is zero. Negative: refused.
Result<Duration> parse_duration(std::string_view text);
// The shortest exact spelling: "1h30m", "250ms".
std::string format_duration(Duration d);
// For people, three significant digits: "1.24ms", "82.1us", "2m05s".
std::string format_latency(std::int64_t ns);

// "64KiB" "1MiB" "10GiB" "512" "512B"; KB, MB, GB are powers of ten.
Result<std::uint64_t> parse_size(std::string_view text);
// For people, binary: "210 MiB".
std::string format_size(std::uint64_t bytes);

// "500/s" "30/m" "2/h"; per second as a double.
Result<double> parse_rate(std::string_view text);
// For people: "500/s", "0.5/s".
std::string format_rate(double per_s);

// 1234567 -> "1,234,567"
std::string format_count(std::uint64_t n);

}  // namespace spate
