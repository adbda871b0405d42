#pragma once

// Thresholds as they are written in a plan. Pure.

#include <string_view>

#include "common/plan.h"
#include "common/result.h"

namespace spate {

std::string_view name(Threshold::Metric metric);  // "latency", "service_time" …, as in a plan

// `text` without the metric: "p(99)<50ms" of latency, "rate<0.1%" of errors. White space is
// ignored.
Result<Threshold> parse_threshold(Threshold::Metric metric, std::string_view text);

}  // namespace spate
