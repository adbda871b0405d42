#include "common/parameter_reader.h"

#include <algorithm>
#include <set>

#include "common/endpoint.h"
#include "common/plan_keys.h"

namespace spate {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMaxMetadataBytes = 8 * 1024;

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

// "package.Service": identifiers joined by dots.
bool is_dotted_identifier(std::string_view text) {
  bool at_start = true;
  for (const char c : text) {
    if (c == '.') {
      if (at_start) return false;
      at_start = true;
      continue;
    }
    const bool letter = is_lower(c) || (c >= 'A' && c <= 'Z') || c == '_';
    if (!letter && (at_start || !is_digit(c))) return false;
    at_start = false;
  }
  return !at_start;
}

// Why this metadata key cannot be used; empty if it can.
std::string objection_to_key(std::string_view key) {
  static const std::set<std::string, std::less<>> kReserved = {
      "te",         "content-type",     "content-length",    "connection", "host",
      "keep-alive", "proxy-connection", "transfer-encoding", "upgrade",    "user-agent"};
  if (key.empty()) return "is empty";
  if (key[0] == ':' || starts_with(key, "grpc-") || starts_with(key, "spate-") ||
      kReserved.contains(key)) {
    return "is reserved for the protocol";
  }
  if (key.size() >= 4 && key.substr(key.size() - 4) == "-bin")
    return "is binary metadata, which is not available yet";
  const bool good = std::all_of(key.begin(), key.end(), [](char c) {
    return is_lower(c) || is_digit(c) || c == '-' || c == '_' || c == '.';
  });
  return good ? "" : "may have lower-case letters, digits, '-', '_' and '.' only";
}

}  // namespace

struct ParameterReader::Parameter {
  std::string name;
  void (*read)(ParameterReader& in, const JsonNode& node, const std::string& where,
               ParameterPatch& patch);
};

const std::vector<ParameterReader::Parameter>& ParameterReader::parameters() {
  using In = ParameterReader;
  using Node = JsonNode;
  using Where = std::string;
  using Patch = ParameterPatch;
  static const std::vector<Parameter> kParameters = {
      {"target.url",
       [](In& in, const Node& n, const Where& w, Patch& p) { p.target_url = in.url_of(n, w); }},
      {"call.method",
       [](In& in, const Node& n, const Where& w, Patch& p) { p.method = in.method_of(n, w); }},
      {"call.message", [](In& in, const Node& n, const Where& w,
                          Patch& p) { p.message_json = in.message_of(n, w); }},
      {"call.timeout",
       [](In& in, const Node& n, const Where& w, Patch& p) {
         p.timeout = in.duration_of(n, w, {1ms, 1h});
       }},
      {"call.compress",
       [](In& in, const Node& n, const Where& w, Patch& p) { p.compress = in.bool_of(n, w); }},
      {"call.metadata",
       [](In& in, const Node& n, const Where& w, Patch& p) { p.metadata = in.metadata_of(n, w); }},
      {"load.connections",
       [](In& in, const Node& n, const Where& w, Patch& p) {
         p.connections = in.count_of(n, w, in.least_connections, kMaxConnections);
       }},
      {"load.calls_per_loop",
       [](In& in, const Node& n, const Where& w, Patch& p) {
         p.calls_per_loop = in.count_of(n, w, 0, 1'000'000'000);
       }},
      {"load.pause",
       [](In& in, const Node& n, const Where& w, Patch& p) {
         p.pause = in.duration_of(n, w, {0ns, 24h});
       }},
      {"agents.threads",
       [](In& in, const Node& n, const Where& w, Patch& p) {
         if (const auto threads = in.count_of(n, w, 1, kMaxThreadsPerAgent))
           p.threads = static_cast<std::uint32_t>(*threads);
       }},
      {"paused",
       [](In& in, const Node& n, const Where& w, Patch& p) { p.paused = in.bool_of(n, w); }}};
  return kParameters;
}

const std::vector<std::string>& ParameterReader::paths() {
  static const std::vector<std::string> kPaths = [] {
    std::vector<std::string> paths;
    for (const Parameter& p : parameters()) paths.push_back(p.name);
    return paths;
  }();
  return kPaths;
}

std::string ParameterReader::objection_to_path(const std::string& path, std::string_view when) {
  std::string may = "; what may:";
  for (const std::string& p : paths()) {
    if (starts_with(path, p + ".")) return "is a part of " + p + ", which is changed as a whole";
    may += " " + p;
  }
  if (is_plan_path(path)) {
    const auto inside = std::find_if(paths().begin(), paths().end(), [&](const std::string& p) {
      return starts_with(p, path + ".");
    });
    if (inside != paths().end()) return "is no parameter itself; write for example " + *inside;
    return "may not change " + std::string(when) + may;
  }
  const std::string near = nearest(path, paths());
  if (!near.empty()) return "unknown; did you mean " + quoted(near) + "?";
  return "unknown" + may;
}

bool ParameterReader::read_parameter(std::string_view name, const JsonNode& node,
                                     const std::string& where, ParameterPatch& patch) {
  for (const Parameter& p : parameters()) {
    if (p.name != name) continue;
    p.read(*this, node, where, patch);
    return true;
  }
  return false;
}

void ParameterReader::read_group(const JsonNode& node, const std::string& where,
                                 std::string_view group, ParameterPatch& patch) {
  for (std::size_t i = 0; i < node.keys.size(); ++i)
    read_parameter(std::string(group) + "." + node.keys[i], node.children[i],
                   where + "/" + node.keys[i], patch);
}

ParameterPatch ParameterReader::read_patch(const JsonNode& node, const std::string& where,
                                           std::string_view when,
                                           const std::vector<std::string>& others) {
  ParameterPatch patch;
  const auto is_group = [](const std::string& key) {
    return std::any_of(paths().begin(), paths().end(),
                       [&](const std::string& p) { return starts_with(p, key + "."); });
  };
  const auto read = [&](const std::string& path, const JsonNode& value, const std::string& at) {
    if (!read_parameter(path, value, at, patch)) report(value, at, objection_to_path(path, when));
  };
  for (std::size_t i = 0; i < node.keys.size(); ++i) {
    const std::string& key = node.keys[i];
    const JsonNode& child = node.children[i];
    const std::string at = where + "/" + key;
    if (std::find(others.begin(), others.end(), key) != others.end()) continue;
    if (is_group(key) && child.is_object()) {
      for (std::size_t k = 0; k < child.keys.size(); ++k)
        read(key + "." + child.keys[k], child.children[k], at + "/" + child.keys[k]);
    } else {
      read(key, child, at);
    }
  }
  return patch;
}

void ParameterReader::settle_pause(const JsonNode* calls, const JsonNode* pause,
                                   const std::string& where,
                                   std::optional<std::uint64_t> calls_before,
                                   ParameterPatch& patch) {
  // Also if the pause is from before.
  if (patch.calls_per_loop == 0 && !patch.pause) patch.pause = Duration::zero();
  if (pause == nullptr || !patch.pause || *patch.pause == Duration::zero()) return;
  const bool calls_are_wrong = calls != nullptr && !patch.calls_per_loop;
  if (calls_are_wrong || patch.calls_per_loop.value_or(calls_before.value_or(1)) > 0) return;
  report(*pause, where, "a pause needs calls_per_loop: after how many calls?");
}

std::optional<std::string> ParameterReader::url_of(const JsonNode& node, const std::string& where) {
  const auto text = text_of(node, where);
  if (!text || (has_local_target && is_local_url(*text))) return text;
  if (is_local_url(*text)) {
    report(node, where,
           "is for plans whose target is \"local\"; write an address, for example "
           "\"grpcs://10.0.0.100:7443\"");
    return std::nullopt;
  }
  const auto parsed = parse_target_url(*text);
  if (!parsed) {
    report(node, where, parsed.error().message);
    return std::nullopt;
  }
  return text;
}

std::optional<std::string> ParameterReader::method_of(const JsonNode& node,
                                                      const std::string& where) {
  const auto text = text_of(node, where);
  if (!text) return std::nullopt;
  const std::size_t slash = text->find('/');
  const bool good = slash != text->npos && is_dotted_identifier(text->substr(0, slash)) &&
                    is_dotted_identifier(text->substr(slash + 1)) &&
                    text->find('.', slash) == text->npos;
  if (good) return text;
  report(node, where, quoted(*text) + " is not a method; write package.Service/Method");
  return std::nullopt;
}

std::optional<std::string> ParameterReader::message_of(const JsonNode& node,
                                                       const std::string& where) {
  if (!node.is_object()) {
    report(node, where, std::string("must be a JSON object {…}, not ") + node.kind_name());
    return std::nullopt;
  }
  std::string message = compact_json(node);
  if (message.size() <= kMaxMessageBytes) return message;
  report(node, where, "is longer than 4 MiB");
  return std::nullopt;
}

std::optional<Metadata> ParameterReader::metadata_of(const JsonNode& node,
                                                     const std::string& where) {
  if (!node.is_object()) {
    report(
        node, where,
        std::string("must be an object of texts, {\"key\": \"value\"}, not ") + node.kind_name());
    return std::nullopt;
  }
  Metadata metadata;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < node.keys.size(); ++i) {
    const std::string& key = node.keys[i];
    const JsonNode& child = node.children[i];
    const std::string child_path = where + "/" + key;
    if (const std::string objection = objection_to_key(key); !objection.empty()) {
      report(child, child_path, "metadata key " + quoted(key) + " " + objection);
      continue;
    }
    const auto value = text_of(child, child_path);
    if (!value) continue;
    const bool printable =
        std::all_of(value->begin(), value->end(), [](char c) { return c >= 0x20 && c < 0x7f; });
    if (!printable || (!value->empty() && (value->front() == ' ' || value->back() == ' '))) {
      report(child, child_path,
             "a metadata value may have printable ASCII only, and no space at its ends");
      continue;
    }
    bytes += key.size() + value->size();
    metadata.emplace_back(key, *value);
  }
  if (bytes > kMaxMetadataBytes) report(node, where, "is larger than 8 KiB");
  return metadata;
}

}  // namespace spate
