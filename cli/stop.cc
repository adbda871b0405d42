#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/exit_code.h"
#include "cli/session.h"
#include "cli/verbs.h"

namespace spate::cli {
namespace {

struct Flags {
  SessionFlags session;
  std::string run;
  bool now = false;
};

int stop(const Flags& flags) {
  auto session = Session::open(flags.session);
  if (!session) return fail(session.error());
  const auto run = session->client().resolve_run(flags.run);
  if (!run) return fail(run.error());
  if (const auto done = session->client().stop(*run, flags.now); !done) return fail(done.error());
  std::fprintf(stderr, "%s is stopping; `spate watch %s` shows its end\n", run->c_str(),
               run->c_str());
  return kPassed;
}

}  // namespace

void add_stop(CLI::App& app, int& exit_code) {
  CLI::App* verb =
      app.add_subcommand("stop", "Stop a run: no new requests, wait for the answers, report");
  const auto flags = std::make_shared<Flags>();
  verb->add_option("RUN", flags->run, "The run; `last` is the newest")->required();
  verb->add_flag("--now", flags->now,
                 "Do not wait for the answers; what is cut off is counted as cancelled");
  add_session_flags(*verb, flags->session);
  verb->callback([flags, &exit_code] { exit_code = stop(*flags); });
}

}  // namespace spate::cli
