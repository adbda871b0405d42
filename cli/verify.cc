#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/exit_code.h"
#include "cli/session.h"
#include "cli/verbs.h"
#include "proto/operator.pb.h"

namespace spate::cli {
namespace {

struct Flags {
  SessionFlags session;
  std::string run;
};

int verify(const Flags& flags) {
  auto session = Session::open(flags.session);
  if (!session) return fail(session.error());
  const auto run = session->client().resolve_run(flags.run);
  if (!run) return fail(run.error());
  const auto reply = session->client().verify(*run);
  if (!reply) return fail(reply.error());
  for (const auto& line : reply->lines()) std::printf("%s\n", line.c_str());
  std::printf("%s %s\n", run->c_str(), reply->balance().c_str());
  return reply->exit_code();
}

}  // namespace

void add_verify(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand(
      "verify", "Check a run's stored records against the laws and the target's counters");
  const auto flags = std::make_shared<Flags>();
  verb->add_option("RUN", flags->run, "The run; `last` is the newest")->required();
  add_session_flags(*verb, flags->session);
  verb->callback([flags, &exit_code] { exit_code = verify(*flags); });
}

}  // namespace spate::cli
