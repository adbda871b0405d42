#include "cli/execute.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "cli/descriptors.h"
#include "cli/exit_code.h"
#include "cli/files.h"
#include "cli/follow.h"
#include "cli/interrupt.h"
#include "cli/local_cluster.h"
#include "common/plan_json.h"
#include "common/units.h"
#include "proto/operator.pb.h"

namespace spate::cli {
namespace {

using std::chrono::milliseconds;

void say(const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); }

int refuse(const std::vector<std::string>& problems, int exit_code = kUsage) {
  for (const auto& problem : problems) say(problem);
  say("spate: nothing was started");
  return exit_code;
}

struct Prepared {
  Plan plan;
  std::string descriptor_set;
};

// The plan as it will run, or every reason why not.
std::vector<std::string> prepare(const Execution& execution,
                                 const std::vector<std::string>& overrides, Prepared& out) {
  std::vector<std::string> problems;
  PlanOrProblems parsed =
      parse_plan(execution.plan_text, overrides, execution.measured_for.value_or(Duration{}));
  for (const auto& problem : parsed.problems)
    problems.push_back(problem.to_string(execution.plan_file));
  if (!problems.empty()) return problems;
  out.plan = std::move(parsed.plan);
  auto descriptors = read_descriptors(out.plan.call, execution.plan_file);
  out.descriptor_set = std::move(descriptors.descriptor_set);
  problems = std::move(descriptors.problems);
  if (out.plan.target.is_local() && !execution.local)
    problems.push_back(execution.plan_file +
                       ": /target: the target is \"local\", which only --local starts; to flood "
                       "another one: --set "
                       "target.url=grpc://HOST:PORT");
  if (execution.local && !out.plan.target.is_local() && out.plan.target.url.starts_with("grpcs://"))
    problems.push_back(execution.plan_file +
                       ": /target/url: the agents of --local have certificates for the target of "
                       "--local only; start a controller and "
                       "agents with --ca, --cert and --key (spate pki) and leave --local away");
  return problems;
}

Result<std::unique_ptr<LocalCluster>> start_cluster(const Execution& execution, const Plan& plan) {
  LocalClusterSpec spec;
  spec.store = execution.store;
  spec.agents = plan.agents;
  spec.with_target = plan.target.is_local();
  spec.allow = execution.allow;
  return LocalCluster::start(spec, say);
}

std::string default_report(const std::string& run) {
  return data_directory() + "/reports/" + run + ".html";
}

// Fetches the page and names its place last, which is where people look for it.
void save_report(OperatorClient& client, const Execution& execution, const std::string& run) {
  const std::string path = execution.report.empty() ? default_report(run) : execution.report;
  const auto page = client.report(run, "html");
  const auto written =
      page ? write_file(path, *page, 0644, IfExists::replace) : Result<void>(page.error());
  std::FILE* out = execution.as_json ? stderr : stdout;
  if (written) {
    std::fprintf(out, "report: %s\n", path.c_str());
  } else {
    say("spate: no report: " + written.error().message);
  }
}

int finish(OperatorClient& client, const Execution& execution, const std::string& run,
           const Followed& followed) {
  if (!followed.summary) return followed.exit_code;
  std::string text = execution.as_json ? followed.summary->json : followed.summary->text;
  if (!text.ends_with('\n')) text += '\n';
  if (!execution.as_json) say("");
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
  save_report(client, execution, run);
  return followed.exit_code;
}

int submit_and_follow(OperatorClient& client, const Execution& execution,
                      const ops::v1::SubmitRequest& request, const Plan& plan,
                      LocalCluster* cluster) {
  const auto keep_waiting = [cluster] {
    if (cluster)
      for (const auto& death : cluster->news_of_deaths()) say("spate: " + death);
    return interrupts() == 0 && !(cluster && cluster->controller_has_ended());
  };
  const auto reply = client.submit(request, keep_waiting);
  if (interrupts() > 0) {
    say("spate: left before the run had started");
    return kStopped;
  }
  if (!reply) return fail(reply.error());
  if (!reply->problems().empty())
    return refuse({reply->problems().begin(), reply->problems().end()},
                  reply->exit_code() ? reply->exit_code() : kUsage);
  if (execution.detach) {
    std::printf("%s\n", reply->run().c_str());
    return kPassed;
  }
  say("run " + reply->run());
  const Followed followed = follow(
      client, reply->run(),
      {.stops_run = true,
       .cluster = cluster,
       .reconnect_for = std::max<Duration>(plan.controller_loss_limit, std::chrono::minutes(1))});
  if (cluster && interrupts() > 1) cluster->kill();
  return finish(client, execution, reply->run(), followed);
}

}  // namespace

int execute(const Execution& execution) {
  count_interrupts();
  std::vector<std::string> overrides = execution.overrides;
  if (execution.agents) overrides.push_back(fmt::format("agents.count={}", *execution.agents));
  Prepared prepared;
  if (const auto problems = prepare(execution, overrides, prepared); !problems.empty())
    return refuse(problems);

  ops::v1::SubmitRequest request;
  request.set_plan(execution.plan_text);
  request.mutable_overrides()->Add(overrides.begin(), overrides.end());
  request.set_descriptor_set(prepared.descriptor_set);
  request.set_wait_ms(std::chrono::duration_cast<milliseconds>(execution.wait).count());
  if (execution.measured_for)
    request.set_measured_for_ms(
        std::chrono::duration_cast<milliseconds>(*execution.measured_for).count());

  std::unique_ptr<LocalCluster> cluster;
  ControllerFlags controller = execution.controller;
  if (execution.local) {
    auto started = start_cluster(execution, prepared.plan);
    if (!started) return fail(started.error());
    cluster = std::move(*started);
    controller = cluster->controller();
    if (prepared.plan.target.is_local()) {
      request.set_target_url(cluster->target_url());
      request.set_target_tls_url(cluster->target_tls_url());
      request.set_target_probe(cluster->target_probe());
    }
  } else if (execution.wait > Duration::zero()) {
    say(fmt::format("asking {} for {} agent{}; waiting for them {} at most", controller.controller,
                    prepared.plan.agents, prepared.plan.agents == 1 ? "" : "s",
                    format_duration(execution.wait)));
  }
  auto client = OperatorClient::create(controller);
  if (!client) return fail(client.error());
  return submit_and_follow(**client, execution, request, prepared.plan, cluster.get());
}

}  // namespace spate::cli
