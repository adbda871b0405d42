#pragma once

// One function per format; render_report() of report.h chooses. Pure.

#include <string>

#include "controller/aggregate.h"

namespace spate::controller::report {

std::string html(const Aggregate& run);
std::string csv(const Aggregate& run);
std::string json(const Aggregate& run);
std::string reference(const Aggregate& run);

// The charts of the HTML page.
std::string timeline(
    const Aggregate& run);  // everything over the run's time, on one axis, with its script data
std::string distribution(const Aggregate& run);  // of the measured latency; "" without any
std::string sweep_curves(
    const Aggregate& run);  // connections against rate and latency; "" unless a sweep

}  // namespace spate::controller::report
