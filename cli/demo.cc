#include <CLI/CLI.hpp>
#include <memory>

#include "cli/embedded.h"
#include "cli/execute.h"
#include "cli/values.h"
#include "cli/verbs.h"

namespace spate::cli {

void add_demo(CLI::App& app, int& exit_code) {
  CLI::App* verb =
      app.add_subcommand("demo", "A whole cluster on this machine, a flood, and a report");
  const auto e = std::make_shared<Execution>();
  e->plan_file = "demo.jsonc";
  e->plan_text = kDemoPlan;
  e->local = true;
  e->agents = 4;
  e->measured_for = std::chrono::seconds(30);
  const auto connections = std::make_shared<std::uint64_t>(1200);
  verb->add_option("--agents", e->agents, "How many agents [4]")->check(CLI::Range(1U, 100U));
  verb->add_option("--connections", *connections, "Connections of all agents together")
      ->capture_default_str();
  add_duration(
      *verb, "--for", [e](Duration d) { e->measured_for = d; }, "How long to measure [30s]");
  verb->add_option("--set", e->overrides, "path=value: change the demo's plan; repeatable")
      ->allow_extra_args(false);
  verb->add_option_function<std::string>(
          "-o,--output", [e](const std::string& format) { e->as_json = format == "json"; },
          "table, or json: one object when the run ends")
      ->check(CLI::IsMember({"table", "json"}));
  verb->add_option("--report", e->report, "Where the HTML report goes [the data directory]")
      ->envname("SPATE_REPORT");
  verb->add_option("--store", e->store, "Where the run is kept")->envname("SPATE_STORE");
  verb->callback([e, connections, &exit_code] {
    e->overrides.push_back("load.connections=" + std::to_string(*connections));
    exit_code = execute(*e);
  });
}

}  // namespace spate::cli
