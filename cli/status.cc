#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/exit_code.h"
#include "cli/session.h"
#include "cli/status_text.h"
#include "cli/verbs.h"
#include "proto/operator.pb.h"

namespace spate::cli {
namespace {

struct Flags {
  SessionFlags session;
  std::string run;
  std::string output = "table";
};

int one_run(OperatorClient& client, const std::string& run, const std::string& output) {
  const auto reply = client.status(run);
  if (!reply) return fail(reply.error());
  std::fputs((output == "json" ? status_json(*reply) : status_text(*reply)).c_str(), stdout);
  return kPassed;
}

int status(const Flags& flags) {
  auto session = Session::open(flags.session);
  if (!session) return fail(session.error());
  const auto run = session->client().resolve_run(flags.run);
  if (!run) return fail(run.error());
  if (!run->empty()) return one_run(session->client(), *run, flags.output);
  const auto reply = session->client().list_runs("");
  if (!reply) return fail(reply.error());
  if (reply->runs().empty() && flags.output == "table") std::fprintf(stderr, "no runs yet\n");
  std::fputs((flags.output == "json" ? runs_json(*reply) : runs_text(*reply)).c_str(), stdout);
  return kPassed;
}

}  // namespace

void add_status(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand(
      "status", "The runs that the controller knows, newest first; or all about one of them");
  const auto flags = std::make_shared<Flags>();
  verb->add_option("RUN", flags->run,
                   "This one: its epochs, changes and agents; `last` is the newest");
  verb->add_option("-o,--output", flags->output, "table or json")
      ->check(CLI::IsMember({"table", "json"}));
  add_session_flags(*verb, flags->session);
  verb->callback([flags, &exit_code] { exit_code = status(*flags); });
}

}  // namespace spate::cli
