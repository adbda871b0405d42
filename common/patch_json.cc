#include "common/patch_json.h"

#include <set>

#include "common/parameter_reader.h"
#include "common/text.h"
#include "common/units.h"

namespace spate {
namespace {

constexpr std::size_t kMaxShownMessage = 120;

JsonNode message_node(const std::string& json) {
  JsonNode message;
  JsonError ignored;
  if (!parse_json_tree(json, message, ignored)) message = JsonNode::object();
  return message;
}

JsonNode metadata_node(const Metadata& metadata) {
  JsonNode node = JsonNode::object();
  for (const auto& [key, value] : metadata) node.add(key) = JsonNode::of(value);
  return node;
}

// The object `name` inside `root`, made if it is not there.
JsonNode& group(JsonNode& root, const std::string& name) {
  if (JsonNode* node = root.find(name)) return *node;
  return root.add(name) = JsonNode::object();
}

void set_origin(JsonNode& node, const std::string& origin) {
  node.origin = origin;
  for (JsonNode& child : node.children) set_origin(child, origin);
}

std::string shown_message(const std::string& message) {
  if (message.size() <= kMaxShownMessage) return message;
  return printable_utf8(message, kMaxShownMessage) + "… (" + format_count(message.size()) +
         " bytes)";
}

std::string shown_metadata(const Metadata& metadata) {
  std::string out = "{";
  for (const auto& [key, value] : metadata) out += (out.size() > 1 ? "," : "") + key;
  return out + "}";
}

ParameterPatch everything_of(const Parameters& p) {
  return {
      p.target_url,    p.call.method,      p.call.message_json,   p.call.timeout, p.call.compress,
      p.call.metadata, p.load.connections, p.load.calls_per_loop, p.load.pause,   p.threads,
      p.paused};
}

bool is_complete(const ParameterPatch& p) {
  return p.target_url && p.method && p.message_json && p.timeout && p.compress && p.metadata &&
         p.connections && p.calls_per_loop && p.pause && p.threads && p.paused;
}

// The tree of an object that was stored, and its parameters.
Result<ParameterPatch> read_stored(std::string_view text, JsonNode& root) {
  JsonError error;
  if (!parse_json_tree(text, root, error)) return invalid("stored parameters: " + error.text);
  std::vector<PlanProblem> problems;
  ParameterReader reader(problems);
  reader.least_connections = 0;
  ParameterPatch patch;
  for (std::size_t i = 0; i < root.keys.size(); ++i) {
    const JsonNode& node = root.children[i];
    const std::string& key = root.keys[i];
    if (node.is_object()) {
      reader.read_group(node, "/" + key, key, patch);
    } else {
      reader.read_parameter(key, node, "/" + key, patch);
    }
  }
  if (!problems.empty()) return invalid("stored parameters: " + problems.front().to_string(""));
  return patch;
}

}  // namespace

PatchOrProblems parse_patch(const std::vector<std::string>& assignments) {
  PatchOrProblems result;
  ParameterReader reader(result.problems);
  if (assignments.empty())
    reader.report_missing("nothing to change",
                          "write path=value, for example load.connections=400");
  std::set<std::string> seen;
  JsonNode calls;
  JsonNode pause;
  for (const std::string& assignment : assignments) {
    const std::size_t equals = assignment.find('=');
    const std::string path = assignment.substr(0, equals);
    if (equals == assignment.npos || equals == 0) {
      reader.report_missing(quoted(assignment),
                            "write path=value, for example load.connections=400");
      continue;
    }
    if (!seen.insert(path).second) {
      reader.report_missing(path, "is given twice; keep one");
      continue;
    }
    JsonNode value;
    JsonError ignored;
    const std::string text = assignment.substr(equals + 1);
    if (!parse_json_tree(text, value, ignored)) value = JsonNode::of(text);
    set_origin(value, path);
    reader.find_repeated_keys(value, path);
    if (!reader.read_parameter(path, value, path, result.patch)) {
      reader.report_missing(path, ParameterReader::objection_to_path(path, "during a run"));
    }
    if (path == "load.calls_per_loop") calls = value;
    if (path == "load.pause") pause = value;
  }
  reader.settle_pause(seen.contains("load.calls_per_loop") ? &calls : nullptr,
                      seen.contains("load.pause") ? &pause : nullptr, "load.pause", std::nullopt,
                      result.patch);
  return result;
}

std::string describe(const ParameterPatch& patch) {
  std::string out;
  const auto say = [&](const char* path, const std::string& value) {
    out += (out.empty() ? "" : " ") + std::string(path) + "=" + value;
  };
  if (patch.target_url) say("target.url", *patch.target_url);
  if (patch.method) say("call.method", *patch.method);
  if (patch.message_json) say("call.message", shown_message(*patch.message_json));
  if (patch.timeout) say("call.timeout", format_duration(*patch.timeout));
  if (patch.compress) say("call.compress", *patch.compress ? "true" : "false");
  if (patch.metadata) say("call.metadata", shown_metadata(*patch.metadata));
  if (patch.connections) say("load.connections", std::to_string(*patch.connections));
  if (patch.calls_per_loop) say("load.calls_per_loop", std::to_string(*patch.calls_per_loop));
  if (patch.pause) say("load.pause", format_duration(*patch.pause));
  if (patch.threads) say("agents.threads", std::to_string(*patch.threads));
  if (patch.paused) say("paused", *patch.paused ? "true" : "false");
  return out;
}

JsonNode call_node(const Call& call) {
  JsonNode node = JsonNode::object();
  node.add("method") = JsonNode::of(call.method);
  node.add("message") = message_node(call.message_json);
  if (!call.proto.empty()) node.add("proto") = JsonNode::of(call.proto);
  if (!call.descriptor_set.empty()) node.add("descriptor_set") = JsonNode::of(call.descriptor_set);
  node.add("timeout") = JsonNode::of(format_duration(call.timeout));
  node.add("compress") = JsonNode::of(call.compress);
  node.add("metadata") = metadata_node(call.metadata);
  return node;
}

JsonNode load_node(const Load& load) {
  JsonNode node = JsonNode::object();
  node.add("connections") = JsonNode::of(load.connections);
  node.add("calls_per_loop") = JsonNode::of(load.calls_per_loop);
  node.add("pause") = JsonNode::of(format_duration(load.pause));
  return node;
}

JsonNode patch_node(const ParameterPatch& patch) {
  JsonNode root = JsonNode::object();
  const auto put = [&](const char* name, const char* key, JsonNode value) {
    group(root, name).add(key) = std::move(value);
  };
  if (patch.target_url) put("target", "url", JsonNode::of(*patch.target_url));
  if (patch.method) put("call", "method", JsonNode::of(*patch.method));
  if (patch.message_json) put("call", "message", message_node(*patch.message_json));
  if (patch.timeout) put("call", "timeout", JsonNode::of(format_duration(*patch.timeout)));
  if (patch.compress) put("call", "compress", JsonNode::of(*patch.compress));
  if (patch.metadata) put("call", "metadata", metadata_node(*patch.metadata));
  if (patch.connections) put("load", "connections", JsonNode::of(*patch.connections));
  if (patch.calls_per_loop) put("load", "calls_per_loop", JsonNode::of(*patch.calls_per_loop));
  if (patch.pause) put("load", "pause", JsonNode::of(format_duration(*patch.pause)));
  if (patch.threads) put("agents", "threads", JsonNode::of(std::uint64_t{*patch.threads}));
  if (patch.paused) root.add("paused") = JsonNode::of(*patch.paused);
  return root;
}

std::string to_json(const ParameterPatch& patch) { return compact_json(patch_node(patch)); }

std::string to_json(const Parameters& parameters) {
  JsonNode root = patch_node(everything_of(parameters));
  group(root, "call") = call_node(parameters.call);
  group(root, "load") = load_node(parameters.load);
  return compact_json(root);
}

Result<ParameterPatch> patch_from_json(std::string_view text) {
  JsonNode root;
  return read_stored(text, root);
}

Result<Parameters> parameters_from_json(std::string_view text) {
  JsonNode root;
  const auto patch = read_stored(text, root);
  if (!patch) return patch.error();
  if (!is_complete(*patch)) return invalid("stored parameters: some are missing");
  Parameters parameters = patched(Parameters(), *patch);
  const JsonNode& call = *root.find("call");
  for (const auto& [key, out] : {std::pair{"proto", &parameters.call.proto},
                                 std::pair{"descriptor_set", &parameters.call.descriptor_set}}) {
    const JsonNode* node = call.find(key);
    if (node != nullptr && node->as<std::string>() != nullptr) *out = *node->as<std::string>();
  }
  return parameters;
}

}  // namespace spate
