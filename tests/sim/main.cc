// bin/sim: runs histories of a simulated cluster, one for each seed. docs/simulation.md
//
//   sim --seed N [--histories K] [--trace] [--keep-going] [--only KIND,…] [--json]
//   sim --seed N [--histories K] --crash-points [spool|store] [--every M]
//
// K histories with the seeds N, N+1 …, up to the first that breaks a law; `--seed new` takes seeds
// from the wall clock. With --crash-points, one history again and again, undisturbed but for one
// durable operation: each of them in turn dies before it, dies after it, meets EIO, meets ENOSPC.
// With --every, of these only one in M.
//
// Exit 1, and one command to replay it, when a law was broken.

#include <unistd.h>

#include <algorithm>
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
using spate::sim::Tracing;

struct Arguments {
  std::uint64_t seed = 1;
  std::uint64_t histories = 1;
  bool trace = false;
  bool keep_going = false;
  bool json = false;
  std::string only;
  bool crash_points = false;
  std::string crash_only;   // spool, store; empty: both
  std::uint64_t every = 1;  // of the crash points
};

using Printed = unsigned long long;  // %llu
Printed text(std::uint64_t n) { return n; }

std::string replay;  // the command for the history that is being run

void note_replay(std::uint64_t seed, const std::string& only) {
  replay = "build/bin/sim --seed " + std::to_string(seed) +
           (only.empty() ? "" : " --only \"" + only + "\"") + " --trace";
}

// A CHECK of the product has failed: say which history it was.
void aborted(int) {
  std::fflush(stdout);  // the story so far
  const std::string line = "\nsim: aborted; replay: " + replay + "\n";
  (void)!::write(2, line.data(), line.size());
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
    } else if (flag == "--crash-points") {
      arguments.crash_points = true;
      if (i + 1 < argc && argv[i + 1][0] != '-') arguments.crash_only = argv[++i];
    } else if (i + 1 < argc && flag == "--only") {
      arguments.only = argv[++i];
    } else if (i + 1 < argc && flag == "--every") {
      arguments.every = std::max(1ULL, std::strtoull(argv[++i], nullptr, 10));
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
void tell(const HistoryResult& result) {
  constexpr std::size_t kTail = 60;
  const std::size_t size = result.story.size();
  for (std::size_t i = size < kTail ? 0 : size - kTail; i < size; ++i)
    std::printf("%s\n", result.story[i].c_str());
  for (const std::string& v : result.violations) std::printf("BROKEN %s\n", v.c_str());
}

bool run_one(std::uint64_t seed, const Arguments& arguments, HistoryResult& total) {
  HistoryOptions options{
      seed, arguments.trace ? Tracing::printed : Tracing::off, {}, arguments.only};
  note_replay(seed, arguments.only);
  HistoryResult r = spate::sim::run_history(options);
  total.faults += r.faults;
  total.power_cuts += r.power_cuts;
  total.events += r.events;
  total.records += r.records;
  total.simulated += r.simulated;
  if (r.violations.empty()) return true;
  // The same history again, this time with its story: the seed decides everything.
  options.tracing = Tracing::kept;
  if (!arguments.trace) r = spate::sim::run_history(options);
  tell(r);
  std::printf("sim: seed %llu broke %zu laws; replay: %s\n", text(seed), r.violations.size(),
              replay.c_str());
  return false;
}

// Returns how many crash points broke a law.
std::uint64_t run_crash_points(const Arguments& arguments, std::uint64_t seed, bool is_of_store) {
  using spate::sim::CrashPoint;
  using What = CrashPoint::What;
  HistoryOptions options{seed, Tracing::off, CrashPoint{is_of_store, 0, What::nothing}, ""};
  replay = "build/bin/sim --seed " + std::to_string(seed) + " --crash-points " +
           (is_of_store ? "store" : "spool");
  const HistoryResult whole = spate::sim::run_history(options);
  const std::uint64_t count = is_of_store ? whole.store_commits : whole.spool_commits;
  std::uint64_t number = seed;  // so that every seed has others of one in M
  std::uint64_t tried = 0;
  std::uint64_t broken = 0;
  for (std::uint64_t i = 1; i <= count; ++i) {
    for (const What what : {What::kill_before, What::kill_after, What::io_error, What::disk_full}) {
      if (number++ % arguments.every != 0) continue;
      ++tried;
      options.crash = CrashPoint{is_of_store, i, what};
      HistoryResult r = spate::sim::run_history(options);
      if (r.violations.empty()) continue;
      if (broken++ > 0 && !arguments.keep_going) continue;  // the first one is told whole
      options.tracing = Tracing::kept;
      tell(spate::sim::run_history(options));
      options.tracing = Tracing::off;
      std::printf("sim: seed %llu, %s, broke %zu laws\n", text(seed),
                  spate::sim::text(*options.crash).c_str(), r.violations.size());
    }
  }
  std::printf(
      "sim: seed %llu: %llu durable operations of the %s, %llu crash points: %llu broke a law\n",
      text(seed), text(count), is_of_store ? "store" : "spools", text(tried), text(broken));
  return broken;
}

std::uint64_t run_crash_points(const Arguments& arguments) {
  std::uint64_t broken = 0;
  for (std::uint64_t i = 0; i < arguments.histories; ++i) {
    const std::uint64_t seed = arguments.seed + i;
    if (arguments.crash_only != "store") broken += run_crash_points(arguments, seed, false);
    if (arguments.crash_only != "spool") broken += run_crash_points(arguments, seed, true);
  }
  return broken;
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
  if (arguments.crash_points) return run_crash_points(arguments) == 0 ? 0 : 1;
  std::printf("sim: seeds %llu to %llu\n", text(arguments.seed),
              text(arguments.seed + arguments.histories - 1));
  HistoryResult total;
  std::uint64_t done = 0;
  std::uint64_t failed = 0;
  std::string seeds;  // that broke a law
  for (std::uint64_t i = 0; i < arguments.histories; ++i) {
    ++done;
    if (run_one(arguments.seed + i, arguments, total)) continue;
    std::fflush(stdout);
    seeds += (failed++ == 0 ? "" : ", ") + std::to_string(arguments.seed + i);
    if (!arguments.keep_going) break;
  }
  const double hours = std::chrono::duration<double>(total.simulated).count() / 3600;
  if (arguments.json)
    std::printf(
        "{\"histories\": %llu, \"broken\": [%s], \"faults\": %llu, \"power_cuts\": %llu, "
        "\"records\": %llu, \"events\": %llu, \"hours\": %.1f}\n",
        text(done), seeds.c_str(), text(total.faults), text(total.power_cuts), text(total.records),
        text(total.events), hours);
  else
    std::printf(
        "sim: %llu histories, %llu broke a law; %llu faults, %llu power cuts, %llu records, "
        "%llu events, %.1f h simulated\n",
        text(done), text(failed), text(total.faults), text(total.power_cuts), text(total.records),
        text(total.events), hours);
  return failed == 0 ? 0 : 1;
}
