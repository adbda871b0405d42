#pragma once

// Text that came from outside, made safe to store and to show. Pure.

#include <cstddef>
#include <string>
#include <string_view>

namespace spate {

// At most `max_bytes` of `text`, never cutting a character in two; control characters and bytes
// that are not UTF-8 become '?'.
std::string printable_utf8(std::string_view text, std::size_t max_bytes);

// The length of the UTF-8 character at the front of `text`, 0 if there is none (RFC 3629: no
// overlong forms, no surrogates, nothing past U+10FFFF).
std::size_t utf8_length(std::string_view text);

}  // namespace spate
