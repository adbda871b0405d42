// Each call of a short life of a store that changes its file, in turn: killed before and within it,
// the power cut, EIO, ENOSPC. Whatever it is, the next controller opens the store, has everything
// that was reported as committed, and takes over the rest.

#include <SQLiteCpp/SQLiteCpp.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <future>
#include <new>
#include <vector>

#include "common/plan_json.h"
#include "controller/rollup.h"
#include "controller/store.h"
#include "controller/store_reader.h"
#include "proto/wire.h"
#include "tests/unit/controller/run_data.h"
#include "tests/unit/faulty_vfs.h"
#include "tests/unit/temporary_directory.h"

namespace spate::controller {
namespace {

using namespace std::chrono_literals;
using faulty_vfs::Fault;

constexpr std::uint64_t kRecords = 12;
constexpr std::uint64_t kLastOfLife = 8;  // the rest is for the controller after it
constexpr std::uint64_t kRequests = 5;    // of each
// Merges what is seconds old.
constexpr RollupPolicy kPolicy = {{{{2s, 4s}, {20s, 20s}, {100s, 100s}}}, std::chrono::hours(1)};

// What outlives a process that is killed: its agent's knowledge of it.
struct World {
  std::uint64_t calls = 0;
  std::atomic<std::uint64_t> committed = 0;  // highest seq that was reported
  std::atomic<bool> has_run = false;         // its first row was reported
};

RunInfo run_info(RunState state) {
  RunInfo info = test::run_info(1, {test::phase("flood", 12s)});
  info.plan.call.method = "spate.target.v1.Calls/Call";
  info.plan.call.message_json = "{}";
  info.plan_text = to_json(info.plan);
  info.state = state;
  info.end = state == RunState::finished ? RunEnd::completed : RunEnd::crashed;
  return info;
}

Record record(std::uint64_t seq) {
  test::FakeAgent agent("pc-1", 100);
  agent.skip(seq - 1);
  test::FakeAgent::Interval interval;
  interval.start = static_cast<int>(seq - 1) * test::kSecond;
  interval.requests = test::ok_requests(kRequests);
  return agent.next(interval);
}

// Returns what is wrong, or nothing.
std::string missing_in(const Restored& restored, const World& world) {
  const bool has_run = !restored.runs.empty();
  if (world.has_run && !has_run) return "the run was reported as stored, and is not";
  const auto* run = has_run ? &restored.runs.front() : nullptr;
  const std::uint64_t mark = run && !run->marks.empty() ? run->marks.front().seq : 0;
  if (mark < world.committed)
    return "committed " + std::to_string(world.committed) + ", stored " + std::to_string(mark);
  if (run && run->finished_requests != mark * kRequests)
    return "the mark is " + std::to_string(mark) + ", and there are " +
           std::to_string(run->finished_requests) + " requests";
  return "";
}

// One controller's life: it opens the store, stores what is new to it, and ends in good order; the
// closing makes the commit. Returns what is wrong, or nothing.
std::string serve(const std::string& path, World& world, std::uint64_t last, RunState state) {
  Store::Callbacks callbacks;
  callbacks.committed = [&world](std::vector<Mark> marks) { world.committed = marks.at(0).seq; };
  auto store = Store::open(path, std::move(callbacks), kPolicy);
  if (!store) return store.error().message;
  const Restored restored = (*store)->take_restored();
  if (std::string missing = missing_in(restored, world); !missing.empty()) return missing;
  const bool has_marks = !restored.runs.empty() && !restored.runs.front().marks.empty();
  const std::uint64_t mark = has_marks ? restored.runs.front().marks.front().seq : 0;
  const std::string id = run_info(state).id;
  (*store)->put(store_op::PutRun{run_info(state), {}});
  (*store)->put(store_op::PutDescriptors{id, std::string(3000, 'd')});
  (*store)->put(store_op::PutEvent{id, {1, RunEvent::Severity::info, "controller started"}});
  for (std::uint64_t seq = mark + 1; seq <= last; ++seq) {
    const Record r = record(seq);
    (*store)->put(store_op::PutRecord{r, wire::to_bytes(r)});
  }
  (*store)->put(store_op::PutSample{id, test::target_sample(static_cast<std::int64_t>(last))});
  (*store)->put(store_op::PutAlive{static_cast<std::int64_t>(last)});
  (*store)->when_committed([&world] { world.has_run = true; });
  return "";
}

// What the writer does between its commits.
void roll_up(const std::string& path) try {
  SQLite::Database db(path, SQLite::OPEN_READWRITE, 5000);
  Rollup rollup(db, kPolicy);
  for (bool has_worked = true; has_worked;) {
    SQLite::Transaction transaction(db);
    has_worked = rollup.step();
    transaction.commit();
  }
} catch (const SQLite::Exception&) {
  // It is tried again later.
}

// A controller, and the next one: where the disk does not serve the first, it serves the second.
void live(const std::string& path, World& world) {
  serve(path, world, 4, RunState::running);
  roll_up(path);
  serve(path, world, kLastOfLife, RunState::running);
}

class StoreCrash : public testing::TestWithParam<Fault> {
 protected:
  StoreCrash() {
    void* const memory =
        ::mmap(nullptr, sizeof(World), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    world_ = new (memory) World;
  }
  ~StoreCrash() override { ::munmap(world_, sizeof(World)); }

  // Returns the exit status of the process to which it happened.
  int first_life(Fault fault, std::uint64_t at) {
    new (world_) World;
    std::filesystem::remove_all(folder_.path());
    std::filesystem::create_directory(folder_.path());
    const pid_t child = ::fork();
    if (child == 0) {
      faulty_vfs::Disk::strike(fault, at, &world_->calls);
      live(path_, *world_);
      ::_exit(0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  void second_life() {
    ASSERT_EQ(serve(path_, *world_, kRecords, RunState::finished), "");
    roll_up(path_);
  }

  void check() const {
    EXPECT_EQ(world_->committed, kRecords);
    const auto run = load_run(path_, run_info(RunState::finished).id);
    ASSERT_TRUE(run) << run.error().message;
    const Summary summary = (*run)->summary();
    EXPECT_EQ(summary.requests.ok, kRecords * kRequests);
    EXPECT_EQ(summary.records.gaps, 0U);
  }

  faulty_vfs::Disk disk_;
  TemporaryDirectory folder_;
  const std::string path_ = folder_ / "runs.sqlite";
  World* world_ = nullptr;
};

TEST_P(StoreCrash, HasWhatItReportedAtAnyCallThatChangesItsFile) {
  ASSERT_EQ(first_life(Fault::none, 0), 0);
  const std::uint64_t calls = world_->calls;
  EXPECT_EQ(world_->committed, kLastOfLife);
  EXPECT_GT(calls, 50U) << "the faults are not where the disk is";
  ASSERT_NO_FATAL_FAILURE(second_life());
  ASSERT_NO_FATAL_FAILURE(check());
  std::uint64_t tried = 0;
  std::uint64_t died = 0;
  for (std::uint64_t at = 1; at <= calls; at += faulty_vfs::kStep) {
    ++tried;
    SCOPED_TRACE("call " + std::to_string(at));
    const int status = first_life(GetParam(), at);
    EXPECT_TRUE(status == 0 || status == faulty_vfs::kDied) << status;
    died += status == faulty_vfs::kDied ? 1 : 0;
    ASSERT_NO_FATAL_FAILURE(second_life());
    ASSERT_NO_FATAL_FAILURE(check());
    if (HasFailure()) return;
  }
  // Not of all calls: a slow machine may make more commits, one time more than another.
  EXPECT_GE(died, faulty_vfs::is_survived(GetParam()) ? 0 : tried / 2);
}

// The process that meets an error goes on by itself. Returns how many calls its commit took, or -1.
int commit_with_error(const std::string& path, std::uint64_t at) {
  const faulty_vfs::Disk disk;
  std::uint64_t calls = 0;
  std::uint64_t committed = 0;  // of the writer's thread
  std::promise<void> done;
  Store::Callbacks callbacks;
  callbacks.committed = [&](std::vector<Mark> marks) { committed = marks.at(0).seq; };
  auto store = Store::open(path, std::move(callbacks), kPolicy);
  if (!store) return -1;
  faulty_vfs::Disk::strike(Fault::io_error, at, &calls);
  (*store)->put(store_op::PutRun{run_info(RunState::running), {}});
  for (std::uint64_t seq = 1; seq <= 4; ++seq) {
    const Record r = record(seq);
    (*store)->put(store_op::PutRecord{r, wire::to_bytes(r)});
  }
  (*store)->when_committed([&] { done.set_value(); });
  if (done.get_future().wait_for(30s) != std::future_status::ready || committed != 4) return -1;
  return static_cast<int>(calls);
}

TEST(StoreErrors, CommitsAfterAnErrorAtAnyCallOfACommit) {
  const TemporaryDirectory folder;
  const int calls = commit_with_error(folder / "undisturbed.sqlite", 0);
  ASSERT_GT(calls, 5);
  std::vector<pid_t> children;  // all at once: most of the time they wait
  for (int at = 1; at <= calls; ++at) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    const std::string path = folder / (std::to_string(at) + ".sqlite");
    ::_exit(commit_with_error(path, static_cast<std::uint64_t>(at)) > 0 ? 0 : 1);
  }
  for (std::size_t i = 0; i < children.size(); ++i) {
    int status = -1;
    EXPECT_EQ(::waitpid(children[i], &status, 0), children[i]);
    EXPECT_EQ(status, 0) << "call " << i + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(, StoreCrash, testing::ValuesIn(faulty_vfs::kFaults),
                         [](const auto& one) { return faulty_vfs::text(one.param); });

}  // namespace
}  // namespace spate::controller
