#pragma once

// The style sheet and the script of the HTML report. Neither holds '<' or '&', so that the page is
// well-formed XML as well.

#include <string_view>

namespace spate::controller::report {

extern const std::string_view kStyle;
extern const std::string_view kScript;

}  // namespace spate::controller::report
