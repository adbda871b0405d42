#include "controller/orders.h"

#include <algorithm>
#include <array>

#include "common/endpoint.h"
#include "common/plan_json.h"

namespace spate::controller {
namespace {

void resolve_local(const SubmitOrder& submitted, std::string& url) {
  if (url == kLocalUrl)
    url = submitted.target_url;
  else if (url == kLocalTlsUrl)
    url = submitted.target_tls_url;
}

void resolve_target(const SubmitOrder& submitted, Plan& plan, std::vector<std::string>& problems) {
  if (plan.target.is_local()) {
    if (submitted.target_url.empty()) {
      problems.push_back(
          "/target/url: \"local\" is for `spate run --local` and `spate demo`, which start a "
          "target; "
          "name the target as grpc://HOST:PORT");
      return;
    }
    resolve_local(submitted, plan.target.url);
    if (plan.rotation)
      for (Rotation::Set& set : plan.rotation->sets)
        if (set.patch.target_url) resolve_local(submitted, *set.patch.target_url);
    if (!submitted.target_probe.empty()) plan.target.probe = submitted.target_probe;
  }
  if (const auto url = parse_target_url(plan.target.url); !url) {
    problems.push_back("/target/url: " + url.error().message);
  }
  if (plan.target.probe.empty()) return;
  if (const auto probe = parse_endpoint(plan.target.probe); !probe) {
    problems.push_back("/target/probe: " + probe.error().message);
  }
}

}  // namespace

OrderOrProblems make_order(const SubmitOrder& submitted, std::int64_t wall_ms,
                           std::uint64_t random) {
  OrderOrProblems result;
  PlanOrProblems parsed = parse_plan(submitted.plan, submitted.overrides, submitted.measured_for);
  for (const PlanProblem& problem : parsed.problems)
    result.problems.push_back(problem.to_string("plan"));
  if (!parsed.ok()) return result;
  Plan& plan = parsed.plan;
  resolve_target(submitted, plan, result.problems);
  if (submitted.measured_for < Duration{})
    result.problems.push_back("--for: a run cannot last less than nothing");
  if (submitted.descriptor_set.empty() &&
      (!plan.call.proto.empty() || !plan.call.descriptor_set.empty())) {
    result.problems.push_back(
        "/call: the plan names " +
        (plan.call.proto.empty() ? plan.call.descriptor_set : plan.call.proto) +
        ", but the client has not sent its types");
  }
  if (!result.problems.empty()) return result;
  // 0 means "draw one", so it is not drawn; 53 bits survive every JSON reader.
  if (plan.seed == 0)
    plan.seed = std::max<std::uint64_t>(random & ((std::uint64_t{1} << 53) - 1), 1);

  Run::Order& order = result.order;
  order.id = make_run_id(plan.name, wall_ms, random);
  order.plan = std::move(plan);
  order.plan_text = submitted.plan;
  order.overrides = submitted.overrides;
  order.descriptor_set = submitted.descriptor_set;
  order.wait = submitted.wait > Duration{} ? submitted.wait : kDefaultWait;
  order.wall_ms = wall_ms;
  return result;
}

std::string make_run_id(const std::string& plan_name, std::int64_t wall_ms, std::uint64_t random) {
  constexpr std::string_view kBase32 = "abcdefghijklmnopqrstuvwxyz234567";
  // "2026-11-30T10:26:19Z" -> "20261130-102619"
  std::string time;
  for (const char c : rfc3339(wall_ms)) {
    if (c == 'T') time += '-';
    if (c >= '0' && c <= '9') time += c;
  }
  std::string id = plan_name + "-" + time + "-";
  for (int i = 0; i < 4; ++i) id += kBase32[(random >> (40 + 5 * i)) & 31];
  return id;
}

}  // namespace spate::controller
