#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/descriptors.h"
#include "cli/embedded.h"
#include "cli/exit_code.h"
#include "cli/explain.h"
#include "cli/files.h"
#include "cli/verbs.h"
#include "common/plan_json.h"

namespace spate::cli {
namespace {

struct Flags {
  std::string file;
  std::vector<std::string> overrides;
  std::string output = "table";
};

// Reads the plan; what is wrong with it is printed, all at once.
int load(const Flags& flags, Plan& plan) {
  const auto text = read_file(flags.file);
  if (!text) return fail(Error{ErrorCode::invalid, text.error().message});
  auto parsed = parse_plan(*text, flags.overrides);
  for (const auto& problem : parsed.problems)
    std::fprintf(stderr, "%s\n", problem.to_string(flags.file).c_str());
  if (!parsed.ok()) return kUsage;
  plan = std::move(parsed.plan);
  const auto descriptors = read_descriptors(plan.call, flags.file);
  for (const auto& problem : descriptors.problems) std::fprintf(stderr, "%s\n", problem.c_str());
  return descriptors.problems.empty() ? kPassed : kUsage;
}

int check(const Flags& flags) {
  Plan plan;
  const int exit_code = load(flags, plan);
  if (exit_code == kPassed) std::printf("%s: good\n", flags.file.c_str());
  return exit_code;
}

int explain(const Flags& flags) {
  Plan plan;
  if (const int exit_code = load(flags, plan); exit_code != kPassed) return exit_code;
  const std::int64_t now = wall_clock_ms();
  const auto text = flags.output == "json" ? explain_json(plan, now) : explain_text(plan, now);
  if (!text) return fail(text.error());
  std::fputs(text->c_str(), stdout);
  return kPassed;
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand("plan", "Look at a plan without running it");
  verb->require_subcommand(1);
  const auto flags = std::make_shared<Flags>();
  const auto add = [&](const std::string& name, const std::string& description) {
    CLI::App* sub = verb->add_subcommand(name, description);
    sub->add_option("FILE", flags->file, "The plan file")->required();
    sub->add_option("--set", flags->overrides, "path=value: change the plan; repeatable")
        ->allow_extra_args(false);
    return sub;
  };
  add("check", "List every mistake, with its place")->callback([flags, &exit_code] {
    exit_code = check(*flags);
  });
  CLI::App* explained =
      add("explain", "Phases, epochs, each agent's share, and what it adds up to");
  explained->add_option("-o,--output", flags->output, "table or json")
      ->check(CLI::IsMember({"table", "json"}));
  explained->callback([flags, &exit_code] { exit_code = explain(*flags); });
  verb->add_subcommand("schema", "The JSON schema of plan files, for editors")
      ->callback([&exit_code] {
        std::fputs(kPlanSchema, stdout);
        exit_code = kPassed;
      });
}

}  // namespace spate::cli
