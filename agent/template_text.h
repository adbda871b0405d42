#pragma once

// The text side of message templates: "order {{seq}} of {{agent}}" -> pieces. Pure.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace spate::agent {

enum class HoleKind : std::uint8_t { random, seq, agent, connection, text };

inline constexpr std::int64_t kMaxTextHole = 1'000'000;

struct Hole {
  HoleKind kind = HoleKind::seq;
  std::int64_t low = 0;   // random only
  std::int64_t high = 0;  // random; of a text the number of characters

  // Never a number: its place is a string field.
  bool is_text() const { return kind == HoleKind::agent || kind == HoleKind::text; }
};

struct TextPiece {
  bool is_hole = false;
  std::string text;  // if not a hole
  Hole hole;
};

inline bool has_template(std::string_view text) { return text.find("{{") != text.npos; }

// Errors say what is wrong with the template, without a place.
Result<std::vector<TextPiece>> parse_template_text(std::string_view text);

}  // namespace spate::agent
