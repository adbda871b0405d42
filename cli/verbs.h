#pragma once

// The verbs of the command line, one file each. Each function adds its subcommand to `app`; when
// the user chose it, it runs inside App::parse and leaves its exit status in `exit_code`.

namespace CLI {
class App;
}

namespace spate::cli {

void add_demo(CLI::App& app, int& exit_code);
void add_run(CLI::App& app, int& exit_code);
void add_status(CLI::App& app, int& exit_code);
void add_agents(CLI::App& app, int& exit_code);
void add_watch(CLI::App& app, int& exit_code);
void add_set(CLI::App& app, int& exit_code);
void add_pause(CLI::App& app, int& exit_code);
void add_resume(CLI::App& app, int& exit_code);
void add_stop(CLI::App& app, int& exit_code);
void add_report(CLI::App& app, int& exit_code);
void add_verify(CLI::App& app, int& exit_code);
void add_plan(CLI::App& app, int& exit_code);
void add_pki(CLI::App& app, int& exit_code);
void add_doctor(CLI::App& app, int& exit_code);

}  // namespace spate::cli
