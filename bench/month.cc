// How large the store of a long run is, and what reading it takes.
//
//   bench-month make FILE [DAYS] [AGENTS] [REQUESTS_PER_SECOND_AND_AGENT]
//       writes the store that so long a run leaves behind, resolution by resolution as
//       controller/rollup_policy.h has it, and says how large it is
//   bench-month read FILE
//       makes the HTML report of its run and verifies it, and says how much time and memory that
//       took

#include <SQLiteCpp/SQLiteCpp.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/plan_json.h"
#include "controller/record_row.h"
#include "controller/report.h"
#include "controller/store.h"
#include "controller/store_file.h"
#include "controller/store_reader.h"
#include "controller/store_schema.h"
#include "proto/wire.h"
#include "tests/unit/controller/month.h"
#include "tests/unit/controller/run_data.h"

namespace {

using namespace spate;
using namespace spate::controller;

constexpr std::size_t kTransaction = 5'000;

RunInfo run_info(Duration length, std::size_t agents) {
  RunInfo info = test::run_info(
      agents, {test::phase("warm-up", std::chrono::minutes(1), false),
               test::phase("soak", length - std::chrono::minutes(1), true, 200 * agents)});
  info.plan.call.method = "spate.target.v1.Calls/Call";
  info.plan.call.message_json = "{}";
  info.plan_text = to_json(info.plan);
  for (RunAgent& a : info.agents) a.last_seq = static_cast<std::uint64_t>(length / test::kSecond);
  return info;
}

class Maker {
 public:
  Maker(SQLite::Database& db, const RunInfo& info, std::uint64_t rate)
      : db_(db), info_(info), rate_(rate) {}

  void write(std::size_t table, const test::Stretch& stretch) {
    RecordInsert insert(db_, kRecordTables[table]);
    std::size_t rows = 0;
    const auto begin = info_.length - stretch.to;
    db_.exec("BEGIN");
    for (auto at = begin; at < info_.length - stretch.from; at += stretch.width) {
      const auto first = static_cast<std::uint64_t>(at / test::kSecond) + 1;
      const auto seconds = static_cast<std::uint64_t>(stretch.width / test::kSecond);
      for (const RunAgent& agent : info_.agents) {
        const Record r =
            flood_.record({info_.id, agent.name, agent.incarnation, first + seconds - 1}, first, at,
                          stretch.width, rate_ * seconds);
        wire_bytes_ += wire::to_bytes(r).size();
        insert.put(r);
        if (++rows % kTransaction == 0) db_.exec("COMMIT; BEGIN");
      }
    }
    db_.exec("COMMIT");
    std::printf("%-10s %7zu records of %4lld s\n", kRecordTables[table], rows,
                static_cast<long long>(stretch.width / test::kSecond));
  }
  std::uint64_t wire_bytes() const { return wire_bytes_; }

 private:
  SQLite::Database& db_;
  const RunInfo& info_;
  const std::uint64_t rate_;
  test::Flood flood_{1};
  std::uint64_t wire_bytes_ = 0;
};

// Of each stretch the last one and those with the largest memory.
void write_samples(Store& store, const RunInfo& info) {
  for (const auto& stretch : test::stretches(kRollupPolicy, info.length, test::kSecond)) {
    for (auto at = info.length - stretch.to; at < info.length - stretch.from; at += stretch.width) {
      const int kept = stretch.width > test::kSecond ? 3 : 1;
      for (int i = 0; i < kept; ++i) {
        const auto when = at + i * stretch.width / kept;
        TargetSample s = test::target_sample(when.count());
        for (const RunAgent& a : info.agents) {
          const auto n = static_cast<std::uint64_t>(when / test::kSecond) * 3'000;
          s.agents.push_back({a.name, a.incarnation, n, n, 0});
        }
        store.put(store_op::PutSample{info.id, s});
      }
    }
  }
}

int make(const std::string& path, int days, int agents, int rate) {
  if (std::filesystem::exists(path)) {
    std::fprintf(stderr, "%s is there already\n", path.c_str());
    return 2;
  }
  const RunInfo info = run_info(std::chrono::hours(24 * days), static_cast<std::size_t>(agents));
  {
    auto store = Store::open(path, {});
    if (!store) return std::fprintf(stderr, "%s\n", store.error().message.c_str()), 1;
    (*store)->put(store_op::PutRun{info, {0, "VALID", 1}});
    write_samples(**store, info);
  }
  {
    auto db = std::move(*open_store_file(path, false));
    Maker maker(*db, info, static_cast<std::uint64_t>(rate));
    const auto stretches = test::stretches(kRollupPolicy, info.length, test::kSecond);
    for (std::size_t table = kRecordTables.size(); table-- > 0;)
      maker.write(table, stretches[table]);
    std::printf("serialized records: %.1f MB before packing\n",
                static_cast<double>(maker.wire_bytes()) / 1e6);
  }
  std::printf("%d days x %d agents x %d requests/s: %.1f MB\n", days, agents, rate,
              static_cast<double>(std::filesystem::file_size(path)) / 1e6);
  return 0;
}

long status_kb(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(field)) return std::atol(line.c_str() + field.size() + 1);
  return 0;
}

int read(const std::string& path) {
  const auto runs = list_runs(path);
  if (!runs || runs->empty()) return std::fprintf(stderr, "no run in %s\n", path.c_str()), 1;
  const long before = status_kb("VmHWM");
  const Instant begin = BootClock::now();
  const auto run = load_run(path, runs->front().id);
  if (!run) return std::fprintf(stderr, "%s\n", run.error().message.c_str()), 1;
  const Summary summary = (*run)->summary();
  const Instant loaded = BootClock::now();
  const auto report = render_report(**run, "html");
  if (!report) return std::fprintf(stderr, "%s\n", report.error().message.c_str()), 1;
  const auto ms = [](Duration d) {
    return static_cast<long long>(d / std::chrono::milliseconds(1));
  };
  std::printf("%s, %s: %llu records, %llu requests, %zu points\n",
              std::string(name(summary.verdict)).c_str(),
              std::string(name(summary.balance)).c_str(),
              static_cast<unsigned long long>(summary.records.stored),
              static_cast<unsigned long long>(summary.requests.sent), (*run)->points().size());
  std::printf("read and verified in %lld ms, report of %zu bytes in %lld ms\n", ms(loaded - begin),
              report->size(), ms(BootClock::now() - loaded));
  std::printf("memory: %ld kB before, %ld kB at its peak\n", before, status_kb("VmHWM"));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, int otherwise) {
    return argc > i ? std::atoi(argv[i]) : otherwise;
  };
  const std::string verb = argc > 2 ? argv[1] : "";
  if (verb == "make") return make(argv[2], number(3, 30), number(4, 20), number(5, 3'000));
  if (verb == "read") return read(argv[2]);
  std::fprintf(stderr,
               "usage: bench-month make FILE [DAYS] [AGENTS] [RATE] | bench-month read FILE\n");
  return 2;
}
