#include "controller/store.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>

#include "common/plan_json.h"
#include "controller/store_reader.h"
#include "controller/store_schema.h"
#include "proto/wire.h"
#include "tests/unit/controller/run_data.h"
#include "tests/unit/controller/store_schema_v1.h"

namespace spate::controller {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class StoreTest : public testing::Test {
 protected:
  StoreTest() {
    std::string pattern = (fs::temp_directory_path() / "spate-store-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
    path_ = (directory_ / "sub" / "runs.sqlite").string();
  }
  ~StoreTest() override { fs::remove_all(directory_); }

  std::unique_ptr<Store> open(Store::Callbacks callbacks = {}) {
    auto store = Store::open(path_, std::move(callbacks));
    EXPECT_TRUE(store.has_value()) << (store ? "" : store.error().message);
    return store ? std::move(*store) : nullptr;
  }
  Error refusal() {
    auto store = Store::open(path_, {});
    EXPECT_FALSE(store.has_value());
    return store ? Error{} : store.error();
  }
  static void wait(Store& store) {
    std::promise<void> done;
    store.when_committed([&] { done.set_value(); });
    ASSERT_EQ(done.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  }
  static RunInfo info() {
    RunInfo info = test::run_info(2, {test::phase("flood", std::chrono::seconds(2))});
    info.plan.call.method = "spate.target.v1.Calls/Call";
    info.plan.call.message_json = "{}";
    info.plan.seed = 42;
    info.plan_text = to_json(info.plan);
    info.overrides = {"load.connections=10", "name=demo"};
    info.state = RunState::running;
    info.end = RunEnd::crashed;
    return info;
  }
  void put_records(Store& store, int count) {
    for (int i = 0; i < count; ++i) {
      test::FakeAgent::Interval interval;
      interval.start = i * test::kSecond;
      interval.requests = test::ok_requests(5);
      const Record record = agent_.next(interval);
      store.put(store_op::PutRecord{record, wire::to_bytes(record)});
    }
  }

  fs::path directory_;
  std::string path_;
  test::FakeAgent agent_{"pc-1", 0xfedcba9876543210U};
};

TEST_F(StoreTest, GivesBackWhatWasPut) {
  RunInfo run = info();
  {
    auto store = open();
    store->put(store_op::PutRun{run, {}});
    put_records(*store, 2);
    TargetSample sample = test::target_sample(5);
    sample.agents.push_back({"pc-1", 0xfedcba9876543210U, 10, 9, 1});
    store->put(store_op::PutSample{run.id, sample});
    store->put(
        store_op::PutEvent{run.id, {-7, RunEvent::Severity::warning, "agent lost agent=pc-2"}});
    run.state = RunState::finished;
    run.end = RunEnd::stopped;
    run.end_reason = "stopped by the user";
    run.length = std::chrono::seconds(2);
    run.agents[0].last_seq = 2;
    run.agents[0].start_skew_ns = -12;
    run.agents[1].lost_reason = "gone";
    run.agents[1].lost_at_ns = 99;
    run.agents[1].dead = {{3, 17, "killed"}, {4, {}, "power loss or reboot"}};
    store->put(store_op::PutRun{run, {3, "VALID", 10}});
    wait(*store);
    // Read beside the writer.
    const auto listed = list_runs(path_);
    ASSERT_TRUE(listed.has_value()) << listed.error().message;
    ASSERT_EQ(listed->size(), 1U);
    EXPECT_EQ(listed->front().verdict, "VALID");
    EXPECT_EQ(listed->front().requests, 10U);
    EXPECT_EQ(listed->front().agents, 2U);
  }
  const auto loaded = load_run(path_, run.id);
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
  const RunInfo& got = (*loaded)->info();
  EXPECT_EQ(got.end, RunEnd::stopped);
  EXPECT_EQ(got.end_reason, "stopped by the user");
  EXPECT_EQ(got.plan.seed, 42U);
  EXPECT_EQ(got.plan.phases.size(), 1U);
  EXPECT_EQ(got.plan_text, run.plan_text);
  EXPECT_EQ(got.overrides, run.overrides);
  EXPECT_EQ(got.agents[0].start_skew_ns, -12);
  EXPECT_EQ(got.agents[0].last_seq, 2U);
  EXPECT_EQ(got.agents[1].lost_at_ns, 99);
  EXPECT_EQ(got.agents[1].start_skew_ns, 0);
  EXPECT_EQ(got.agents[1].dead, run.agents[1].dead);
  ASSERT_FALSE((*loaded)->agents().empty());
  EXPECT_EQ((*loaded)->agents()[0].records, 2U);
  EXPECT_EQ((*loaded)->agents()[0].incarnation, 0xfedcba9876543210U);
  ASSERT_EQ((*loaded)->target_samples().size(), 1U);
  EXPECT_EQ((*loaded)->target_samples()[0].agents[0].completed, 9U);
  ASSERT_EQ((*loaded)->events().size(), 1U);
  EXPECT_EQ((*loaded)->events()[0].severity, RunEvent::Severity::warning);
  EXPECT_EQ((*loaded)->summary().records.duplicates, 3U);
}

TEST_F(StoreTest, KeepsChangesAndTheSharesTheyMake) {
  RunInfo run = info();
  Change change;
  change.epoch = 2;
  change.at = std::chrono::seconds(1);
  change.who = "alice";
  change.reason = "why";
  change.what = "load.connections=6";
  change.canary = true;
  change.guard = std::chrono::milliseconds(2500);
  change.wall_ms = 77;
  change.parts.push_back({{1}, {}});
  change.parts[0].patch.connections = 6;
  change.parts[0].patch.message_json = R"({"a":1})";
  Change move;
  move.epoch = 3;
  move.at = std::chrono::milliseconds(1500);
  move.absent = {0};
  move.who = "controller";
  run.changes = {change, move};
  {
    auto store = open();
    store->put(store_op::PutRun{run, {}});
    for (const Change& c : run.changes) store->put(store_op::PutChange{run.id, c});
    store->put(store_op::PutEpochs{run.id, *timeline_of(run)});
    wait(*store);
  }
  const auto loaded = load_run_info(path_, run.id);
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
  EXPECT_EQ(loaded->changes, run.changes);
  EXPECT_EQ(*timeline_of(*loaded), *timeline_of(run));
  SQLite::Database db(path_, SQLite::OPEN_READONLY);
  EXPECT_EQ(db.execAndGet("SELECT connections FROM epoch_shares WHERE epoch = 2 AND position = 1")
                .getInt(),
            6);
  EXPECT_EQ(db.execAndGet("SELECT count(*) FROM epoch_shares").getInt(), 6);
  EXPECT_EQ(db.execAndGet("SELECT count(*) FROM parameters").getInt(), 2) << "each once";
}

TEST_F(StoreTest, ReportsMarksAfterTheCommit) {
  std::promise<std::vector<Mark>> committed;
  auto store =
      open({[&](std::vector<Mark> marks) { committed.set_value(std::move(marks)); }, {}, {}});
  store->put(store_op::PutRun{info(), {}});
  put_records(*store, 3);
  auto future = committed.get_future();
  ASSERT_EQ(future.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  const auto marks = future.get();
  ASSERT_EQ(marks.size(), 1U);
  EXPECT_EQ(marks[0], (Mark{info().id, "pc-1", 0xfedcba9876543210U, 3}));
  SQLite::Database db(path_, SQLite::OPEN_READONLY);
  EXPECT_EQ(db.execAndGet("SELECT count(*) FROM records").getInt(), 3);
}

// A controller that died between the commit and the acknowledgement: what it had committed is found
// again.
TEST_F(StoreTest, GivesAnUnfinishedRunToTheNextProcess) {
  RunInfo run = info();
  run.start_boot_ns = 77;
  run.boot_id = "boot";
  run.agents[0].agent_id = "id-1";
  {
    auto store = open();
    store->put(store_op::PutRun{run, {}});
    store->put(store_op::PutDescriptors{run.id, std::string("a\0b", 3)});
    store->put(store_op::PutAlive{1234});
    put_records(*store, 4);
    wait(*store);
  }
  auto store = open();
  Restored restored = store->take_restored();
  EXPECT_EQ(restored.term, 2U);
  EXPECT_EQ(restored.cluster.size(), 32U);
  EXPECT_EQ(restored.alive_wall_ms, 1234);
  ASSERT_EQ(restored.runs.size(), 1U);
  const Restored::Run& one = restored.runs[0];
  EXPECT_EQ(one.info.start_boot_ns, 77);
  EXPECT_EQ(one.info.boot_id, "boot");
  EXPECT_EQ(one.info.agents[0].agent_id, "id-1");
  EXPECT_EQ(one.info.state, RunState::running);
  EXPECT_EQ(one.descriptor_set, std::string("a\0b", 3));
  ASSERT_EQ(one.marks.size(), 1U);
  EXPECT_EQ(one.marks[0].seq, 4U);
  EXPECT_EQ(one.aggregate->agents()[0].records, 4U);
  EXPECT_EQ(one.finished_requests, 20U);
  EXPECT_EQ(one.covered_to.at("pc-1"), std::chrono::seconds(4));
}

TEST_F(StoreTest, KnowsEndedRunsForWhatComesLate) {
  RunInfo run = info();
  run.agents[0].agent_id = "id-1";
  run.state = RunState::finished;
  {
    auto store = open();
    store->put(store_op::PutRun{run, {0, "VALID", 20}});
    put_records(*store, 4);
    wait(*store);
  }
  auto store = open();
  const Restored restored = store->take_restored();
  EXPECT_TRUE(restored.runs.empty());
  ASSERT_EQ(restored.closed.size(), 1U);
  EXPECT_EQ(restored.closed[0].agents.at("pc-1").agent_id, "id-1");
  EXPECT_EQ(restored.closed[0].agents.at("pc-1").incarnation, run.agents[0].incarnation);
  EXPECT_EQ(restored.closed[0].marks[0].seq, 4U);
  Record late =
      test::FakeAgent("pc-1", 0xfedcba9876543210U).next({.requests = test::ok_requests(5)});
  late.key.run = run.id;
  late.key.seq = 5;
  store->put(store_op::PutRecord{late, wire::to_bytes(late), true});
  wait(*store);
  EXPECT_EQ(list_runs(path_)->front().requests, 25U);
}

TEST_F(StoreTest, HearsLateOfAProcessThatDied) {
  RunInfo run = info();
  run.state = RunState::finished;
  const std::uint64_t later = run.agents[0].incarnation + 1;
  {
    auto store = open();
    store->put(store_op::PutRun{run, {0, "VALID", 0}});
    store->put(store_op::PutDead{run.id, "pc-1", {later, 3, "killed"}});
    wait(*store);
  }
  auto store = open();
  EXPECT_EQ(store->take_restored().closed.at(0).agents.at("pc-1").incarnation, later);
  const auto read = load_run_info(path_, run.id);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->agents.at(0).dead, (std::vector{DeadIncarnation{later, 3, "killed"}}));
}

TEST_F(StoreTest, WritesNothingOnceAnotherControllerHasRaisedTheTerm) {
  std::promise<std::uint64_t> taken;
  Store::Callbacks callbacks;
  callbacks.taken_over = [&](std::uint64_t term) { taken.set_value(term); };
  auto store = open(std::move(callbacks));
  SQLite::Database(path_, SQLite::OPEN_READWRITE, 5000).exec("UPDATE cluster SET term = term + 1");
  store->put(store_op::PutRun{info(), {}});
  auto future = taken.get_future();
  ASSERT_EQ(future.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(future.get(), 2U);
  store.reset();
  EXPECT_TRUE(list_runs(path_)->empty());
}

TEST_F(StoreTest, MeasuresItsSpace) {
  std::promise<StoreSpace> measured;
  Store::Callbacks callbacks;
  callbacks.space = [&](StoreSpace space) { measured.set_value(space); };  // once in 10 s
  auto store = open(std::move(callbacks));
  auto future = measured.get_future();
  ASSERT_EQ(future.wait_for(std::chrono::seconds(5)), std::future_status::ready);
  const StoreSpace space = future.get();
  EXPECT_GT(space.used_bytes, 4096U);
  EXPECT_LE(space.used_bytes, fs::file_size(path_) + fs::file_size(path_ + "-wal"));
  EXPECT_GT(space.room_bytes, 0U);
}

TEST_F(StoreTest, RefusesAStoreInUse) {
  auto store = open();
  EXPECT_THAT(refusal().message, HasSubstr("in use by another spate-controller"));
}

TEST_F(StoreTest, RefusesADamagedStore) {
  {
    auto store = open();
    store->put(store_op::PutRun{info(), {}});
    put_records(*store, 50);
    wait(*store);
  }
  const auto size = fs::file_size(path_);
  {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    for (auto at = static_cast<std::streamoff>(4096); at < static_cast<std::streamoff>(size);
         at += 512) {
      file.seekp(at);
      file.write("\xff\xfe\xfd\xfc", 4);
    }
  }
  EXPECT_THAT(refusal().message, HasSubstr("is damaged"));
  EXPECT_EQ(fs::file_size(path_), size);
}

TEST_F(StoreTest, RefusesATruncatedStore) {
  {
    auto store = open();
    store->put(store_op::PutRun{info(), {}});
    put_records(*store, 50);
    wait(*store);
  }
  fs::resize_file(path_, fs::file_size(path_) / 2);
  EXPECT_THAT(refusal().message, HasSubstr("is damaged"));
}

TEST_F(StoreTest, RefusesAnEmptyFile) {
  fs::create_directories(fs::path(path_).parent_path());
  std::ofstream(path_).flush();
  EXPECT_THAT(refusal().message, HasSubstr("is damaged"));
}

TEST_F(StoreTest, RefusesANewerStore) {
  open().reset();
  SQLite::Database(path_, SQLite::OPEN_READWRITE).exec("PRAGMA user_version = 99");
  EXPECT_THAT(refusal().message, HasSubstr("newer spate (schema 99, this one knows " +
                                           std::to_string(kSchemaVersion) + ")"));
}

TEST_F(StoreTest, BringsAnOlderStoreUpToDate) {
  const auto columns = [](const std::string& path) {
    SQLite::Database db(path, SQLite::OPEN_READONLY);
    SQLite::Statement row(db,
                          "SELECT t.name, c.name, c.type, c.dflt_value FROM sqlite_schema t, "
                          "pragma_table_info(t.name) c ORDER BY t.name, c.name");
    std::vector<std::string> all;
    while (row.executeStep()) {
      all.push_back(row.getColumn(0).getString() + "." + row.getColumn(1).getString() + " " +
                    row.getColumn(2).getString() + " " + row.getColumn(3).getString());
    }
    return all;
  };
  open().reset();
  const auto fresh = columns(path_);
  fs::remove(path_);
  const Record record = test::FakeAgent("pc-1", 7).next({.requests = test::ok_requests(5)});
  {
    SQLite::Database db(path_, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    db.exec(test::kSchemaV1);
    db.exec("PRAGMA application_id = " + std::to_string(kApplicationId));
    db.exec("PRAGMA user_version = 1");
    db.exec(
        "INSERT INTO runs VALUES ('old', 'demo', 'finished', 'completed', '', 1, 2, 3, 0, 'VALID', "
        "5)");
    SQLite::Statement plan(db, "INSERT INTO plans VALUES ('old', '', '', ?)");
    plan.bind(1, to_json(info().plan));
    plan.exec();
    db.exec("INSERT INTO agents VALUES ('old', 0, 'pc-1', 7, 10, 10, 0, 0, 1, '', NULL)");
    SQLite::Statement row(db,
                          "INSERT INTO records VALUES (1, 'old', 'pc-1', 7, 1, 1, 0, 0, 0, "
                          "1000000000, 5, 5, 5, 0, 0, 0, 10, 1, 1, ?)");
    const std::string bytes = wire::to_bytes(record);
    row.bind(1, static_cast<const void*>(bytes.data()), static_cast<int>(bytes.size()));
    row.exec();
    db.exec("INSERT INTO marks VALUES ('old', 'pc-1', 7, 1)");
  }
  auto store = open();
  EXPECT_EQ(columns(path_), fresh);
  const auto loaded = load_run(path_, "old");
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
  EXPECT_EQ((*loaded)->agents().at(0).records, 1U);
  const Restored restored = store->take_restored();
  EXPECT_EQ(restored.term, 1U);
  ASSERT_EQ(restored.closed.size(), 1U);
  EXPECT_EQ(restored.closed[0].agents.at("pc-1").agent_id, "");
  EXPECT_EQ(restored.closed[0].marks[0].seq, 1U);
}

TEST_F(StoreTest, RefusesADatabaseOfAnotherProgram) {
  fs::create_directories(fs::path(path_).parent_path());
  SQLite::Database(path_, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE).exec("CREATE TABLE t (x)");
  EXPECT_THAT(refusal().message, HasSubstr("belongs to another program"));
  EXPECT_EQ(SQLite::Database(path_).execAndGet("PRAGMA journal_mode").getString(), "delete");
}

TEST_F(StoreTest, RefusesAFileThatIsNoDatabase) {
  fs::create_directories(fs::path(path_).parent_path());
  std::ofstream(path_) << "this is a text file, not a database";
  EXPECT_THAT(refusal().message, HasSubstr("not an SQLite file"));
}

TEST_F(StoreTest, UsesTheStatedDiscipline) {
  auto store = open();
  store->put(store_op::PutRun{info(), {}});
  wait(*store);
  SQLite::Database db(path_, SQLite::OPEN_READONLY);
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(db.execAndGet("PRAGMA journal_mode").getString(), "wal");
  EXPECT_EQ(db.execAndGet("PRAGMA application_id").getInt(), kApplicationId);
  EXPECT_EQ(db.execAndGet("PRAGMA user_version").getInt(), kSchemaVersion);
  EXPECT_EQ(db.execAndGet("SELECT count(*) FROM pragma_table_list WHERE schema = 'main' AND type = "
                          "'table' AND name"
                          " NOT LIKE 'sqlite_%' AND strict = 0")
                .getInt(),
            0);
}

// A file size limit stands for a full disk: writes fail, nothing is acknowledged, and it goes on by
// itself.
TEST_F(StoreTest, KeepsRecordsWhileItCannotWriteAndGoesOnByItself) {
  std::promise<void> trouble, recovered;
  std::atomic<int> marks{0};
  auto store = open({[&](std::vector<Mark> m) { marks = static_cast<int>(m.back().seq); },
                     [&, told = false](const std::string&) mutable {
                       if (!std::exchange(told, true)) trouble.set_value();
                     },
                     [&] { recovered.set_value(); }});
  store->put(store_op::PutRun{info(), {}});
  wait(*store);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  put_records(*store, 20);
  EXPECT_EQ(trouble.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(marks, 0);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(recovered.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  wait(*store);
  EXPECT_EQ(marks, 20);
  EXPECT_EQ((*load_run(path_, info().id))->agents()[0].records, 20U);
}

TEST_F(StoreTest, SaysThatARunIsNotThere) {
  open().reset();
  EXPECT_EQ(load_run(path_, "nothing").error().code, ErrorCode::not_found);
  EXPECT_EQ(list_runs(path_, "nothing").error().code, ErrorCode::not_found);
  EXPECT_TRUE(list_runs(path_)->empty());
}

}  // namespace
}  // namespace spate::controller
