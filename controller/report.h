#pragma once

// Renders what an Aggregate holds. Pure: text in memory, no files.

#include <string>
#include <string_view>

#include "common/result.h"
#include "controller/aggregate.h"

namespace spate::controller {

// format: "html" one self-contained page; "csv" one row per interval; "json" summary + series;
// "reference" the reference log (docs/reference-log.md). Unknown: refused with the list.
Result<std::string> render_report(const Aggregate& run, std::string_view format);

}  // namespace spate::controller
