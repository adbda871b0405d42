#include "common/plan_reader.h"

#include <algorithm>

#include "common/endpoint.h"
#include "common/threshold.h"

// Each read_…() takes one object of the plan, reports what is wrong with it, and goes on with the
// default, so that one mistake does not hide the next.

namespace spate {
namespace {

using namespace std::chrono_literals;

constexpr Duration kDay = 24h;
constexpr const char* kLocalMethod = "spate.target.v1.Calls/Call";
constexpr const char* kLocalMessage = R"({"call":{"echo":1}})";

}  // namespace

void PlanReader::read(const JsonNode& root) {
  find_repeated_keys(root, "");
  if (!check_object(root, "", "")) return;
  if (const JsonNode* node = root.find("$schema")) text_of(*node, "/$schema");
  if (const JsonNode* node = root.find("name")) {
    plan_.name = name_of(*node, "/name").value_or("");
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
  if (call.method.empty() && node->find("method") == nullptr)
    report(*node, "/call/method", "missing; write package.Service/Method");
  ParameterPatch patch;
  read_group(*node, "/call", "call", patch);
  Parameters parameters;
  parameters.call = std::move(call);
  call = patched(std::move(parameters), patch).call;
  for (const auto& [key, out] :
       {std::pair{"proto", &call.proto}, std::pair{"descriptor_set", &call.descriptor_set}}) {
    if (const JsonNode* file = node->find(key))
      *out = text_of(*file, std::string("/call/") + key).value_or("");
  }
  if (!call.proto.empty() && !call.descriptor_set.empty()) {
    report(*node->find("descriptor_set"), "/call/descriptor_set",
           "proto and descriptor_set are both given; keep one");
  }
}

Load PlanReader::read_load(const JsonNode& node, const std::string& path, std::string_view known_as,
                           Load base) {
  if (!check_object(node, path, known_as)) return base;
  if (const JsonNode* model = known_as == "load" ? node.find("model") : nullptr) {
    const auto text = text_of(*model, path + "/model");
    if (text && *text == "open") {
      report(*model, path + "/model", "the open model is not available yet; use \"closed\"");
    } else if (text && *text != "closed") {
      report(*model, path + "/model", quoted(*text) + " is not a model; use \"closed\"");
    }
  }
  ParameterPatch patch;
  read_group(node, path, "load", patch);
  settle_pause(node.find("calls_per_loop"), node.find("pause"), path + "/pause",
               base.calls_per_loop, patch);
  Parameters parameters;
  parameters.load = base;
  return patched(std::move(parameters), patch).load;
}

void PlanReader::read_agents(const JsonNode& root) {
  const JsonNode* node = root.find("agents");
  if (node == nullptr) return;
  const auto read_count = [&](const JsonNode& number, const std::string& path) {
    plan_.agents =
        static_cast<std::uint32_t>(count_of(number, path, 1, kMaxAgents).value_or(plan_.agents));
  };
  if (node->as<std::uint64_t>() != nullptr || node->as<std::int64_t>() != nullptr ||
      node->as<double>() != nullptr) {
    read_count(*node, "/agents");
    return;
  }
  if (!check_object(*node, "/agents", "agents")) return;
  if (const JsonNode* count = node->find("count")) read_count(*count, "/agents/count");
  ParameterPatch patch;
  read_group(*node, "/agents", "agents", patch);
  plan_.threads = patch.threads.value_or(plan_.threads);
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
      phase.name = name_of(*name, path + "/name").value_or(phase.name);
      const bool taken = std::any_of(plan_.phases.begin(), plan_.phases.end(),
                                     [&](const Phase& p) { return p.name == phase.name; });
      if (taken)
        report(*name, path + "/name", quoted(phase.name) + " is the name of an earlier phase");
    }
    if (node.find("for") == nullptr)
      report(node, path + "/for", "missing; how long does this phase last?");
    read_duration(node, path, "for", {10ms, 400 * kDay}, phase.length);
    if (const JsonNode* measured = node.find("measured"))
      phase.measured = bool_of(*measured, path + "/measured").value_or(true);
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
