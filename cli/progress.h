#pragma once

// The live lines of a run, for a terminal 100 columns wide. Pure.

#include <cstdint>
#include <string>

namespace spate::ops::v1 {
class Event;
class Progress;
}  // namespace spate::ops::v1

namespace spate::cli {

std::string progress_heading();
// One interval of the whole cluster, under progress_heading().
std::string format_progress(const ops::v1::Progress& progress);
// "      0:12  warning: agent lost agent=pc-07 …"
std::string format_event(const ops::v1::Event& event);

// "0:07", "12:34", "26:03:09"; negative times have a minus.
std::string format_elapsed(std::int64_t ms);

}  // namespace spate::cli
