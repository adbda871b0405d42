// bin/sim: runs histories of a simulated cluster, one for each seed. docs/simulation.md
//
//   sim --seed N [--histories K] [--trace] [--keep-going] [--only KIND,…] [--json]
//
// K histories with the seeds N, N+1 …, up to the first that breaks a law; `--seed new` takes seeds
// from the wall clock. Exit 1, and one command to replay it, when a law was broken.

#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "common/clock.h"
#include "tests/sim/history.h"

namespace {

using spate::sim::HistoryOptions;
using spate::sim::HistoryResult;

struct Arguments {
  std::uint64_t seed = 1;
  std::uint64_t histories = 1;
  bool trace = false;
  bool keep_going = false;
  bool json = false;
  std::string only;
};

using Printed = unsigned long long;  // %llu
Printed text(std::uint64_t n) { return n; }

std::uint64_t current_seed = 0;

// A CHECK of the product has failed: say which history it was.
void aborted(int) {
  char line[128];
  const int n = std::snprintf(line, sizeof line,
                              "\nsim: aborted; replay: build/bin/sim --seed %llu --trace\n",
                              text(current_seed));
  if (n > 0) (void)!::write(2, line, static_cast<std::size_t>(n));
  std::_Exit(1);
}

bool parse(int argc, char** argv, Arguments& arguments) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--trace") {
      arguments.trace = true;
    } else if (flag == "--keep-going") {
      arguments.keep_going = true;
    } else if (flag == "--json") {
      arguments.json = true;
    } else if (i + 1 < argc && flag == "--only") {
      arguments.only = argv[++i];
    } else if (i + 1 < argc && (flag == "--seed" || flag == "--histories")) {
      const std::string value = argv[++i];
      // New every second, and far from the fixed ones.
      (flag == "--seed" ? arguments.seed : arguments.histories) =
          value == "new" ? static_cast<std::uint64_t>(spate::wall_clock_ms()) / 1000 * 100'000
                         : std::strtoull(value.c_str(), nullptr, 10);
    } else {
      return false;
    }
  }
  return true;
}

// The last lines before a law was broken, and what is broken.
void tell(const HistoryResult& result, bool is_whole) {
  constexpr std::size_t kTail = 60;
  const std::size_t size = result.story.size();
  for (std::size_t i = is_whole || size < kTail ? 0 : size - kTail; i < size; ++i)
    std::printf("%s\n", result.story[i].c_str());
  for (const std::string& v : result.violations) std::printf("BROKEN %s\n", v.c_str());
}

bool run_one(std::uint64_t seed, const Arguments& arguments, HistoryResult& total) {
  const bool trace = arguments.trace;
  current_seed = seed;
  HistoryResult r = spate::sim::run_history({seed, trace, arguments.only});
  total.faults += r.faults;
  total.power_cuts += r.power_cuts;
  total.events += r.events;
  total.records += r.records;
  total.simulated += r.simulated;
  if (r.violations.empty()) {
    if (trace) tell(r, true);
    return true;
  }
  // The same history again, this time with its story: the seed decides everything.
  if (!trace) r = spate::sim::run_history({seed, true, arguments.only});
  tell(r, trace);
  std::printf("sim: seed %llu broke %zu laws; replay: build/bin/sim --seed %llu --trace\n",
              text(seed), r.violations.size(), text(seed));
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  if (!parse(argc, argv, arguments)) {
    std::fprintf(
        stderr,
        "usage: sim --seed N|new [--histories K] [--trace] [--keep-going] [--only KIND,...] "
        "[--json]\n");
    return 2;
  }
  std::signal(SIGABRT, aborted);
  std::printf("sim: seeds %llu to %llu\n", text(arguments.seed),
              text(arguments.seed + arguments.histories - 1));
  HistoryResult total;
  std::uint64_t done = 0;
  std::uint64_t failed = 0;
  for (std::uint64_t i = 0; i < arguments.histories; ++i) {
    ++done;
    if (run_one(arguments.seed + i, arguments, total)) continue;
    ++failed;
    if (!arguments.keep_going) break;
  }
  const double hours = std::chrono::duration<double>(total.simulated).count() / 3600;
  std::printf(arguments.json
                  ? "{\"histories\": %llu, \"broken\": %llu, \"faults\": %llu, \"power_cuts\": "
                    "%llu, \"records\": %llu, \"events\": %llu, \"hours\": %.1f}\n"
                  : "sim: %llu histories, %llu broke a law; %llu faults, %llu power cuts, "
                    "%llu records, %llu events, %.1f h simulated\n",
              text(done), text(failed), text(total.faults), text(total.power_cuts),
              text(total.records), text(total.events), hours);
  return failed == 0 ? 0 : 1;
}
