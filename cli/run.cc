#include <CLI/CLI.hpp>
#include <memory>

#include "cli/execute.h"
#include "cli/exit_code.h"
#include "cli/files.h"
#include "cli/session.h"
#include "cli/values.h"
#include "cli/verbs.h"

namespace spate::cli {

void add_run(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand("run", "Run a plan, follow it, and leave a report");
  const auto e = std::make_shared<Execution>();
  verb->add_option("PLAN", e->plan_file,
                   "The plan file (JSON with comments); see `spate plan explain`")
      ->required();
  CLI::Option* local =
      verb->add_flag("--local", e->local,
                     "Start a controller, the agents and a \"local\" target on this machine")
          ->envname("SPATE_LOCAL");
  verb->add_option("--agents", e->agents,
                   "How many agents --local starts, instead of the plan's count")
      ->needs(local)
      ->check(CLI::Range(1U, 1000U));
  verb->add_option("--allow", e->allow,
                   "CIDR:PORT that the agents of --local may reach [loopback]; repeatable")
      ->needs(local)
      ->allow_extra_args(false);
  verb->add_option("--store", e->store, "Where --local keeps its runs")->envname("SPATE_STORE");
  verb->add_option("--set", e->overrides,
                   "path=value: change the plan, e.g. load.connections=400; repeatable")
      ->allow_extra_args(false);
  add_duration(
      *verb, "--for", [e](Duration d) { e->measured_for = d; },
      "Length of the measured phases together");
  add_duration(
      *verb, "--wait", [e](Duration d) { e->wait = d; },
      "How long to wait for the plan's agents [30s]")
      ->envname("SPATE_WAIT");
  CLI::Option* detach =
      verb->add_flag("--detach", e->detach, "Print the run's id and leave it running");
  detach->excludes(local);
  verb->add_option_function<std::string>(
          "-o,--output", [e](const std::string& format) { e->as_json = format == "json"; },
          "table, or json: one object when the run ends")
      ->check(CLI::IsMember({"table", "json"}));
  verb->add_option("--report", e->report, "Where the HTML report goes [the data directory]")
      ->envname("SPATE_REPORT");
  add_controller_flags(*verb, e->controller);
  verb->callback([e, &exit_code] {
    auto text = read_file(e->plan_file);
    if (!text) {
      exit_code = fail(Error{ErrorCode::invalid, text.error().message});
      return;
    }
    e->plan_text = std::move(*text);
    exit_code = execute(*e);
  });
}

}  // namespace spate::cli
