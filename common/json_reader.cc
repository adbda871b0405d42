#include "common/json_reader.h"

#include <algorithm>
#include <set>

#include "common/plan_keys.h"
#include "common/text.h"
#include "common/units.h"

namespace spate {
namespace {

constexpr std::size_t kMaxNameBytes = 64;
constexpr std::size_t kMaxTextBytes = 4096;

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string number_text(const JsonNode& node) { return compact_json(node); }

}  // namespace

std::string quoted(std::string_view text) { return "\"" + printable_utf8(text, 80) + "\""; }

void JsonReader::report(const JsonNode& node, const std::string& path, std::string text) {
  if (!node.origin.empty()) {
    problems_.push_back({node.origin, 0, std::move(text)});
  } else {
    problems_.push_back({path.empty() ? "/" : path, node.line, std::move(text)});
  }
}

void JsonReader::report_missing(const std::string& path, std::string text) {
  problems_.push_back({path, 0, std::move(text)});
}

void JsonReader::find_repeated_keys(const JsonNode& node, const std::string& path) {
  std::set<std::string_view> seen;
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    const std::string child_path =
        path + "/" + (node.is_object() ? node.keys[i] : std::to_string(i));
    if (node.is_object() && !seen.insert(node.keys[i]).second) {
      report(node.children[i], child_path, "this key is there twice; keep one");
    }
    find_repeated_keys(node.children[i], child_path);
  }
}

bool JsonReader::check_object(const JsonNode& node, const std::string& path,
                              std::string_view known_as) {
  if (!node.is_object()) {
    report(node, path, std::string("must be an object {…}, not ") + node.kind_name());
    return false;
  }
  const auto& objects = known_plan_objects();
  const auto own = std::find_if(objects.begin(), objects.end(),
                                [&](const auto& o) { return o.name == known_as; });
  for (std::size_t i = 0; i < node.keys.size(); ++i) {
    const std::string& key = node.keys[i];
    if (std::find(own->keys.begin(), own->keys.end(), key) != own->keys.end()) continue;
    std::string text = "unknown key " + quoted(key);
    const std::string near = nearest(key, own->keys);
    const auto other = std::find_if(objects.begin(), objects.end(), [&](const auto& o) {
      return std::find(o.keys.begin(), o.keys.end(), key) != o.keys.end();
    });
    if (!near.empty()) {
      text += "; did you mean " + quoted(near) + "?";
    } else if (other != objects.end()) {
      text += other->name.empty() ? "; it belongs to the plan itself"
                                  : "; it belongs to " + quoted(other->name);
    } else {
      text += "; known here:";
      for (const std::string& k : own->keys) text += " " + k;
    }
    report(node.children[i], path + "/" + key, std::move(text));
  }
  return true;
}

// ---- values

std::optional<std::string> JsonReader::text_of(const JsonNode& node, const std::string& path) {
  const auto* text = node.as<std::string>();
  if (text == nullptr) {
    report(node, path, std::string("must be text in double quotes, not ") + node.kind_name());
    return std::nullopt;
  }
  if (text->size() > kMaxTextBytes) {
    report(node, path, "is longer than " + std::to_string(kMaxTextBytes) + " bytes");
    return std::nullopt;
  }
  return *text;
}

std::optional<bool> JsonReader::bool_of(const JsonNode& node, const std::string& path) {
  const auto* value = node.as<bool>();
  if (value == nullptr) {
    report(node, path, std::string("must be true or false, not ") + node.kind_name());
    return std::nullopt;
  }
  return *value;
}

std::optional<std::uint64_t> JsonReader::count_of(const JsonNode& node, const std::string& path,
                                                  std::uint64_t least, std::uint64_t most) {
  const std::string range =
      "a whole number from " + std::to_string(least) + " to " + std::to_string(most);
  const auto* value = node.as<std::uint64_t>();
  if (value != nullptr && *value >= least && *value <= most) return *value;
  const bool number =
      value != nullptr || node.as<std::int64_t>() != nullptr || node.as<double>() != nullptr;
  if (number) {
    report(node, path, "must be " + range + ", not " + number_text(node));
  } else {
    report(node, path, "must be " + range + ", without quotes, not " + node.kind_name());
  }
  return std::nullopt;
}

std::optional<Duration> JsonReader::duration_of(const JsonNode& node, const std::string& path,
                                                Range range) {
  const auto* text = node.as<std::string>();
  if (text == nullptr) {
    const bool number = node.as<std::uint64_t>() != nullptr || node.as<double>() != nullptr;
    report(node, path,
           number ? "a duration needs a unit; for seconds write \"" + number_text(node) + "s\""
                  : std::string("must be a duration like \"30s\", not ") + node.kind_name());
    return std::nullopt;
  }
  const auto value = parse_duration(*text);
  if (!value) {
    report(node, path, value.error().message);
    return std::nullopt;
  }
  if (*value < range.least || *value > range.most) {
    report(node, path,
           "must be from " + format_duration(range.least) + " to " + format_duration(range.most) +
               ", not " + format_duration(*value));
    return std::nullopt;
  }
  return *value;
}

void JsonReader::read_duration(const JsonNode& parent, const std::string& parent_path,
                               std::string_view key, Range range, Duration& out) {
  if (const JsonNode* node = parent.find(key)) {
    out = duration_of(*node, parent_path + "/" + std::string(key), range).value_or(out);
  }
}

std::optional<std::string> JsonReader::name_of(const JsonNode& node, const std::string& path) {
  const auto text = text_of(node, path);
  if (!text) return std::nullopt;
  const bool good = !text->empty() && text->size() <= kMaxNameBytes &&
                    std::all_of(text->begin(), text->end(),
                                [](char c) { return is_lower(c) || is_digit(c) || c == '-'; });
  if (!good) {
    report(node, path,
           quoted(*text) + " is not a name; use 1 to 64 lower-case letters, digits and '-'");
    return std::nullopt;
  }
  return text;
}

}  // namespace spate
