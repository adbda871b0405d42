#include "common/plan_reader.h"

#include <algorithm>

#include "common/endpoint.h"
#include "common/rotation.h"
#include "common/threshold.h"
#include "common/time_zone.h"
#include "common/timeline.h"
#include "common/units.h"

// Each read_…() takes one object of the plan, reports what is wrong with it, and goes on with the
// default, so that one mistake does not hide the next.

namespace spate {
namespace {

using namespace std::chrono_literals;

constexpr Duration kDay = 24h;
constexpr std::size_t kMaxSets = 1'000;
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
  plan_.set_measured_length(measured_for_);
  read_rotation(root);
  read_controller_loss(root);
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
      has_local_target = true;
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
          is_local_url(*text) ? Result<TargetUrl>(TargetUrl()) : parse_target_url(*text);
      if (!parsed) report(*url, "/target/url", parsed.error().message);
      plan_.target.url = *text;
      has_local_target = is_local_url(*text);
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
  const auto moves = choice_of(*node, "/agents", "redistribute", {"never", "after_fence"});
  if (moves) plan_.redistribute = *moves == 0 ? Redistribute::never : Redistribute::after_fence;
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

void PlanReader::read_rotation(const JsonNode& root) {
  const JsonNode* node = root.find("rotate");
  if (node == nullptr || !check_object(*node, "/rotate", "rotate")) return;
  Rotation rotation;
  if (const JsonNode* every = node->find("every")) {
    rotation.every =
        duration_of(*every, "/rotate/every", {1ms, 400 * kDay}).value_or(Duration::zero());
    if (rotation.every > Duration::zero() && rotation.every < plan_.interval)
      report(*every, "/rotate/every",
             "is shorter than the interval of " + format_duration(plan_.interval) +
                 " in which results are reported");
  } else {
    report(*node, "/rotate/every", "missing; how long does each set hold? For example \"24h\"");
  }
  if (const auto across = choice_of(*node, "/rotate", "across", {"run", "agents"}))
    rotation.across = *across == 0 ? Rotation::Across::run : Rotation::Across::agents;
  read_duration(*node, "/rotate", "guard", {0ns, kDay}, rotation.guard);
  if (rotation.every > Duration::zero() && rotation.guard >= rotation.every)
    report(*node->find("guard"), "/rotate/guard",
           "must be shorter than `every`, or nothing would be measured");
  read_sets(*node, rotation);
  read_wall_clock(*node, rotation);
  plan_.rotation = std::move(rotation);
  // The rest can be judged only if all of the plan is good.
  if (has_problems()) return;
  const auto timeline = planned_timeline(plan_, 0);
  if (!timeline) report(*node, "/rotate", timeline.error().message);
}

void PlanReader::read_sets(const JsonNode& node, Rotation& rotation) {
  const JsonNode* sets = node.find("sets");
  if (sets == nullptr) {
    report(node, "/rotate/sets",
           "missing; write two sets or more, for example [{}, {\"call\": {\"compress\": true}}]");
    return;
  }
  if (!sets->is_array() || sets->children.size() < 2 || sets->children.size() > kMaxSets) {
    report(*sets, "/rotate/sets",
           "must be a list of 2 to " + std::to_string(kMaxSets) + " sets of parameters");
    return;
  }
  for (std::size_t i = 0; i < sets->children.size(); ++i)
    read_set(sets->children[i], "/rotate/sets/" + std::to_string(i), rotation);
}

void PlanReader::read_set(const JsonNode& node, const std::string& path, Rotation& rotation) {
  Rotation::Set set;
  set.name = "set-" + std::to_string(rotation.sets.size() + 1);
  if (!node.is_object()) {
    report(node, path, std::string("must be an object {…}, not ") + node.kind_name());
    return;
  }
  if (const JsonNode* name = node.find("name")) {
    set.name = name_of(*name, path + "/name").value_or(set.name);
    const bool taken = std::any_of(rotation.sets.begin(), rotation.sets.end(),
                                   [&](const Rotation::Set& s) { return s.name == set.name; });
    if (taken) report(*name, path + "/name", quoted(set.name) + " is the name of an earlier set");
  }
  set.patch = read_patch(node, path, "from set to set", {"name"});
  const JsonNode* load = node.find("load");
  if (load != nullptr && load->is_object()) {
    const JsonNode* calls = load->find("calls_per_loop");
    const JsonNode* pause = load->find("pause");
    std::uint64_t fewest = ~std::uint64_t{0};
    for (const Phase& phase : plan_.phases) fewest = std::min(fewest, phase.load.calls_per_loop);
    settle_pause(calls, pause, path + "/load/pause", fewest, set.patch);
  }
  rotation.sets.push_back(std::move(set));
}

void PlanReader::read_wall_clock(const JsonNode& node, Rotation& rotation) {
  const JsonNode* at = node.find("at");
  const JsonNode* zone = node.find("zone");
  const JsonNode* rules = node.find("zone_rules");
  if (at == nullptr) {
    for (const JsonNode* lone : {zone, rules}) {
      if (lone != nullptr)
        report(*lone, lone == zone ? "/rotate/zone" : "/rotate/zone_rules",
               "goes with `at`; without it the rotation is by elapsed time");
    }
    return;
  }
  rotation.at = text_of(*at, "/rotate/at").value_or("00:00");
  if (const auto minutes = minutes_of(rotation.at); !minutes)
    report(*at, "/rotate/at", minutes.error().message);
  const char* objection = objection_to_wall_clock(rotation.every);
  if (rotation.every > Duration::zero() && *objection != '\0')
    report(*node.find("every"), "/rotate/every", objection);
  if (zone != nullptr) rotation.zone = text_of(*zone, "/rotate/zone").value_or("UTC");
  if (rules != nullptr) {
    rotation.zone_rules = text_of(*rules, "/rotate/zone_rules").value_or("");
    const auto read = TimeZone::from_rules(rotation.zone_rules);
    if (!read) report(*rules, "/rotate/zone_rules", read.error().message);
  } else if (rotation.zone != "UTC") {
    const auto found = load_zone(rotation.zone);
    if (!found) report(*zone, "/rotate/zone", found.error().message);
    if (found) rotation.zone_rules = found->rules();
  }
}

void PlanReader::read_controller_loss(const JsonNode& root) {
  const auto loss = choice_of(root, "", "on_controller_loss", {"continue", "drain", "stop"});
  if (loss) plan_.on_controller_loss = static_cast<OnControllerLoss>(*loss);
  const JsonNode* limit = root.find("controller_loss_limit");
  if (limit == nullptr) return;
  read_duration(root, "", "controller_loss_limit", {1s, 400 * kDay}, plan_.controller_loss_limit);
  if (plan_.on_controller_loss != OnControllerLoss::go_on)
    report(*limit, "/controller_loss_limit", "is for \"on_controller_loss\": \"continue\" only");
}

std::optional<std::size_t> PlanReader::choice_of(const JsonNode& parent,
                                                 const std::string& parent_path,
                                                 const std::string& key,
                                                 const std::vector<std::string>& words) {
  const JsonNode* node = parent.find(key);
  if (node == nullptr) return std::nullopt;
  const std::string path = parent_path + "/" + key;
  const auto text = text_of(*node, path);
  if (!text) return std::nullopt;
  const auto found = std::find(words.begin(), words.end(), *text);
  if (found != words.end()) return static_cast<std::size_t>(found - words.begin());
  std::string known;
  for (const std::string& word : words) known += (known.empty() ? "" : " or ") + quoted(word);
  report(*node, path, "must be " + known + ", not " + quoted(*text));
  return std::nullopt;
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
