#include "common/text.h"

#include <cstdint>

namespace spate {

std::size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xc2 && lead < 0xe0   ? 2
                             : lead >= 0xe0 && lead < 0xf0 ? 3
                             : lead >= 0xf0 && lead < 0xf5 ? 4
                                                           : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xf0 && byte(1) < 0x90);
  const bool surrogate = lead == 0xed && byte(1) >= 0xa0;
  const bool too_large = lead == 0xf4 && byte(1) >= 0x90;
  return overlong || surrogate || too_large ? 0 : length;
}

std::string printable_utf8(std::string_view text, std::size_t max_bytes) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const auto lead = static_cast<std::uint8_t>(text[0]);
    const bool shown = length > 1 || (length == 1 && lead >= 0x20 && lead != 0x7f);
    const std::size_t written = shown ? length : 1;
    if (out.size() + written > max_bytes) break;
    if (shown) {
      out.append(text.substr(0, length));
    } else {
      out.push_back('?');
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

}  // namespace spate
