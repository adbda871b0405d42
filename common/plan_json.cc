#include "common/plan_json.h"

#include <algorithm>

#include "common/json_tree.h"
#include "common/patch_json.h"
#include "common/plan_keys.h"
#include "common/plan_reader.h"
#include "common/threshold.h"
#include "common/units.h"

namespace spate {
namespace {

constexpr std::size_t kMaxPlanBytes = 2 * 1024 * 1024;  // fits one message of the control plane

void set_origin(JsonNode& node, const std::string& origin) {
  node.origin = origin;
  node.line = 0;
  for (JsonNode& child : node.children) set_origin(child, origin);
}

// "target": "local" and "agents": 4 are short for objects; an override may go inside.
void unfold_short_form(const std::string& key, JsonNode& node) {
  const char* inner = key == "target" && node.as<std::string>() != nullptr     ? "url"
                      : key == "agents" && node.as<std::uint64_t>() != nullptr ? "count"
                                                                               : nullptr;
  if (inner == nullptr) return;
  JsonNode object;
  object.kind = JsonNode::Kind::object;
  object.line = node.line;
  object.origin = node.origin;
  object.add(inner) = std::move(node);
  node = std::move(object);
}

// The child `step` of `node`, made if an object lacks it; nullptr and `why` if there cannot be one.
JsonNode* descend(JsonNode& node, const std::string& step, const std::string& origin,
                  std::string& why) {
  if (node.is_array()) {
    const bool number =
        !step.empty() && step.size() < 7 &&
        std::all_of(step.begin(), step.end(), [](char c) { return c >= '0' && c <= '9'; });
    const std::size_t index = number ? std::stoul(step) : node.children.size();
    if (index < node.children.size()) return &node.children[index];
    why = "\"" + step + "\" is not in the list; its entries are 0 to " +
          std::to_string(static_cast<long long>(node.children.size()) - 1);
    return nullptr;
  }
  if (!node.is_object()) {
    why = "nothing can be set at \"" + step + "\" inside " + node.kind_name();
    return nullptr;
  }
  if (JsonNode* child = node.find(step)) return child;
  JsonNode& child = node.add(step);
  child.kind = JsonNode::Kind::object;
  child.origin = origin;
  return &child;
}

// Applies "path=value". Returns what is wrong with it, or "".
std::string apply_override(JsonNode& root, const std::string& text, const std::string& origin) {
  const std::size_t equals = text.find('=');
  if (equals == text.npos || equals == 0)
    return "write path=value, for example load.connections=400";
  std::string path = text.substr(0, equals);
  JsonNode value;
  JsonError ignored;
  if (!parse_json_tree(std::string_view(text).substr(equals + 1), value, ignored)) {
    value = JsonNode();
    value.scalar = text.substr(equals + 1);
  }
  set_origin(value, origin);
  JsonNode* node = &root;
  while (true) {
    const std::size_t dot = path.find('.');
    const std::string step = path.substr(0, dot);
    std::string why;
    if (step.empty()) return "the path has an empty part";
    node = descend(*node, step, origin, why);
    if (node == nullptr) return why;
    if (dot == path.npos) break;
    unfold_short_form(step, *node);
    path.erase(0, dot + 1);
  }
  *node = std::move(value);
  return "";
}

JsonNode phase_node(const Phase& phase) {
  JsonNode node = JsonNode::object();
  node.add("name") = JsonNode::of(phase.name);
  node.add("for") = JsonNode::of(format_duration(phase.length));
  node.add("measured") = JsonNode::of(phase.measured);
  node.add("load") = load_node(phase.load);
  return node;
}

JsonNode thresholds_node(const std::vector<Threshold>& thresholds) {
  JsonNode node = JsonNode::object();
  for (const Threshold& t : thresholds) {
    const std::string metric(name(t.metric));
    JsonNode* list = node.find(metric);
    if (list == nullptr) {
      list = &node.add(metric);
      *list = JsonNode::list();
    }
    list->children.push_back(JsonNode::of(t.text.substr(metric.size() + 1)));
  }
  return node;
}

JsonNode rotation_node(const Rotation& rotation) {
  JsonNode sets = JsonNode::list();
  for (const Rotation::Set& set : rotation.sets) {
    JsonNode node = JsonNode::object();
    node.add("name") = JsonNode::of(set.name);
    const JsonNode patch = patch_node(set.patch);
    for (std::size_t i = 0; i < patch.keys.size(); ++i) node.add(patch.keys[i]) = patch.children[i];
    sets.children.push_back(std::move(node));
  }
  JsonNode node = JsonNode::object();
  node.add("every") = JsonNode::of(format_duration(rotation.every));
  node.add("across") = JsonNode::of(rotation.across == Rotation::Across::agents ? "agents" : "run");
  node.add("guard") = JsonNode::of(format_duration(rotation.guard));
  if (!rotation.at.empty()) {
    node.add("at") = JsonNode::of(rotation.at);
    node.add("zone") = JsonNode::of(rotation.zone);
    if (!rotation.zone_rules.empty()) node.add("zone_rules") = JsonNode::of(rotation.zone_rules);
  }
  node.add("sets") = std::move(sets);
  return node;
}

}  // namespace

std::string PlanProblem::to_string(std::string_view file) const {
  if (path.rfind("--", 0) == 0 || file.empty()) return path + ": " + text;
  std::string out(file);
  if (line > 0) out += ":" + std::to_string(line);
  return out + ": " + (path.empty() ? "" : path + ": ") + text;
}

PlanOrProblems parse_plan(std::string_view text, const std::vector<std::string>& overrides,
                          Duration measured_for) {
  PlanOrProblems result;
  if (text.size() > kMaxPlanBytes) {
    result.problems.push_back({"", 0, "a plan is at most " + format_size(kMaxPlanBytes) + " long"});
    return result;
  }
  JsonNode root;
  JsonError error;
  if (!parse_json_tree(text, root, error)) {
    result.problems.push_back({"", error.line, error.text});
    return result;
  }
  for (const std::string& text_of_override : overrides) {
    const std::string origin = "--set " + text_of_override.substr(0, text_of_override.find('='));
    const std::string why = apply_override(root, text_of_override, origin);
    if (!why.empty()) result.problems.push_back({origin, 0, why});
  }
  PlanReader(result.plan, result.problems, measured_for).read(root);
  // What has no line comes last.
  std::stable_sort(result.problems.begin(), result.problems.end(),
                   [](const PlanProblem& a, const PlanProblem& b) {
                     return a.line != 0 && (b.line == 0 || a.line < b.line);
                   });
  return result;
}

std::string to_json(const Plan& plan) {
  JsonNode target = JsonNode::object();
  target.add("url") = JsonNode::of(plan.target.url);
  if (!plan.target.probe.empty() && !plan.target.is_local())
    target.add("probe") = JsonNode::of(plan.target.probe);
  JsonNode agents = JsonNode::object();
  agents.add("count") = JsonNode::of(std::uint64_t{plan.agents});
  agents.add("threads") = JsonNode::of(std::uint64_t{plan.threads});
  agents.add("redistribute") =
      JsonNode::of(plan.redistribute == Redistribute::never ? "never" : "after_fence");
  JsonNode phases = JsonNode::list();
  for (const Phase& phase : plan.phases) phases.children.push_back(phase_node(phase));

  JsonNode root = JsonNode::object();
  root.add("name") = JsonNode::of(plan.name);
  if (!plan.description.empty()) root.add("description") = JsonNode::of(plan.description);
  root.add("target") = std::move(target);
  root.add("call") = call_node(plan.call);
  root.add("agents") = std::move(agents);
  root.add("interval") = JsonNode::of(format_duration(plan.interval));
  root.add("drain") = JsonNode::of(format_duration(plan.drain));
  root.add("seed") = JsonNode::of(plan.seed);
  root.add("phases") = std::move(phases);
  if (plan.rotation) root.add("rotate") = rotation_node(*plan.rotation);
  root.add("on_controller_loss") = JsonNode::of(name(plan.on_controller_loss));
  if (plan.on_controller_loss == OnControllerLoss::go_on)
    root.add("controller_loss_limit") = JsonNode::of(format_duration(plan.controller_loss_limit));
  root.add("thresholds") = thresholds_node(plan.thresholds);
  return compact_json(root);
}

std::vector<std::string> known_plan_keys() {
  std::vector<std::string> keys;
  for (const auto& object : known_plan_objects()) {
    for (const std::string& key : object.keys) {
      keys.push_back(object.name.empty() ? key : std::string(object.name) + "." + key);
    }
  }
  return keys;
}

namespace {

// Insertions, deletions, changes, and swaps of neighbours (optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  std::string best;
  std::size_t best_distance = word.size() / 3 + 1;
  if (word.size() > 64) return best;
  for (const std::string& candidate : known) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace spate
