#include "controller/rollup.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "common/plan_json.h"
#include "controller/record_row.h"
#include "controller/store.h"
#include "controller/store_file.h"
#include "controller/store_reader.h"
#include "controller/store_schema.h"
#include "proto/wire.h"
#include "tests/unit/controller/month.h"
#include "tests/unit/controller/run_data.h"
#include "tests/unit/temporary_directory.h"

namespace spate::controller {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using test::FakeAgent;
using test::kSecond;

constexpr RollupPolicy kShort = {
    {{{seconds(30), seconds(10)}, {minutes(3), minutes(1)}, {minutes(20), minutes(10)}}},
    std::chrono::milliseconds(1)};

RunInfo info(std::size_t agents, Duration length) {
  RunInfo info = test::run_info(agents, {test::phase("warm-up", 95 * kSecond, false),
                                         test::phase("soak", length - 95 * kSecond)});
  info.plan.call.method = "spate.target.v1.Calls/Call";
  info.plan.call.message_json = "{}";
  info.plan_text = to_json(info.plan);
  return info;
}

class RollupTest : public testing::Test {
 protected:
  RollupTest() : path_(directory_ / "runs.sqlite") {}

  // A store with the run's row; its writer is gone again.
  void make_store(const RunInfo& run) {
    auto store = Store::open(path_, {});
    ASSERT_TRUE(store.has_value()) << store.error().message;
    (*store)->put(store_op::PutRun{run, {}});
  }
  std::unique_ptr<SQLite::Database> open() {
    auto db = open_store_file(path_, false);
    EXPECT_TRUE(db.has_value());
    return std::move(*db);
  }
  std::unique_ptr<Aggregate> load(const std::string& run) {
    auto loaded = load_run(path_, run);
    EXPECT_TRUE(loaded.has_value()) << loaded.error().message;
    return std::move(*loaded);
  }
  static void roll_up(SQLite::Database& db, Rollup& rollup) {
    for (bool more = true; more;) {
      SQLite::Transaction transaction(db);
      more = rollup.step();
      transaction.commit();
    }
  }
  static std::int64_t count(SQLite::Database& db, const std::string& what) {
    return db.execAndGet("SELECT count(*) FROM " + what).getInt64();
  }

  TemporaryDirectory directory_;
  std::string path_;
};

// Puts records as a ledger would let them in: with their mark.
class Put {
 public:
  explicit Put(SQLite::Database& db)
      : record_(db, "records"),
        mark_(db, "INSERT OR REPLACE INTO marks (run, agent, incarnation, seq) VALUES (?,?,?,?)") {}
  void operator()(const Record& r) {
    record_.put(r);
    mark_.tryReset();
    mark_.bind(1, r.key.run);
    mark_.bind(2, r.key.agent);
    mark_.bind(3, static_cast<std::int64_t>(r.key.incarnation));
    mark_.bind(4, static_cast<std::int64_t>(r.key.seq));
    mark_.exec();
  }

 private:
  RecordInsert record_;
  SQLite::Statement mark_;
};

// Everything of a summary that must not depend on the resolution.
std::string fixed_text(const Aggregate& run) {
  Summary s = run.summary();
  // Of merged intervals the fewest of each agent is kept, not the fewest of all together.
  s.connections = {};
  for (auto& p : s.phases) p.connections_established = 0;
  return to_json(s);
}

using Group = std::tuple<std::uint32_t, std::uint32_t, bool, bool, bool>;

// The latencies of every slot and of everything that must not be mixed, per agent's process.
std::map<std::tuple<std::string, std::uint64_t, std::int64_t, Group>, Histogram> stretches(
    SQLite::Database& db) {
  std::map<std::tuple<std::string, std::uint64_t, std::int64_t, Group>, Histogram> result;
  SQLite::Statement row(db, "SELECT wire FROM all_records ORDER BY agent, incarnation, seq");
  while (row.executeStep()) {
    const auto wire = row.getColumn(0);
    const auto r = unpack_record(
        {static_cast<const char*>(wire.getBlob()), static_cast<std::size_t>(wire.getBytes())});
    EXPECT_TRUE(r.has_value());
    const auto slot = (r->start + std::chrono::milliseconds(50)) / minutes(10);
    const Group group{r->phase, r->epoch, r->guard, r->drain, r->recovered};
    result[{r->key.agent, r->key.incarnation, slot, group}].merge(
        r->series[index(Outcome::ok)].latency);
  }
  return result;
}

// Whatever comes in whatever order: all totals, percentiles, gaps and broken laws are what they
// were.
TEST_F(RollupTest, LosesNothingButResolution) {
  const auto seed = static_cast<std::uint64_t>(std::random_device{}());
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  const auto chance = [&](std::uint64_t one_in) { return random() % one_in == 0; };
  constexpr int kLength = 2'700;
  RunInfo run = info(3, kLength * kSecond);
  for (auto& a : run.agents) a.incarnation = 2, a.dead = {{1, 1, "killed"}};

  // One rolls up while records come, the other never.
  make_store(run);
  auto db = open();
  TemporaryDirectory plain_directory;
  const auto plain_path = plain_directory / "plain.sqlite";
  {
    auto store = Store::open(plain_path, {});
    ASSERT_TRUE(store.has_value());
    (*store)->put(store_op::PutRun{run, {}});
  }
  auto plain = std::move(*open_store_file(plain_path, false));
  Put put(*db), put_plain(*plain);
  Rollup rollup(*db, kShort);
  SQLite::Transaction in_plain(*plain);

  std::vector<std::vector<Record>> records(3);
  for (std::size_t a = 0; a < 3; ++a) {
    const auto dies_at = 200 + static_cast<int>(random() % 2'000);
    FakeAgent first(run.agents[a].name, 1), second(run.agents[a].name, 2);
    for (int s = 0; s < kLength; ++s) {
      if (s > dies_at && s < dies_at + 7) continue;
      FakeAgent::Interval interval{.start = s * kSecond,
                                   .phase = s < 95 ? 0U : 1U,
                                   .epoch = static_cast<std::uint32_t>(1 + s / 437)};
      const auto n = random() % 4;
      for (std::uint64_t i = 0; i < n; ++i)
        interval.requests.emplace_back(chance(20) ? Outcome::reset : Outcome::ok,
                                       2'000 + random() % 1'000'000'000);
      if (s == dies_at) interval.sent = n + 3, interval.length = kSecond / 2;
      if (s == kLength - 1) interval.drain = true;
      auto& agent = s <= dies_at ? first : second;
      if (chance(500)) agent.skip(1);  // a record that never came
      Record r = agent.next(interval);
      r.recovered = s == dies_at;
      r.guard = s % 437 < 5 && s > 10;
      if (chance(700)) ++r.counters.scheduled;  // a broken law
      records[a].push_back(std::move(r));
    }
  }
  std::vector<std::size_t> next(3);
  for (bool more = true; more;) {
    more = false;
    SQLite::Transaction transaction(*db);
    for (std::size_t a = 0; a < 3; ++a) {
      // Agents lag, and deliver in bursts.
      for (auto burst = random() % 40; burst > 0 && next[a] < records[a].size(); --burst) {
        put(records[a][next[a]]);
        put_plain(records[a][next[a]]);
        ++next[a];
      }
      more = more || next[a] < records[a].size();
    }
    transaction.commit();
    if (chance(10)) roll_up(*db, rollup);
  }
  roll_up(*db, rollup);
  in_plain.commit();

  EXPECT_LT(count(*db, "all_records"), count(*plain, "all_records") / 5);
  EXPECT_GT(count(*db, "rollup_3"), 0);
  EXPECT_GT(count(*db, "rollup_2"), 0);
  EXPECT_GT(count(*db, "rollup_1"), 0);
  EXPECT_EQ(stretches(*db), stretches(*plain));

  const auto merged = load(run.id);
  const auto all = load_run(plain_path, run.id);
  ASSERT_TRUE(all.has_value());
  EXPECT_EQ(fixed_text(*merged), fixed_text(**all));
  EXPECT_EQ(merged->broken_law_count(), (*all)->broken_law_count());
  ASSERT_EQ(merged->gaps().size(), (*all)->gaps().size());
  for (std::size_t i = 0; i < merged->gaps().size(); ++i)
    EXPECT_EQ(merged->gaps()[i].cause, (*all)->gaps()[i].cause);
  ASSERT_EQ(merged->agents().size(), (*all)->agents().size());
  for (std::size_t i = 0; i < merged->agents().size(); ++i) {
    EXPECT_EQ(merged->agents()[i].counters, (*all)->agents()[i].counters);
    EXPECT_EQ(merged->agents()[i].latency, (*all)->agents()[i].latency);
    EXPECT_EQ(merged->agents()[i].records, (*all)->agents()[i].records);
  }
}

TEST_F(RollupTest, LeavesAShortRunAsItIs) {
  const RunInfo run = info(1, 3'500 * kSecond);
  make_store(run);
  auto db = open();
  Put put(*db);
  FakeAgent agent("pc-1", 100);
  {
    SQLite::Transaction transaction(*db);
    for (int s = 0; s < 3'500; ++s)
      put(agent.next({.start = s * kSecond, .requests = test::ok_requests(1)}));
    transaction.commit();
  }
  Rollup rollup(*db, kRollupPolicy);
  roll_up(*db, rollup);
  EXPECT_EQ(count(*db, "records"), 3'500);
}

// One step must not hold a commit up: it ends after a bounded number of records.
TEST_F(RollupTest, WorksInSmallSteps) {
  const RunInfo run = info(1, 4'000 * kSecond);
  make_store(run);
  auto db = open();
  Put put(*db);
  FakeAgent agent("pc-1", 100);
  SQLite::Transaction transaction(*db);
  for (int s = 0; s < 4'000; ++s)
    put(agent.next({.start = s * kSecond, .requests = test::ok_requests(1)}));
  Rollup rollup(*db, kShort);
  std::int64_t before = count(*db, "all_records");
  while (rollup.step()) {
    const auto now = count(*db, "all_records");
    EXPECT_LE(before - now, static_cast<std::int64_t>(kRecordsPerRollup) + 60);
    before = now;
  }
  EXPECT_LT(before, 300);
}

TEST_F(RollupTest, ThinsSamplesAndKeepsTheBordersOfBootsAndTheLargest) {
  const RunInfo run = info(1, 4'000 * kSecond);
  make_store(run);
  {
    auto store = Store::open(path_, {});
    ASSERT_TRUE(store.has_value());
    for (int s = 0; s < 4'000; ++s) {
      TargetSample sample =
          test::target_sample(s * kSecond.count(), s < 1'234 ? "boot-1" : "boot-2");
      sample.completed = static_cast<std::uint64_t>(s);
      sample.agents = {{"pc-1", 100, sample.completed, sample.completed, 0}};
      if (s == 777) sample.rss_bytes = 900 << 20;
      if (s == 999) sample.address_space_bytes = 950 << 20;
      (*store)->put(store_op::PutSample{run.id, sample});
    }
  }
  auto db = open();
  Put put(*db);
  FakeAgent agent("pc-1", 100);
  put(agent.next({.start = Duration{}, .length = 4'000 * kSecond}));
  put(agent.next({.start = 4'000 * kSecond}));
  Rollup rollup(*db, kShort);
  roll_up(*db, rollup);
  EXPECT_LT(count(*db, "target_samples"), 200);
  const auto loaded = load(run.id);
  std::set<std::int64_t> at;
  for (const auto& s : loaded->target_samples()) at.insert(s.at_ns / kSecond.count());
  for (const std::int64_t kept : {0, 777, 999, 1'233, 1'234, 3'990, 3'999})
    EXPECT_TRUE(at.contains(kept)) << kept;
  EXPECT_EQ(loaded->target_restarts(), 1U);
  EXPECT_EQ(loaded->summary().target.rss_bytes_max, std::uint64_t{900} << 20);
  EXPECT_EQ(loaded->summary().target.address_space_bytes_max, std::uint64_t{950} << 20);
  EXPECT_EQ(loaded->summary().target.received, 1'233U + 3'999U);
}

TEST_F(RollupTest, BoundsTheEventsAndForgetsTheLeastImportant) {
  const RunInfo run = info(1, 4'000 * kSecond);
  make_store(run);
  {
    auto store = Store::open(path_, {});
    ASSERT_TRUE(store.has_value());
    for (std::size_t i = 0; i < kMaxStoredEvents + 500; ++i) {
      const auto severity = i % 100 == 0 ? RunEvent::Severity::warning : RunEvent::Severity::info;
      (*store)->put(store_op::PutEvent{
          run.id, {static_cast<std::int64_t>(i), severity, "event " + std::to_string(i)}});
    }
  }
  auto db = open();
  Put put(*db);
  FakeAgent agent("pc-1", 100);
  put(agent.next({.start = Duration{}, .length = 4'000 * kSecond}));
  Rollup rollup(*db, kShort);
  roll_up(*db, rollup);
  EXPECT_LE(count(*db, "events"), static_cast<std::int64_t>(kMaxStoredEvents));
  EXPECT_EQ(count(*db, "events WHERE severity = 'warning'"), 105);
  EXPECT_EQ(count(*db, "events WHERE text = 'event 1'"), 1) << "a run's beginning stays";
  EXPECT_EQ(count(*db, "events WHERE text = 'event 1001'"), 0);
}

// The writer's own timer does it, while it goes on to commit.
TEST_F(RollupTest, HappensBetweenTheCommits) {
  const RunInfo run = info(1, 2'000 * kSecond);
  std::atomic<std::uint64_t> committed{0};
  auto opened = Store::open(
      path_, {[&](const std::vector<Mark>& marks) { committed = marks.back().seq; }, {}, {}},
      kShort);
  ASSERT_TRUE(opened.has_value());
  auto& store = **opened;
  store.put(store_op::PutRun{run, {}});
  FakeAgent agent("pc-1", 100);
  for (int s = 0; s < 2'000; ++s) {
    const Record r = agent.next({.start = s * kSecond, .requests = test::ok_requests(1)});
    store.put(store_op::PutRecord{r, wire::to_bytes(r)});
  }
  const auto deadline = BootClock::now() + seconds(30);
  std::int64_t rows = 2'000;
  for (std::uint64_t seq = 2'000; rows > 300 && BootClock::now() < deadline;) {
    const Record r = agent.next(
        {.start = static_cast<std::int64_t>(seq) * kSecond, .requests = test::ok_requests(1)});
    store.put(store_op::PutRecord{r, wire::to_bytes(r)});
    ++seq;
    std::promise<void> done;
    store.when_committed([&] { done.set_value(); });
    ASSERT_EQ(done.get_future().wait_for(seconds(20)), std::future_status::ready);
    EXPECT_EQ(committed, seq);
    SQLite::Database reader(path_, SQLite::OPEN_READONLY, 5'000);
    rows = count(reader, "all_records");
  }
  EXPECT_LE(rows, 300);
}

// bench/month.cc writes the whole store; here one record of each width stands for all of them.
TEST(RecordRow, LetsThirtyDaysOfTwentyAgentsFitIntoHalfAGigabyte) {
  constexpr std::uint64_t kAgents = 20, kRate = 3'000;
  constexpr std::uint64_t kRowAndIndex = 250;  // the other columns, twice the key, SQLite's own
  test::Flood flood(7);
  std::uint64_t bytes = 0;
  for (const auto& s : test::stretches(kRollupPolicy, std::chrono::hours(24 * 30), kSecond)) {
    const auto length_s = static_cast<std::uint64_t>(s.width / kSecond);
    const Record r = flood.record({"r6-soak-20261130-102619-x7q2", "pc-01", 1, length_s}, 1,
                                  Duration{}, s.width, kRate * length_s);
    EXPECT_THAT(broken_laws(r), testing::IsEmpty());
    const auto rows = static_cast<std::uint64_t>((s.to - s.from) / s.width) * kAgents;
    bytes += rows * (pack_record(r).size() + kRowAndIndex);
  }
  EXPECT_LT(bytes, 500'000'000U);
  EXPECT_GT(bytes, 100'000'000U) << "too small to be true";
}

TEST(RecordRow, GivesBackWhatWasPacked) {
  FakeAgent agent("pc-1", 100);
  const Record r = agent.next({.requests = test::ok_requests(7)});
  EXPECT_EQ(*unpack_record(pack_record(r)), r);
  EXPECT_EQ(*unpack_record(wire::to_bytes(r)), r) << "as an older store has it";
}

TEST(RecordRow, GivesBackEveryBucketOfEveryOutcome) {
  const auto seed = static_cast<std::uint64_t>(std::random_device{}());
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  for (int round = 0; round < 50; ++round) {
    FakeAgent agent("pc-1", 100);
    Record r = agent.next({});
    for (auto& s : r.series) {
      for (auto n = random() % 50; n > 0; --n) {
        const auto value = static_cast<std::int64_t>(random() >> (20 + random() % 40));
        s.latency.record(value, random() >> (24 + random() % 40));
        s.service_time.record(value / 2, 1 + random() % 300);
      }
    }
    r.send_lag.record(1, 7);
    EXPECT_EQ(*unpack_record(pack_record(r)), r);
  }
}

TEST(RecordRow, RefusesWhatIsDamaged) {
  FakeAgent agent("pc-1", 100);
  const std::string packed = pack_record(agent.next({.requests = test::ok_requests(3)}));
  EXPECT_FALSE(unpack_record("").has_value());
  for (std::size_t length = 1; length < packed.size(); ++length)
    EXPECT_FALSE(unpack_record(packed.substr(0, length)).has_value()) << length;
  std::string huge = packed;
  huge[4] = '\x7f';
  EXPECT_FALSE(unpack_record(huge).has_value());
}

}  // namespace
}  // namespace spate::controller
