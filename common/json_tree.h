#pragma once

// JSON with comments as a tree that knows the line of everything in it, for messages about
// mistakes. Keeps the order of keys, and keys that occur twice. Pure.

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace spate {

struct JsonNode {
  enum class Kind { scalar, object, array };
  using Scalar =
      std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string>;

  Kind kind = Kind::scalar;
  int line = 0;        // of the key, or of an array's element; 0: not from the file
  std::string origin;  // "--set load.connections" if it came from there
  Scalar scalar;       // std::monostate: null. Numbers >= 0 without a point are std::uint64_t
  std::vector<std::string> keys;  // of an object, one for each child
  std::vector<JsonNode> children;

  bool is_object() const { return kind == Kind::object; }
  bool is_array() const { return kind == Kind::array; }
  template <class T>
  const T* as() const {
    return kind == Kind::scalar ? std::get_if<T>(&scalar) : nullptr;
  }
  // The last child of that key, or nullptr.
  const JsonNode* find(std::string_view key) const;
  JsonNode* find(std::string_view key);
  JsonNode& add(std::string key);
  static JsonNode object();
  static JsonNode list();
  static JsonNode of(Scalar value);  // say std::uint64_t and std::string by name
  // "a number", "an object" …
  const char* kind_name() const;
};

inline constexpr std::size_t kMaxJsonDepth = 200;

struct JsonError {
  int line = 0;
  std::string text;
};

// Reads all of `text`. False and `error` if it is not JSON, or nested deeper than kMaxJsonDepth.
bool parse_json_tree(std::string_view text, JsonNode& root, JsonError& error);

// Without white space, keys in order.
std::string compact_json(const JsonNode& node);

}  // namespace spate
