#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/exit_code.h"
#include "cli/files.h"
#include "cli/session.h"
#include "cli/verbs.h"

namespace spate::cli {
namespace {

struct Flags {
  SessionFlags session;
  std::string run;
  std::string format = "html";
  std::string out;
};

int report(const Flags& flags) {
  auto session = Session::open(flags.session);
  if (!session) return fail(session.error());
  const auto run = session->client().resolve_run(flags.run);
  if (!run) return fail(run.error());
  const auto text = session->client().report(*run, flags.format);
  if (!text) return fail(text.error());
  std::string out = flags.out;
  if (out.empty() && flags.format == "html")
    out = *run + ".html";  // a page is nothing for a terminal
  if (out.empty() || out == "-") {
    const bool is_written = std::fwrite(text->data(), 1, text->size(), stdout) == text->size() &&
                            std::fflush(stdout) == 0;
    return is_written ? kPassed
                      : fail({ErrorCode::io, "cannot write the report to standard output"});
  }
  if (const auto done = write_file(out, *text, 0644, IfExists::replace); !done)
    return fail(done.error());
  std::printf("%s\n", out.c_str());
  return kPassed;
}

}  // namespace

void add_report(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand("report", "Write a run's report from what is stored");
  const auto flags = std::make_shared<Flags>();
  verb->add_option("RUN", flags->run, "The run; `last` is the newest")->required();
  verb->add_option("--format", flags->format,
                   "html: one page; csv: a row per interval; json: summary and series; reference: "
                   "the target's log format; sets: CSV, what each set of parameters did")
      ->check(CLI::IsMember({"html", "csv", "json", "reference", "sets"}))
      ->capture_default_str();
  verb->add_option("--out", flags->out, "Where it goes [RUN.html; other formats: standard output]");
  add_session_flags(*verb, flags->session);
  verb->callback([flags, &exit_code] { exit_code = report(*flags); });
}

}  // namespace spate::cli
