// Each call of a short life of a spool that changes its file, in turn: killed before and within it,
// the power cut, EIO, ENOSPC. Whatever it is, the next process delivers everything that was
// counted, once, with the numbers that it had when it was first sent.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <new>

#include "agent/spool.h"
#include "agent/spool_file.h"
#include "tests/unit/agent/record_fixture.h"
#include "tests/unit/faulty_vfs.h"
#include "tests/unit/temporary_directory.h"

namespace spate::agent {
namespace {

using namespace std::chrono_literals;
using faulty_vfs::Fault;

constexpr std::uint64_t kIntervals = 12;
constexpr Spool::Limits kLimits{.bytes = 7'000, .window = 4};  // so small that it merges
const AccountKey kAccount{"run", 1};
constexpr int kNotServed = 3;  // exit status of a process that the disk did not let start

Record interval(std::uint64_t n) {
  Record r = lawful(static_cast<int>(n) * 1s, 1s, 5, 5, 10 + n);
  r.epoch = n < 6 ? 1 : 2;
  return r;
}

// What outlives a process that is killed, and the controller, who never dies here.
struct World {
  std::uint64_t calls = 0;
  std::uint64_t counted = 0;                            // intervals that the workers have closed
  std::uint64_t promised = 0;                           // of them, those that outlive the machine
  std::uint64_t mark = 0;                               // the controller's
  std::uint64_t received = 0;                           // requests sent, of records up to the mark
  std::array<std::uint64_t, 2 * kIntervals> content{};  // of each seq, as it first came
  std::array<char, 200> broken{};

  void fail(const std::string& what) {
    if (broken[0] == '\0') what.copy(broken.data(), broken.size() - 1);
  }
  void take(const Record& r) {
    const std::uint64_t content_now = r.counters.sent * 1000 + r.first();
    for (std::uint64_t seq = r.first(); seq <= r.key.seq; ++seq) {
      if (seq >= content.size()) return fail("seq " + std::to_string(seq));
      if (content[seq] != 0 && content[seq] != content_now)
        fail("seq " + std::to_string(seq) + " came again with other numbers");
      content[seq] = content_now;
    }
    if (r.key.seq <= mark) return;
    if (r.first() != mark + 1)
      fail("after " + std::to_string(mark) + " comes " + std::to_string(r.first()));
    mark = r.key.seq;
    received += r.counters.sent;
  }
};

void deliver(Spool& spool, World& world, int most) {
  for (int i = 0; i < most; ++i) {
    const auto record = spool.next();
    if (!record) return;
    world.take(*record);
  }
}

void acknowledge(Spool& spool, const World& world) {
  if (!spool.acknowledge(kAccount, world.mark)) spool.release_held();
}

// The life of the agent's first process. Returns its exit status.
int live(const std::string& path, const std::string& shelf, World& world) {
  SpoolFile file(path, shelf);
  auto opened = Spool::open(file, kLimits);
  if (!opened) return kNotServed;  // whoever started it tries again
  Spool& spool = **opened;
  if (!spool.begin(kAccount.incarnation, "", {})) return kNotServed;
  spool.open_account(kAccount, "pc-1", "");
  spool.stream_up("");
  for (std::uint64_t n = 0; n < kIntervals; ++n) {
    if (n == 2) spool.stream_down();  // a backlog, which is merged
    if (n == 9) spool.stream_up("");
    if (spool.in_trouble()) spool.retry();
    ++world.counted;
    spool.add(interval(n), {n + 1});
    if (!spool.in_trouble()) world.promised = world.counted;
    deliver(spool, world, 2);
    if (n % 3 == 1) acknowledge(spool, world);
  }
  return 0;
}

// What the workers of a killed process had counted and its spool has not: still in memory.
std::vector<LeftBehind> left_behind(const Spool& spool, const World& world) {
  const auto known = spool.find(kAccount);
  LeftBehind left{kAccount, "pc-1", {}, {world.counted}};
  const bool has_some = known && !known->taken.empty();
  for (std::uint64_t n = has_some ? known->taken[0] : 0; n < world.counted; ++n) {
    left.records.push_back(interval(n));
    left.records.back().key = {"run", "pc-1", kAccount.incarnation, 0};
  }
  if (left.records.empty()) return {};
  return {std::move(left)};
}

class SpoolCrash : public testing::TestWithParam<Fault> {
 protected:
  SpoolCrash() {
    void* const memory =
        ::mmap(nullptr, sizeof(World), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    world_ = new (memory) World;
  }
  ~SpoolCrash() override { ::munmap(world_, sizeof(World)); }

  // Returns the exit status of the process to which it happened.
  int first_life(Fault fault, std::uint64_t at) {
    *world_ = World{};
    std::filesystem::remove_all(folder_.path());
    std::filesystem::create_directory(folder_.path());
    const pid_t child = ::fork();
    if (child == 0) {
      faulty_vfs::Disk::strike(fault, at, &world_->calls);
      ::_exit(live(path_, shelf_, *world_));
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  void second_life(bool is_power_cut) {
    if (is_power_cut) std::filesystem::remove(shelf_);
    SpoolFile file(path_, shelf_);
    auto spool = Spool::open(file, kLimits);
    ASSERT_TRUE(spool) << spool.error().message;
    const auto left = is_power_cut ? std::vector<LeftBehind>{} : left_behind(**spool, *world_);
    const auto begun = (*spool)->begin(kAccount.incarnation + 1, "killed", left);
    ASSERT_TRUE(begun) << begun.error().message;
    for (int i = 0; i < 20 && !(*spool)->empty(); ++i) {
      (*spool)->stream_up("");
      (*spool)->release_held();
      deliver(**spool, *world_, 3);
      acknowledge(**spool, *world_);
    }
    EXPECT_TRUE((*spool)->empty());
  }

  static std::uint64_t sent_in(std::uint64_t intervals) {
    std::uint64_t sum = 0;
    for (std::uint64_t n = 0; n < intervals; ++n) sum += interval(n).counters.sent;
    return sum;
  }

  void check(bool is_power_cut) const {
    EXPECT_STREQ(world_->broken.data(), "");
    EXPECT_LE(world_->received, sent_in(world_->counted)) << "counted twice";
    EXPECT_GE(world_->received, sent_in(is_power_cut ? world_->promised : world_->counted))
        << "lost";
  }

  faulty_vfs::Disk disk_;
  TemporaryDirectory folder_;
  const std::string path_ = folder_ / "spool.sqlite";
  const std::string shelf_ = folder_ / "shelf";
  World* world_ = nullptr;
};

TEST_P(SpoolCrash, LosesNothingAtAnyCallThatChangesItsFile) {
  const bool is_power_cut = GetParam() == Fault::power_cut;
  ASSERT_EQ(first_life(Fault::none, 0), 0);
  const std::uint64_t calls = world_->calls;
  ASSERT_NO_FATAL_FAILURE(second_life(false));
  check(false);
  EXPECT_EQ(world_->received, sent_in(kIntervals));
  EXPECT_GT(calls, 100U) << "the faults are not where the disk is";
  std::uint64_t tried = 0;
  std::uint64_t died = 0;
  for (std::uint64_t at = 1; at <= calls; at += faulty_vfs::kStep) {
    ++tried;
    SCOPED_TRACE("call " + std::to_string(at));
    const int status = first_life(GetParam(), at);
    died += status == faulty_vfs::kDied ? 1 : 0;
    EXPECT_TRUE(status == 0 || status == kNotServed || status == faulty_vfs::kDied) << status;
    ASSERT_NO_FATAL_FAILURE(second_life(is_power_cut));
    check(is_power_cut);
    if (HasFailure()) return;
  }
  EXPECT_EQ(died, faulty_vfs::is_survived(GetParam()) ? 0 : tried);
}

INSTANTIATE_TEST_SUITE_P(, SpoolCrash, testing::ValuesIn(faulty_vfs::kFaults),
                         [](const auto& one) { return faulty_vfs::text(one.param); });

}  // namespace
}  // namespace spate::agent
