#pragma once

// One function per format; render_report() of report.h chooses. Pure.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "controller/aggregate.h"

namespace spate::controller::report {

std::string html(const Aggregate& run);
std::string csv(const Aggregate& run);
std::string json(const Aggregate& run);
std::string reference(const Aggregate& run);
std::string sets(const Aggregate& run);  // R6's table; the heading alone if nothing changed

// A field of a CSV row (RFC 4180).
std::string quoted(std::string_view text);

// When the epochs that were reached began, and why; and the guard bands, which are not measured.
struct EpochSpan {
  std::uint32_t number = 1;
  std::uint32_t before = 0;  // the one that it followed; 0: none
  Duration from{};
  Duration to{};
  std::string reason;  // "rotation", "phase step-2", or what was ordered, by whom and why
};
struct EpochHistory {
  std::vector<EpochSpan> epochs;
  std::vector<std::pair<Duration, Duration>> guards;
};
EpochHistory epoch_history(const Aggregate& run);

// The charts of the HTML page.
std::string timeline(
    const Aggregate& run);  // everything over the run's time, on one axis, with its script data
std::string distribution(const Aggregate& run);  // of the measured latency; "" without any
std::string sweep_curves(
    const Aggregate& run);  // connections against rate and latency; "" unless a sweep

}  // namespace spate::controller::report
