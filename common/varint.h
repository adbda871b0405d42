#pragma once

// Unsigned LEB128, at most 10 bytes. Reading takes only the shortest form, so that every number has
// one spelling. Pure.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace spate {

inline void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>((value & 0x7f) | 0x80));
  out.push_back(static_cast<char>(value));
}

// Takes one number off the front of `bytes`. False if it is cut off, too long or overlong; then
// `bytes` and `value` are as before.
[[nodiscard]] inline bool take_varint(std::string_view& bytes, std::uint64_t& value) {
  std::uint64_t result = 0;
  for (std::size_t i = 0; i < bytes.size() && i < 10; ++i) {
    const auto byte = static_cast<std::uint8_t>(bytes[i]);
    if (i == 9 && byte > 1) return false;  // past 64 bits
    result |= static_cast<std::uint64_t>(byte & 0x7f) << (7 * i);
    if (byte & 0x80) continue;
    if (byte == 0 && i > 0) return false;  // overlong
    bytes.remove_prefix(i + 1);
    value = result;
    return true;
  }
  return false;
}

}  // namespace spate
