#include "common/json_tree.h"

#include <cstdlib>
#include <iterator>
#include <nlohmann/json.hpp>

namespace spate {
namespace {

using Json = nlohmann::ordered_json;

// The library tells no line of a value, so the characters are counted on their way into it. The
// count is the line of the character read last; the end of a line belongs to that line, because the
// reader of a number has to look one character past it.
struct LineCount {
  int line = 1;
  bool ended = false;
};

class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, LineCount* count) : at_(at), count_(count) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    if (count_->ended) ++count_->line;
    count_->ended = *at_ == '\n';
    ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  LineCount* count_;
};

// "[json.exception.parse_error.101] parse error at line 3, column 5: syntax error while parsing
// object key - unexpected ']'; expected string literal", in fewer words and with the usual cause.
JsonError explain(std::string_view what) {
  JsonError error;
  int column = 0;
  const auto number_after = [&](std::string_view word) {
    const std::size_t at = what.find(word);
    return at == what.npos ? 0 : std::atoi(std::string(what.substr(at + word.size(), 9)).c_str());
  };
  error.line = number_after("at line ");
  column = number_after(", column ");
  const std::size_t dash = what.find(" - ");
  const std::size_t colon = what.find(": ");
  std::string reason(what.substr(dash != what.npos    ? dash + 3
                                 : colon != what.npos ? colon + 2
                                                      : 0));
  const auto has = [&](std::string_view part) { return reason.find(part) != reason.npos; };
  const char* hint = "";
  if (has("unexpected '}'") || has("unexpected ']'")) {
    hint = has("expected string literal") || what.find("parsing value") != what.npos
               ? " (is there a comma too many before it?)"
               : " (is a closing bracket of the other kind missing?)";
  } else if (has("unexpected end of input")) {
    hint = has("; expected end of input") ? "" : " (is a closing bracket or quote missing?)";
  } else if (has("expected ',' or") || has("unexpected string literal; expected '}'") ||
             has("unexpected string literal; expected ']'") || has("expected '}'") ||
             has("expected ']'")) {
    hint = " (is a comma missing before it?)";
  } else if (has("invalid literal")) {
    hint = " (text and keys go into double quotes)";
  }
  error.text = "not valid JSON at column " + std::to_string(column) + ": " + reason + hint;
  return error;
}

// Called by the library's parser in the order of the text.
class TreeBuilder {
 public:
  TreeBuilder(JsonNode& root, const LineCount& count, JsonError& error)
      : root_(root), count_(count), error_(error) {}

  bool null() { return put(std::monostate()); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(Json::number_integer_t value) { return put(std::int64_t{value}); }
  bool number_unsigned(Json::number_unsigned_t value) { return put(std::uint64_t{value}); }
  bool number_float(Json::number_float_t value, const std::string&) { return put(double{value}); }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }
  bool start_object(std::size_t) { return open(JsonNode::Kind::object); }
  bool start_array(std::size_t) { return open(JsonNode::Kind::array); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& value) {
    open_.back()->keys.push_back(std::move(value));
    key_line_ = count_.line;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& e) {
    error_ = explain(e.what());
    // Of a number out of range the library tells no place.
    if (error_.line == 0) error_ = {count_.line, std::string("not valid JSON: ") + e.what()};
    return false;
  }

 private:
  JsonNode& place() {
    if (open_.empty()) {
      root_.line = count_.line;
      return root_;
    }
    JsonNode& parent = *open_.back();
    JsonNode& node = parent.children.emplace_back();
    node.line = parent.is_object() ? key_line_ : count_.line;
    return node;
  }
  bool put(JsonNode::Scalar value) {
    place().scalar = std::move(value);
    return true;
  }
  // Pointers stay good: a parent gets no further child before this one is closed.
  bool open(JsonNode::Kind kind) {
    if (open_.size() >= kMaxJsonDepth) {
      error_ = {count_.line, "nested deeper than " + std::to_string(kMaxJsonDepth) + " levels"};
      return false;
    }
    JsonNode& node = place();
    node.kind = kind;
    open_.push_back(&node);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  JsonNode& root_;
  const LineCount& count_;
  JsonError& error_;
  std::vector<JsonNode*> open_;
  int key_line_ = 0;
};

Json to_library(const JsonNode& node) {
  if (node.is_object()) {
    Json out = Json::object();
    for (std::size_t i = 0; i < node.keys.size(); ++i)
      out[node.keys[i]] = to_library(node.children[i]);
    return out;
  }
  if (node.is_array()) {
    Json out = Json::array();
    for (const JsonNode& child : node.children) out.push_back(to_library(child));
    return out;
  }
  return std::visit(
      [](const auto& value) -> Json {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::monostate>)
          return nullptr;
        else
          return value;
      },
      node.scalar);
}

}  // namespace

const JsonNode* JsonNode::find(std::string_view key) const {
  for (std::size_t i = keys.size(); i-- > 0;) {
    if (keys[i] == key) return &children[i];
  }
  return nullptr;
}

JsonNode* JsonNode::find(std::string_view key) {
  return const_cast<JsonNode*>(static_cast<const JsonNode*>(this)->find(key));
}

JsonNode& JsonNode::add(std::string key) {
  keys.push_back(std::move(key));
  return children.emplace_back();
}

JsonNode JsonNode::object() {
  JsonNode node;
  node.kind = Kind::object;
  return node;
}

JsonNode JsonNode::list() {
  JsonNode node;
  node.kind = Kind::array;
  return node;
}

JsonNode JsonNode::of(Scalar value) {
  JsonNode node;
  node.scalar = std::move(value);
  return node;
}

const char* JsonNode::kind_name() const {
  if (is_object()) return "an object";
  if (is_array()) return "a list";
  switch (scalar.index()) {
    case 0:
      return "null";
    case 1:
      return "true or false";
    case 5:
      return "text";
    default:
      return "a number";
  }
}

bool parse_json_tree(std::string_view text, JsonNode& root, JsonError& error) {
  LineCount count;
  TreeBuilder builder(root, count, error);
  const CountingIterator first(text.data(), &count);
  const CountingIterator last(text.data() + text.size(), &count);
  return Json::sax_parse(first, last, &builder, nlohmann::detail::input_format_t::json,
                         /*strict=*/true,
                         /*ignore_comments=*/true);
}

std::string compact_json(const JsonNode& node) { return to_library(node).dump(); }

}  // namespace spate
