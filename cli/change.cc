// spate set, pause and resume: change a live run's parameters.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cli/exit_code.h"
#include "cli/local_cluster.h"
#include "cli/session.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "common/patch_json.h"
#include "common/units.h"
#include "proto/operator.pb.h"

namespace spate::cli {
namespace {

struct Flags {
  SessionFlags session;
  std::string run;
  std::vector<std::string> assignments;
  std::vector<std::string> agents;
  std::string at;
  std::optional<std::uint32_t> if_epoch;
  std::string reason;
  std::string canary;
  std::string guard;
};

using Send = std::function<Result<ops::v1::SetReply>(OperatorClient&, const std::string& run)>;

void fill(ops::v1::ChangeTerms& terms, const Flags& flags) {
  for (const std::string& agent : flags.agents) terms.add_agents(agent);
  terms.set_at(flags.at);
  if (flags.if_epoch) terms.set_if_epoch(*flags.if_epoch);
  terms.set_reason(flags.reason);
}

std::string joined(const google::protobuf::RepeatedPtrField<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string text_of(const ops::v1::SetReply& reply) {
  std::string text = "epoch " + std::to_string(reply.epoch()) + " from " +
                     std::to_string(reply.from_epoch()) + " at " + reply.at_time() + " (" +
                     format_duration(std::chrono::milliseconds(reply.at_ms())) +
                     " into the run): " + reply.what() + "\n";
  Table table({"", "from", "to"});
  for (const auto& d : reply.differences()) table.add({d.path(), d.from(), d.to()});
  text += reply.differences().empty() ? "nothing is different from before\n" : table.to_string();
  if (reply.guard_ms() > 0) {
    text += "a guard band of " + format_duration(std::chrono::milliseconds(reply.guard_ms())) +
            " follows: counted, not measured\n";
  }
  text += "prepared by " + std::to_string(reply.prepared_size()) +
          (reply.prepared_size() == 1 ? " agent: " : " agents: ") + joined(reply.prepared()) + "\n";
  if (!reply.away().empty()) {
    text += "away, and on the old epoch until they are back or their lease ends: " +
            joined(reply.away()) + "\n";
  }
  return text;
}

void say(const std::vector<std::string>& problems) {
  for (const std::string& problem : problems) std::fprintf(stderr, "spate: %s\n", problem.c_str());
}

int refuse(const std::vector<std::string>& problems, int exit_code) {
  say(problems);
  std::fprintf(stderr, "spate: nothing was changed\n");
  return exit_code;
}

int change(const Flags& flags, const Send& send) {
  auto session = Session::open(flags.session);
  if (!session) return fail(session.error());
  const auto run = session->client().resolve_run(flags.run);
  if (!run) return fail(run.error());
  const auto reply = send(session->client(), *run);
  if (!reply) return fail(reply.error());
  const std::vector<std::string> problems{reply->problems().begin(), reply->problems().end()};
  if (!problems.empty() && reply->is_undecided()) {
    say(problems);
    std::fprintf(stderr,
                 "spate: whether it is made is not decided: `spate status %s` shows what became of "
                 "it\n",
                 run->c_str());
    return reply->exit_code();
  }
  if (!problems.empty()) return refuse(problems, reply->exit_code());
  std::fputs(text_of(*reply).c_str(), stdout);
  return kPassed;
}

void add_terms(CLI::App& verb, Flags& flags) {
  verb.add_option("RUN", flags.run, "The run; `last` is the newest")->required();
  verb.add_option("--agent", flags.agents, "Only this agent; repeatable")->type_name("NAME");
  verb.add_option("--at", flags.at,
                  "When: +24h from now, or 2026-12-01T06:00:00Z; as soon as can be if not given")
      ->type_name("TIME");
  verb.add_option(
          "--if-epoch", flags.if_epoch,
          "Only if the run is in this epoch: do not overwrite what somebody else has changed")
      ->type_name("N");
  verb.add_option("--reason", flags.reason, "Why; kept with the change")->type_name("TEXT");
  add_session_flags(verb, flags.session);
}

struct Verb {
  const char* name;
  const char* description;
};
using Pausing = Result<ops::v1::SetReply> (OperatorClient::*)(const ops::v1::PauseRequest&);

void add_pausing(CLI::App& app, int& exit_code, const Verb& named, Pausing ask) {
  CLI::App* verb = app.add_subcommand(named.name, named.description);
  const auto flags = std::make_shared<Flags>();
  add_terms(*verb, *flags);
  verb->callback([flags, ask, &exit_code] {
    ops::v1::PauseRequest request;
    fill(*request.mutable_terms(), *flags);
    exit_code = change(*flags, [&](OperatorClient& client, const std::string& run) {
      request.set_run(run);
      return (client.*ask)(request);
    });
  });
}

// The names that plans have for the target of --local.
void resolve_local_target(Flags& flags) {
  if (!flags.session.local) return;
  const std::string& store = flags.session.store;
  const auto live = live_local_cluster(store.empty() ? default_local_store() : store);
  if (!live) return;
  for (std::string& a : flags.assignments) a = with_local_target(a, *live);
}

double percent_of(const std::string& text) {
  std::size_t used = 0;
  const double percent = std::stod(text, &used);
  if (used != text.size() && text.substr(used) != "%") throw std::invalid_argument(text);
  return percent;
}

}  // namespace

void add_set(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand(
      "set", "Change parameters of a live run: all agents take the change, or none does");
  const auto flags = std::make_shared<Flags>();
  add_terms(*verb, *flags);
  verb->add_option("path=value", flags->assignments,
                   "load.connections=4000 call.compress=true …; connections are the total of the "
                   "agents they are for")
      ->required();
  verb->add_option("--canary", flags->canary,
                   "Try it on so many of the agents first; `spate status RUN` compares them")
      ->type_name("P%")
      ->check([](const std::string& text) -> std::string {
        try {
          percent_of(text);
          return "";
        } catch (const std::exception&) {
          return "a share of the agents, like 10%";
        }
      });
  verb->add_option("--guard", flags->guard,
                   "So long after the change nothing is measured; if not given, 10s (or the "
                   "rotation's guard) when it opens or closes connections, else nothing")
      ->type_name("D");
  verb->callback([flags, &exit_code] {
    resolve_local_target(*flags);
    // What no run would take is found before a controller is asked.
    std::vector<std::string> problems;
    for (const PlanProblem& p : parse_patch(flags->assignments).problems)
      problems.push_back(p.to_string(""));
    if (!problems.empty()) {
      exit_code = refuse(problems, kUsage);
      return;
    }
    ops::v1::SetRequest request;
    for (const std::string& a : flags->assignments) request.add_assignments(a);
    request.set_guard(flags->guard);
    if (!flags->canary.empty()) request.set_canary_percent(percent_of(flags->canary));
    fill(*request.mutable_terms(), *flags);
    exit_code = change(*flags, [&](OperatorClient& client, const std::string& run) {
      request.set_run(run);
      return client.set(request);
    });
  });
}

void add_pause(CLI::App& app, int& exit_code) {
  add_pausing(app, exit_code, {"pause", "Send no requests for a while; the connections stay"},
              &OperatorClient::pause);
}

void add_resume(CLI::App& app, int& exit_code) {
  add_pausing(app, exit_code, {"resume", "Send requests again after a pause"},
              &OperatorClient::resume);
}

}  // namespace spate::cli
