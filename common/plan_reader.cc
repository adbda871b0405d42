#include "common/plan_reader.h"

#include <algorithm>
#include <array>
#include <set>

#include "common/endpoint.h"
#include "common/text.h"
#include "common/threshold.h"
#include "common/units.h"

// Each read_…() takes one object of the plan, reports what is wrong with it, and goes on with the
// default, so that one mistake does not hide the next.

namespace spate {
namespace {

using namespace std::chrono_literals;

constexpr Duration kDay = 24h;
constexpr std::size_t kMaxNameBytes = 64;
constexpr std::size_t kMaxTextBytes = 4096;
constexpr std::size_t kMaxMetadataBytes = 8 * 1024;
constexpr const char* kLocalMethod = "spate.target.v1.Calls/Call";
constexpr const char* kLocalMessage = R"({"call":{"echo":1}})";

std::string quoted(std::string_view text) { return "\"" + printable_utf8(text, 80) + "\""; }

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

std::string number_text(const JsonNode& node) { return compact_json(node); }

}  // namespace

const std::vector<PlanReader::KnownObject>& PlanReader::known_objects() {
  static const std::vector<KnownObject> kObjects = {
      {"",
       {"$schema", "name", "description", "target", "call", "load", "agents", "interval", "drain",
        "seed", "phases", "thresholds"}},
      {"target", {"url", "probe"}},
      {"call", {"method", "message", "proto", "descriptor_set", "timeout", "metadata"}},
      {"load", {"model", "connections", "calls_per_loop", "pause"}},
      {"agents", {"count", "threads"}},
      {"phases[]", {"name", "for", "measured", "load"}},
      {"phases[].load", {"connections", "calls_per_loop", "pause"}},
      {"thresholds", {"latency", "service_time", "send_lag", "errors", "requests"}}};
  return kObjects;
}

void PlanReader::read(const JsonNode& root) {
  find_repeated_keys(root, "");
  if (!check_object(root, "", "")) return;
  if (const JsonNode* node = root.find("$schema")) text_of(*node, "/$schema");
  if (const JsonNode* node = root.find("name")) {
    read_name(*node, "/name", plan_.name);
  } else {
    report_missing("/name", "missing; a plan needs a name, for example \"my-flood\"");
  }
  if (const JsonNode* node = root.find("description")) {
    plan_.description = text_of(*node, "/description").value_or("");
  }
  read_target(root);
  read_call(root);
  Load base;
  if (const JsonNode* node = root.find("load")) base = read_load(*node, "/load", "load", base);
  read_agents(root);
  read_duration(root, "", "interval", {100ms, 1h}, plan_.interval);
  read_duration(root, "", "drain", {0ns, 10min}, plan_.drain);
  if (const JsonNode* node = root.find("seed")) {
    plan_.seed = count_of(*node, "/seed", 0, ~std::uint64_t{0}).value_or(0);
  }
  read_phases(root, base);
  read_thresholds(root);
}

// ---- mistakes

void PlanReader::report(const JsonNode& node, const std::string& path, std::string text) {
  if (!node.origin.empty()) {
    problems_.push_back({node.origin, 0, std::move(text)});
  } else {
    problems_.push_back({path.empty() ? "/" : path, node.line, std::move(text)});
  }
}

void PlanReader::report_missing(const std::string& path, std::string text) {
  problems_.push_back({path, 0, std::move(text)});
}

void PlanReader::find_repeated_keys(const JsonNode& node, const std::string& path) {
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

bool PlanReader::check_object(const JsonNode& node, const std::string& path,
                              std::string_view known_as) {
  if (!node.is_object()) {
    report(node, path, std::string("must be an object {…}, not ") + node.kind_name());
    return false;
  }
  const auto& objects = known_objects();
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

std::optional<std::string> PlanReader::text_of(const JsonNode& node, const std::string& path) {
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

std::optional<std::uint64_t> PlanReader::count_of(const JsonNode& node, const std::string& path,
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

std::optional<Duration> PlanReader::duration_of(const JsonNode& node, const std::string& path,
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

void PlanReader::read_duration(const JsonNode& parent, const std::string& parent_path,
                               std::string_view key, Range range, Duration& out) {
  if (const JsonNode* node = parent.find(key)) {
    out = duration_of(*node, parent_path + "/" + std::string(key), range).value_or(out);
  }
}

void PlanReader::read_name(const JsonNode& node, const std::string& path, std::string& out) {
  const auto text = text_of(node, path);
  if (!text) return;
  const bool good = !text->empty() && text->size() <= kMaxNameBytes &&
                    std::all_of(text->begin(), text->end(),
                                [](char c) { return is_lower(c) || is_digit(c) || c == '-'; });
  if (!good) {
    report(node, path,
           quoted(*text) + " is not a name; use 1 to 64 lower-case letters, digits and '-'");
    return;
  }
  out = *text;
}

// ---- the parts of a plan

void PlanReader::read_target(const JsonNode& root) {
  const JsonNode* node = root.find("target");
  if (node == nullptr) {
    report_missing(
        "/target",
        "missing; write \"local\" for the bundled target, or {\"url\": \"grpc://HOST:PORT\"}");
    return;
  }
  if (const auto* text = node->as<std::string>()) {
    if (*text == "local") {
      plan_.target.url = *text;
    } else {
      report(
          *node, "/target",
          "must be \"local\" or an object {\"url\": \"grpc://HOST:PORT\"}, not " + quoted(*text));
    }
    return;
  }
  if (!check_object(*node, "/target", "target")) return;
  if (const JsonNode* url = node->find("url")) {
    if (const auto text = text_of(*url, "/target/url")) {
      const auto parsed =
          *text == "local" ? Result<TargetUrl>(TargetUrl()) : parse_target_url(*text);
      if (!parsed) report(*url, "/target/url", parsed.error().message);
      plan_.target.url = *text;
    }
  } else {
    report(*node, "/target/url", "missing; write for example \"grpc://10.0.0.100:7000\"");
  }
  const JsonNode* probe = node->find("probe");
  if (probe == nullptr) return;
  const auto text = text_of(*probe, "/target/probe");
  if (!text || text->empty()) return;
  plan_.target.probe = *text;
  const auto parsed = parse_endpoint(*text);
  if (!parsed) {
    report(*probe, "/target/probe", parsed.error().message);
  } else if (parsed->port == 0) {
    report(*probe, "/target/probe", "port 0 is no port to ask");
  } else if (plan_.target.is_local()) {
    report(*probe, "/target/probe", "the local target has a probe of its own; leave this away");
  }
}

void PlanReader::read_call(const JsonNode& root) {
  Call& call = plan_.call;
  if (plan_.target.is_local()) call.method = kLocalMethod;
  const JsonNode* node = root.find("call");
  if (node == nullptr) {
    call.message_json = plan_.target.is_local() ? kLocalMessage : "{}";
    if (!plan_.target.is_local() && !plan_.target.url.empty()) {
      report_missing("/call",
                     "missing; write {\"method\": \"package.Service/Method\", \"message\": {…}}");
    }
    return;
  }
  call.message_json = "{}";
  if (!check_object(*node, "/call", "call")) return;
  if (const JsonNode* method = node->find("method")) {
    if (const auto text = text_of(*method, "/call/method")) {
      const std::size_t slash = text->find('/');
      const bool good = slash != text->npos && is_dotted_identifier(text->substr(0, slash)) &&
                        is_dotted_identifier(text->substr(slash + 1)) &&
                        text->find('.', slash) == text->npos;
      if (!good)
        report(*method, "/call/method",
               quoted(*text) + " is not a method; write package.Service/Method");
      call.method = *text;
    }
  } else if (call.method.empty()) {
    report(*node, "/call/method", "missing; write package.Service/Method");
  }
  if (const JsonNode* message = node->find("message")) {
    if (!message->is_object()) {
      report(*message, "/call/message",
             std::string("must be a JSON object {…}, not ") + message->kind_name());
    } else {
      call.message_json = compact_json(*message);
      if (call.message_json.size() > kMaxMessageBytes)
        report(*message, "/call/message", "is longer than 4 MiB");
    }
  }
  for (const auto& [key, out] :
       {std::pair{"proto", &call.proto}, std::pair{"descriptor_set", &call.descriptor_set}}) {
    if (const JsonNode* file = node->find(key))
      *out = text_of(*file, std::string("/call/") + key).value_or("");
  }
  if (!call.proto.empty() && !call.descriptor_set.empty()) {
    report(*node->find("descriptor_set"), "/call/descriptor_set",
           "proto and descriptor_set are both given; keep one");
  }
  read_duration(*node, "/call", "timeout", {1ms, 1h}, call.timeout);
  if (const JsonNode* metadata = node->find("metadata")) read_metadata(*metadata, "/call/metadata");
}

void PlanReader::read_metadata(const JsonNode& node, const std::string& path) {
  if (!node.is_object()) {
    report(
        node, path,
        std::string("must be an object of texts, {\"key\": \"value\"}, not ") + node.kind_name());
    return;
  }
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < node.keys.size(); ++i) {
    const std::string& key = node.keys[i];
    const JsonNode& child = node.children[i];
    const std::string child_path = path + "/" + key;
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
    plan_.call.metadata.emplace_back(key, *value);
  }
  if (bytes > kMaxMetadataBytes) report(node, path, "is larger than 8 KiB");
}

Load PlanReader::read_load(const JsonNode& node, const std::string& path, std::string_view known_as,
                           Load base) {
  Load load = base;
  if (!check_object(node, path, known_as)) return load;
  if (const JsonNode* model = known_as == "load" ? node.find("model") : nullptr) {
    const auto text = text_of(*model, path + "/model");
    if (text && *text == "open") {
      report(*model, path + "/model", "the open model is not available yet; use \"closed\"");
    } else if (text && *text != "closed") {
      report(*model, path + "/model", quoted(*text) + " is not a model; use \"closed\"");
    }
  }
  if (const JsonNode* connections = node.find("connections")) {
    load.connections = count_of(*connections, path + "/connections", 1, kMaxConnections)
                           .value_or(load.connections);
  }
  const JsonNode* calls = node.find("calls_per_loop");
  const JsonNode* pause = node.find("pause");
  bool calls_known = true;
  if (calls != nullptr) {
    const auto value = count_of(*calls, path + "/calls_per_loop", 0, 1'000'000'000);
    calls_known = value.has_value();
    load.calls_per_loop = value.value_or(load.calls_per_loop);
    // Without loops there is nothing to pause between, also if the pause came from the plan's load.
    if (load.calls_per_loop == 0) load.pause = Duration::zero();
  }
  read_duration(node, path, "pause", {0ns, kDay}, load.pause);
  if (pause != nullptr && load.pause > Duration::zero() && load.calls_per_loop == 0 &&
      calls_known) {
    report(*pause, path + "/pause", "a pause needs calls_per_loop: after how many calls?");
  }
  return load;
}

void PlanReader::read_agents(const JsonNode& root) {
  const JsonNode* node = root.find("agents");
  if (node == nullptr) return;
  const auto read = [&](const JsonNode& number, const std::string& path, std::uint32_t most,
                        std::uint32_t& out) {
    out = static_cast<std::uint32_t>(count_of(number, path, 1, most).value_or(out));
  };
  if (node->as<std::uint64_t>() != nullptr || node->as<std::int64_t>() != nullptr ||
      node->as<double>() != nullptr) {
    read(*node, "/agents", kMaxAgents, plan_.agents);
    return;
  }
  if (!check_object(*node, "/agents", "agents")) return;
  if (const JsonNode* count = node->find("count"))
    read(*count, "/agents/count", kMaxAgents, plan_.agents);
  if (const JsonNode* threads = node->find("threads")) {
    read(*threads, "/agents/threads", kMaxThreadsPerAgent, plan_.threads);
  }
}

void PlanReader::read_phases(const JsonNode& root, const Load& base) {
  const JsonNode* node = root.find("phases");
  if (node == nullptr) {
    plan_.phases = {{"flood", 30s, true, base}};
    return;
  }
  if (!node->is_array() || node->children.empty() || node->children.size() > kMaxPhases) {
    report(*node, "/phases",
           "must be a list of 1 to " + std::to_string(kMaxPhases) +
               " phases, for example [{\"name\": \"flood\", \"for\": \"30s\"}]");
    return;
  }
  Duration total{};
  for (std::size_t i = 0; i < node->children.size(); ++i) {
    read_phase(node->children[i], "/phases/" + std::to_string(i), base);
    total = std::min(total + plan_.phases.back().length, 401 * kDay);  // must not overflow
  }
  if (total > 400 * kDay) report(*node, "/phases", "last longer than 400 days together");
  const bool measured = std::any_of(plan_.phases.begin(), plan_.phases.end(),
                                    [](const Phase& p) { return p.measured; });
  if (!measured) report(*node, "/phases", "no phase is measured, so there would be no result");
}

void PlanReader::read_phase(const JsonNode& node, const std::string& path, const Load& base) {
  Phase phase;
  phase.name = "phase-" + std::to_string(plan_.phases.size() + 1);
  phase.load = base;
  if (check_object(node, path, "phases[]")) {
    if (const JsonNode* name = node.find("name")) {
      read_name(*name, path + "/name", phase.name);
      const bool taken = std::any_of(plan_.phases.begin(), plan_.phases.end(),
                                     [&](const Phase& p) { return p.name == phase.name; });
      if (taken)
        report(*name, path + "/name", quoted(phase.name) + " is the name of an earlier phase");
    }
    if (node.find("for") == nullptr)
      report(node, path + "/for", "missing; how long does this phase last?");
    read_duration(node, path, "for", {10ms, 400 * kDay}, phase.length);
    if (const JsonNode* measured = node.find("measured")) {
      if (const auto* value = measured->as<bool>()) {
        phase.measured = *value;
      } else {
        report(*measured, path + "/measured",
               std::string("must be true or false, not ") + measured->kind_name());
      }
    }
    if (const JsonNode* load = node.find("load")) {
      phase.load = read_load(*load, path + "/load", "phases[].load", base);
    }
  }
  plan_.phases.push_back(std::move(phase));
}

void PlanReader::read_thresholds(const JsonNode& root) {
  using Metric = Threshold::Metric;
  const JsonNode* node = root.find("thresholds");
  if (node == nullptr || !check_object(*node, "/thresholds", "thresholds")) return;
  for (const Metric metric : {Metric::latency, Metric::service_time, Metric::send_lag,
                              Metric::errors, Metric::requests}) {
    const JsonNode* list = node->find(name(metric));
    if (list == nullptr) continue;
    const std::string path = "/thresholds/" + std::string(name(metric));
    if (!list->is_array()) {
      report(*list, path,
             std::string("must be a list of texts, for example [\"p(99)<50ms\"], not ") +
                 list->kind_name());
      continue;
    }
    for (std::size_t i = 0; i < list->children.size(); ++i) {
      const JsonNode& item = list->children[i];
      const std::string item_path = path + "/" + std::to_string(i);
      const auto text = text_of(item, item_path);
      if (!text) continue;
      auto threshold = parse_threshold(metric, *text);
      if (threshold) {
        plan_.thresholds.push_back(std::move(*threshold));
      } else {
        report(item, item_path, threshold.error().message);
      }
    }
  }
}

}  // namespace spate
