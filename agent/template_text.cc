#include "agent/template_text.h"

#include <charconv>
#include <utility>

#include "common/plan_json.h"

namespace spate::agent {
namespace {

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  constexpr std::string_view kBlank = " \t\r\n";
  for (;;) {
    const std::size_t begin = text.find_first_not_of(kBlank);
    if (begin == text.npos) return words;
    const std::size_t end = std::min(text.find_first_of(kBlank, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    text.remove_prefix(end);
  }
}

bool parse_whole(std::string_view text, std::int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

Result<Hole> parse_hole(std::string_view inside) {
  const std::string whole = "{{" + std::string(inside) + "}}";
  const std::vector<std::string_view> words = words_of(inside);
  if (words.empty()) return invalid(whole + " is empty");
  if (words[0] == "random") {
    Hole hole{HoleKind::random, 0, 0};
    if (words.size() != 3 || !parse_whole(words[1], hole.low) || !parse_whole(words[2], hole.high))
      return invalid(whole + ": random takes two whole numbers, as in {{random 0 999999}}");
    if (hole.low > hole.high)
      return invalid(whole + ": the first number is larger than the second");
    return hole;
  }
  if (words[0] == "text") {
    Hole hole{HoleKind::text, 0, 0};
    if (words.size() != 2 || !parse_whole(words[1], hole.high) || hole.high < 1 ||
        hole.high > kMaxTextHole)
      return invalid(whole + ": text takes its number of characters, 1 to " +
                     std::to_string(kMaxTextHole) + ", as in {{text 14000}}");
    return hole;
  }
  Hole hole;
  if (words[0] == "seq") {
    hole.kind = HoleKind::seq;
  } else if (words[0] == "agent") {
    hole.kind = HoleKind::agent;
  } else if (words[0] == "connection") {
    hole.kind = HoleKind::connection;
  } else {
    const std::string near = nearest(words[0], {"random", "seq", "agent", "connection", "text"});
    return invalid(whole + ": there is no template " + std::string(words[0]) +
                   (near.empty() ? "; there are random, seq, agent, connection and text"
                                 : "; did you mean " + near + "?"));
  }
  if (words.size() != 1)
    return invalid(whole + ": " + std::string(words[0]) + " takes no arguments");
  return hole;
}

}  // namespace

Result<std::vector<TextPiece>> parse_template_text(std::string_view text) {
  std::vector<TextPiece> pieces;
  while (!text.empty()) {
    const std::size_t begin = text.find("{{");
    if (begin != 0) {
      pieces.push_back({false, std::string(text.substr(0, begin)), {}});
      if (begin == text.npos) break;
      text.remove_prefix(begin);
    }
    const std::size_t end = text.find("}}", 2);
    if (end == text.npos) return invalid("template " + std::string(text) + " is not closed by }}");
    Result<Hole> hole = parse_hole(text.substr(2, end - 2));
    if (!hole) return hole.error();
    pieces.push_back({true, {}, *hole});
    text.remove_prefix(end + 2);
  }
  return pieces;
}

}  // namespace spate::agent
