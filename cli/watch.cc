#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/exit_code.h"
#include "cli/follow.h"
#include "cli/session.h"
#include "cli/verbs.h"

namespace spate::cli {
namespace {

struct Flags {
  SessionFlags session;
  std::string run = "last";
};

int watch(const Flags& flags) {
  auto session = Session::open(flags.session);
  if (!session) return fail(session.error());
  const auto run = session->client().resolve_run(flags.run);
  if (!run) return fail(run.error());
  std::fprintf(stderr, "run %s\n", run->c_str());
  const Followed followed = follow(session->client(), *run, {});
  if (followed.summary) std::fputs(followed.summary->text.c_str(), stdout);
  return followed.exit_code;
}

}  // namespace

void add_watch(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand("watch", "Follow a run to its end; Ctrl-C leaves it running");
  const auto flags = std::make_shared<Flags>();
  verb->add_option("RUN", flags->run, "The run [the newest]");
  add_session_flags(*verb, flags->session);
  verb->callback([flags, &exit_code] { exit_code = watch(*flags); });
}

}  // namespace spate::cli
