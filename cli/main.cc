#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "cli/exit_code.h"
#include "cli/verbs.h"
#include "common/plan_json.h"
#include "common/version.h"

namespace {

bool is_verb(const CLI::App& app, const std::string& word) {
  for (const CLI::App* verb : app.get_subcommands({}))
    if (verb->get_name() == word) return true;
  return false;
}

int unknown_verb(const CLI::App& app, const std::string& word) {
  std::vector<std::string> known;
  for (const CLI::App* verb : app.get_subcommands({})) known.push_back(verb->get_name());
  const std::string near = spate::nearest(word, known);
  std::fprintf(stderr, "spate: there is no verb \"%s\"%s; see spate --help\n", word.c_str(),
               near.empty() ? "" : (": did you mean " + near + "?").c_str());
  return spate::cli::kUsage;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace spate::cli;
  CLI::App app("spate floods an RPC server from many PCs at once, and tells the truth about it.",
               "spate");
  app.set_version_flag("--version", std::string("spate ") + spate::kVersion);
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "The flags of every verb");
  app.footer(
      "Exit status: 0 passed, 1 failed, 2 wrong usage or plan, 3 run INVALID, "
      "4 not found or the epoch moved on, 99 threshold, 105 stopped.");

  int exit_code = kPassed;
  for (const auto add :
       {add_demo, add_run, add_status, add_agents, add_watch, add_set, add_pause, add_resume,
        add_stop, add_report, add_verify, add_plan, add_pki, add_doctor})
    add(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::RequiredError& e) {
    if (argc < 2 || argv[1][0] == '-' || is_verb(app, argv[1])) return app.exit(e), kUsage;
    return unknown_verb(app, argv[1]);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? kPassed : kUsage;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "spate: %s\n", e.what());
    return kFailed;
  }
  return exit_code;
}
