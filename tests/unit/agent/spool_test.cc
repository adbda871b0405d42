#include "agent/spool.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "common/random.h"
#include "tests/unit/agent/model_disk.h"
#include "tests/unit/agent/record_fixture.h"

namespace spate::agent {
namespace {

using namespace std::chrono_literals;
using Fault = ModelDisk::Fault;

constexpr std::uint64_t kLife = 3;
const AccountKey kRun{"run-1", kLife};

Record interval(int n, std::uint32_t phase = 0) {
  Record r = lawful(n * 1s, 1s, 5, 5, static_cast<std::uint64_t>(10 + n % 7));
  r.phase = phase;
  return r;
}

std::unique_ptr<Spool> opened(ModelDisk& disk, Spool::Limits limits = {},
                              std::uint64_t life = kLife) {
  auto spool = Spool::open(disk, limits);
  CHECK(spool, "it opens");
  CHECK((*spool)->begin(life, "killed", {}), "it begins");
  return *std::move(spool);
}

struct SpoolTest : testing::Test {
  void make(Spool::Limits limits = {}) {
    spool = opened(disk, limits);
    spool->open_account(kRun, "pc-1", "");
  }
  void add(int n, std::uint32_t phase = 0) {
    spool->add(interval(n, phase), {static_cast<std::uint64_t>(n) + 1});
  }
  std::vector<Record> take_all() {
    std::vector<Record> out;
    while (auto r = spool->next()) out.push_back(*std::move(r));
    return out;
  }
  void reconnect(const std::string& cluster = "") {
    spool->stream_down();
    spool->stream_up(cluster);
    spool->release_held();
  }

  ModelDisk disk;
  std::unique_ptr<Spool> spool;
};

TEST_F(SpoolTest, GivesBackWhatWasPutInWithContiguousNumbers) {
  make();
  spool->stream_up("");
  for (int i = 0; i < 3; ++i) add(i);
  const auto out = take_all();
  ASSERT_EQ(out.size(), 3U);
  for (int i = 0; i < 3; ++i) {
    Record expected = interval(i);
    expected.key = {"run-1", "pc-1", kLife, static_cast<std::uint64_t>(i) + 1};
    EXPECT_EQ(out[static_cast<std::size_t>(i)], expected);
  }
  EXPECT_EQ(spool->last_seq(), 3U);
  EXPECT_EQ(spool->waiting(), 0U);
  EXPECT_EQ(spool->living(), 3U);
}

TEST_F(SpoolTest, CommitsOncePerIntervalAndFreezesWithIt) {
  make();
  spool->stream_up("");
  add(0);
  const int before = disk.commits;
  for (int i = 1; i < 4; ++i) {
    add(i - 1);
    take_all();
  }
  EXPECT_EQ(disk.commits - before, 3 + 1) << "one was for the first, which waited";
}

TEST_F(SpoolTest, KeepsWhatIsNotAcknowledged) {
  make();
  spool->stream_up("");
  for (int i = 0; i < 4; ++i) add(i);
  take_all();
  EXPECT_TRUE(spool->acknowledge(kRun, 3));
  EXPECT_EQ(spool->living(), 1U);
  EXPECT_TRUE(spool->acknowledge(kRun, 2)) << "an older mark says nothing new";
  EXPECT_EQ(spool->living(), 1U);
  EXPECT_TRUE(spool->acknowledge(kRun, 4));
  EXPECT_TRUE(spool->empty());
  EXPECT_EQ(spool->bytes(), 0U);
  EXPECT_TRUE(disk.chains.at(0).records.empty());
}

TEST_F(SpoolTest, RefusesAMarkThatWasNeverSent) {
  make();
  add(0);
  EXPECT_FALSE(spool->acknowledge(kRun, 1)) << "not sent yet";
  spool->stream_up("");
  take_all();
  EXPECT_FALSE(spool->acknowledge(kRun, 2));
  EXPECT_FALSE(spool->acknowledge({"run-9", 1}, 0)) << "an account that there is not";
  EXPECT_EQ(spool->living(), 1U);
}

TEST_F(SpoolTest, LetsOnlyAWindowOutAndFreezesInItsSteps) {
  make({.bytes = 1 << 20, .window = 4});
  for (int i = 0; i < 10; ++i) add(i);
  spool->stream_up("");
  const int before = disk.commits;
  EXPECT_EQ(take_all().size(), 4U);
  EXPECT_EQ(disk.commits - before, 1);
  EXPECT_EQ(disk.chains.at(0).account.frozen, 4U);
  EXPECT_EQ(spool->waiting(), 6U);
  spool->acknowledge(kRun, 3);
  const auto more = take_all();
  ASSERT_EQ(more.size(), 3U);
  EXPECT_EQ(more.front().key.seq, 5U);
}

TEST_F(SpoolTest, SendsEverythingUnacknowledgedAgainAfterABreak) {
  make({.bytes = 1 << 20, .window = 4});
  spool->stream_up("");
  for (int i = 0; i < 6; ++i) add(i);
  const auto first = take_all();
  spool->acknowledge(kRun, 1);
  spool->stream_down();
  EXPECT_TRUE(take_all().empty());
  spool->stream_up("");
  EXPECT_TRUE(spool->holds_back());
  EXPECT_TRUE(take_all().empty()) << "until the controller names its mark";
  spool->acknowledge(kRun, 1);
  auto again = take_all();
  ASSERT_EQ(again.size(), 4U);
  EXPECT_EQ(again[0], first[1]);
  EXPECT_EQ(again[2], first[3]);
  EXPECT_EQ(again[3].key.seq, 5U);
}

TEST_F(SpoolTest, TakesAMarkBeyondWhatWentOutAgain) {
  make();
  spool->stream_up("");
  for (int i = 0; i < 5; ++i) add(i);
  take_all();
  spool->stream_down();
  spool->stream_up("");
  EXPECT_TRUE(spool->acknowledge(kRun, 3)) << "the controller had them all along";
  const auto rest = take_all();
  ASSERT_EQ(rest.size(), 2U);
  EXPECT_EQ(rest[0].key.seq, 4U);
}

TEST_F(SpoolTest, MergesInTimeFromHalfOfTheLimitAndLosesNoCount) {
  constexpr int kIntervals = 200;
  make({.bytes = 40'000, .window = 64});
  Counters total;
  Histogram latency;
  for (int i = 0; i < kIntervals; ++i) {
    total.sent += interval(i).counters.sent;
    latency.merge(interval(i).series[index(Outcome::ok)].latency);
    add(i);
  }
  EXPECT_LE(spool->bytes(), 20'000U);
  EXPECT_LT(spool->size(), 64U);

  spool->stream_up("");
  const auto out = take_all();
  Histogram merged;
  std::uint64_t errors = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    EXPECT_TRUE(broken_laws(out[i]).empty()) << broken_laws(out[i])[0];
    if (i > 0) {
      EXPECT_TRUE(broken_chain(out[i - 1], out[i]).empty()) << broken_chain(out[i - 1], out[i])[0];
    }
    total.sent -= out[i].counters.sent;
    merged.merge(out[i].series[index(Outcome::ok)].latency);
    for (const ErrorClass& c : out[i].errors.classes()) errors += c.count;
  }
  EXPECT_EQ(total.sent, 0U);
  EXPECT_EQ(merged, latency);
  EXPECT_EQ(errors, static_cast<std::uint64_t>(kIntervals));
  EXPECT_EQ(out.front().first(), 1U);
  EXPECT_EQ(out.back().key.seq, static_cast<std::uint64_t>(kIntervals));
  EXPECT_EQ(out.back().start + out.back().length, kIntervals * 1s);
}

TEST_F(SpoolTest, NeverMergesWhatMayHaveBeenSentOrAcrossALabel) {
  make({.bytes = 1, .window = 2});
  spool->stream_up("");
  add(0);
  const auto sent = take_all();
  ASSERT_EQ(sent.size(), 1U);
  spool->stream_down();
  for (int i = 1; i < 4; ++i) add(i);
  for (int i = 4; i < 6; ++i) add(i, 1);
  Record guard = interval(6, 1);
  guard.guard = true;
  spool->add(guard, {7});
  EXPECT_EQ(spool->size(), 4U) << "frozen; phase 0; phase 1; its guard band";
  spool = opened(disk, {.bytes = 1, .window = 9}, kLife + 1);
  spool->stream_up("");
  spool->release_held();
  const auto again = take_all();
  ASSERT_EQ(again.size(), 4U);
  EXPECT_EQ(again[0], sent[0]);
  EXPECT_EQ(again[1].first(), 2U);
  EXPECT_EQ(again[1].key.seq, 4U);
  EXPECT_EQ(again[2].length, 2s);
  EXPECT_TRUE(again[3].guard);
}

// --- several accounts

TEST_F(SpoolTest, DeliversWhatEarlierLivesLeftWithTheirCauseOldestFirst) {
  make();
  add(0);
  add(1);
  spool = opened(disk, {}, kLife + 1);
  spool->open_account({"run-1", kLife + 1}, "pc-1", "");
  spool->add(interval(5), {1});
  const auto accounts = spool->accounts();
  ASSERT_EQ(accounts.size(), 2U);
  EXPECT_EQ(accounts[0].cause, "killed");
  EXPECT_EQ(accounts[0].last_seq, 2U);
  EXPECT_EQ(accounts[1].cause, "");
  spool->stream_up("");
  const auto out = take_all();
  ASSERT_EQ(out.size(), 3U);
  EXPECT_EQ(out[0].key, (RecordKey{"run-1", "pc-1", kLife, 1}));
  EXPECT_EQ(out[2].key, (RecordKey{"run-1", "pc-1", kLife + 1, 1}));
  EXPECT_TRUE(spool->acknowledge(kRun, 2));
  EXPECT_EQ(spool->living(), 1U);
  EXPECT_EQ(spool->accounts().size(), 1U);
  ASSERT_EQ(spool->empty_accounts().size(), 1U) << "the controller hears why it ended";
  EXPECT_EQ(spool->empty_accounts()[0].cause, "killed");
}

TEST_F(SpoolTest, AnAccountNobodyAcknowledgesHoldsNothingUp) {
  make({.bytes = 1 << 20, .window = 2});
  for (int i = 0; i < 5; ++i) add(i);
  spool->open_account({"run-2", kLife}, "pc-1", "");
  add(0);
  spool->open_account({"run-3", kLife}, "pc-1", "");
  add(0);
  spool->stream_up("");
  auto out = take_all();
  ASSERT_EQ(out.size(), 3U) << "a window of what has ended, and of what lives";
  EXPECT_EQ(out[2].key.run, "run-3");
  spool->set_aside_ended();
  out = take_all();
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(out[0].key.run, "run-2");
  reconnect();
  EXPECT_EQ(take_all().size(), 3U) << "another stream, another try";
}

TEST_F(SpoolTest, AnAcknowledgementThatComesLateLetsTheRestOut) {
  make({.bytes = 1 << 20, .window = 2});
  for (int i = 0; i < 5; ++i) add(i);
  spool->open_account({"run-2", kLife}, "pc-1", "");
  spool->stream_up("");
  ASSERT_EQ(take_all().size(), 2U);
  spool->set_aside_ended();
  EXPECT_TRUE(take_all().empty());
  EXPECT_TRUE(spool->acknowledge(kRun, 2));
  const auto out = take_all();
  ASSERT_EQ(out.size(), 2U);
  EXPECT_EQ(out[0].key.seq, 3U);
}

TEST_F(SpoolTest, GivesAClusterOnlyItsOwnRuns) {
  spool = opened(disk);
  spool->open_account(kRun, "pc-1", "alpha");
  add(0);
  spool->stream_up("beta");
  EXPECT_TRUE(take_all().empty());
  reconnect("alpha");
  EXPECT_EQ(take_all().size(), 1U);
}

TEST_F(SpoolTest, KnowsAProcessThatLeftNoRecord) {
  spool = opened(disk);
  spool->open_account(kRun, "pc-1", "");
  spool = opened(disk, {}, kLife + 1);
  ASSERT_EQ(spool->empty_accounts().size(), 1U);
  EXPECT_EQ(spool->empty_accounts()[0].key, kRun);
  EXPECT_EQ(spool->empty_accounts()[0].last_seq, 0U);
  EXPECT_FALSE(spool->empty_accounts()[0].cause.empty());
}

TEST_F(SpoolTest, IsInTroubleIfAnAccountCannotBeOpened) {
  spool = opened(disk);
  disk.is_broken = true;
  spool->open_account({"run-2", kLife}, "pc-1", "");
  EXPECT_TRUE(spool->in_trouble());
}

// A copy of this disk has delivered more of an earlier process than this one has sent.
TEST_F(SpoolTest, TakesAnAcknowledgementBeyondWhatItSentOnlyForEarlierProcesses) {
  spool = opened(disk);
  spool->open_account(kRun, "pc-1", "");
  add(0);
  add(1);
  EXPECT_FALSE(spool->acknowledge(kRun, 1)) << "never sent";
  spool = opened(disk, {}, kLife + 1);
  EXPECT_TRUE(spool->acknowledge(kRun, 3));
  EXPECT_TRUE(spool->empty());
}

TEST_F(SpoolTest, ForgetsAccountsThatEndedLongAgo) {
  for (std::uint64_t life = 1; life <= 60; ++life) {
    spool = opened(disk, {}, life);
    spool->open_account({"run", life}, "pc-1", "");
    spool->stream_up("");
    add(0);
    take_all();
    spool->acknowledge({"run", life}, 1);
  }
  EXPECT_LE(disk.chains.size(), Spool::kEmptyAccounts + 1);
}

TEST_F(SpoolTest, StoresWhatWasLeftBehindAfterWhatIsThere) {
  make();
  add(0);
  spool = *Spool::open(disk, {});
  EXPECT_EQ(spool->find(kRun)->taken, (std::vector<std::uint64_t>{1}));
  Record rest = interval(1);
  rest.recovered = true;
  rest.key = {"run-1", "pc-1", kLife, 0};
  ASSERT_TRUE(spool->begin(kLife + 1, "killed", {{kRun, "pc-1", {rest}, {2}}}));
  spool->stream_up("");
  const auto out = take_all();
  ASSERT_EQ(out.size(), 2U);
  EXPECT_TRUE(out[1].recovered);
  EXPECT_EQ(out[1].key.seq, 2U);
  EXPECT_TRUE(broken_chain(out[0], out[1]).empty());
  EXPECT_EQ(spool->find(kRun)->taken, (std::vector<std::uint64_t>{2}));
}

// --- a disk that refuses

TEST_F(SpoolTest, AddsUpInMemoryWhileTheDiskRefusesAndHeals) {
  make();
  spool->stream_up("");
  add(0);
  disk.is_broken = true;
  for (int i = 1; i < 50; ++i) add(i);
  for (int i = 50; i < 60; ++i) add(i, 1);
  EXPECT_TRUE(spool->in_trouble());
  EXPECT_FALSE(spool->retry());
  EXPECT_LE(spool->size(), 1U + 3U) << "stored; in doubt; phase 0; phase 1";
  EXPECT_TRUE(take_all().empty()) << "nothing goes out that is not stored";
  disk.is_broken = false;
  EXPECT_TRUE(spool->retry());
  EXPECT_FALSE(spool->in_trouble());
  const auto out = take_all();
  std::uint64_t sent = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    sent += out[i].counters.sent;
    EXPECT_TRUE(broken_laws(out[i]).empty());
    if (i > 0) {
      EXPECT_TRUE(broken_chain(out[i - 1], out[i]).empty()) << broken_chain(out[i - 1], out[i])[0];
    }
  }
  std::uint64_t expected = 0;
  for (int i = 0; i < 60; ++i) expected += interval(i).counters.sent;
  EXPECT_EQ(sent, expected);
  EXPECT_TRUE(disk.shelf.empty());
}

TEST_F(SpoolTest, WhatTheDiskRefusedOutlivesTheProcess) {
  make();
  add(0);
  disk.is_broken = true;
  EXPECT_TRUE(spool->add(interval(1), {2}));
  disk.has_shelf = false;
  EXPECT_FALSE(spool->add(interval(2), {3})) << "neither disk nor shelf";
  disk.crash();
  disk.has_shelf = true;
  spool = *Spool::open(disk, {});
  EXPECT_EQ(spool->find(kRun)->taken, (std::vector<std::uint64_t>{2}));
  ASSERT_TRUE(spool->begin(kLife + 1, "killed", {}));
  spool->stream_up("");
  EXPECT_EQ(take_all().size(), 2U);
}

// Everything at once, against a disk that fails and a process that dies at any operation.
class History {
 public:
  explicit History(std::uint64_t seed) : random_(seed) { begin(); }

  void run() {
    for (int i = 0; i < 150; ++i) step();
    disk_.crash();
    restart();
    settle();
    check();
  }

 private:
  // Also when it is killed in the middle of it, any number of times.
  void begin() {
    const std::uint64_t before = life_;
    do {
      disk_.crash();
      ++life_;
      if (random_.between(0, 2) == 0)
        disk_.fail_after(static_cast<int>(random_.between(0, 2)),
                         random_.between(0, 1) == 0 ? Fault::before : Fault::after);
    } while (!begin_once(before));
    counted_ = 0;
    spool_->open_account({"run", life_}, "pc-1", "");
  }

  bool begin_once(std::uint64_t before) {
    auto spool = Spool::open(disk_, limits_);
    if (!spool) return false;
    // What a killed process had counted and not stored comes back from its open intervals.
    std::vector<LeftBehind> left;
    const AccountKey key{"run", before};
    const auto known = (*spool)->find(key);
    const std::uint64_t taken = known && !known->taken.empty() ? known->taken[0] : 0;
    LeftBehind l{key, "pc-1", {}, {counted_}};
    for (std::uint64_t n = taken; n < counted_; ++n) {
      l.records.push_back(counted_in(n));
      l.records.back().key = {"run", "pc-1", before, 0};
    }
    if (!l.records.empty()) left.push_back(std::move(l));
    if (!(*spool)->begin(life_, "killed", left)) return false;
    spool_ = *std::move(spool);
    return true;
  }

  static Record counted_in(std::uint64_t n) {
    Record r = interval(static_cast<int>(n), static_cast<std::uint32_t>(n / 20));
    return r;
  }

  void restart() { begin(); }

  void step() {
    switch (random_.between(0, 11)) {
      case 0:
      case 1:
      case 2:
      case 3: {
        const std::uint64_t n = counted_++;
        total_ += counted_in(n).counters.sent;
        spool_->add(counted_in(n), {n + 1});
        break;
      }
      case 4:
        spool_->stream_up("");
        break;
      case 5:
        spool_->stream_down();
        break;
      case 6:
      case 7:
        deliver();
        break;
      case 8:
        for (const auto& [key, mark] : marks_) spool_->acknowledge(key, mark);
        spool_->release_held();
        break;
      case 9:
        disk_.fail_after(static_cast<int>(random_.between(0, 2)),
                         random_.between(0, 1) == 0 ? Fault::before : Fault::after);
        break;
      case 10:
        if (spool_->in_trouble()) spool_->retry();
        break;
      case 11:
        if (random_.between(0, 3) == 0) restart();
        break;
    }
  }

  // The controller's side: a ledger of its own.
  void deliver() {
    for (int i = 0; i < 5; ++i) {
      const auto r = spool_->next();
      if (!r) return;
      const AccountKey key{r->key.run, r->key.incarnation};
      const auto bytes = wire_of(*r);
      for (std::uint64_t seq = r->first(); seq <= r->key.seq; ++seq) {
        const auto [known, is_new] = seen_.emplace(std::pair(key, seq), bytes);
        EXPECT_EQ(known->second, bytes) << "seq " << seq << " came with other numbers";
      }
      std::uint64_t& mark = marks_[key];
      if (r->key.seq <= mark) continue;
      EXPECT_EQ(r->first(), mark + 1) << "a gap";
      EXPECT_TRUE(broken_laws(*r).empty());
      mark = r->key.seq;
      received_ += r->counters.sent;
    }
  }

  static std::string wire_of(const Record& r) {
    return std::to_string(r.first()) + "-" + std::to_string(r.key.seq) + ":" +
           std::to_string(r.counters.sent) + ":" + std::to_string(r.start.count());
  }

  void settle() {
    for (int i = 0; i < 2000 && !spool_->empty(); ++i) {
      if (spool_->in_trouble()) spool_->retry();
      spool_->stream_up("");
      spool_->release_held();
      deliver();
      for (const auto& [key, mark] : marks_) spool_->acknowledge(key, mark);
    }
  }

  void check() {
    EXPECT_TRUE(spool_->empty());
    EXPECT_EQ(spool_->bytes(), 0U);
    EXPECT_EQ(received_, total_) << "lost or counted twice";
  }

  Random random_;
  ModelDisk disk_;
  const Spool::Limits limits_{.bytes = 30'000, .window = 4};
  std::unique_ptr<Spool> spool_;
  std::uint64_t life_ = 0;
  std::uint64_t counted_ = 0;  // intervals of this life
  std::uint64_t total_ = 0;    // requests sent in all lives
  std::uint64_t received_ = 0;
  std::map<AccountKey, std::uint64_t> marks_;
  std::map<std::pair<AccountKey, std::uint64_t>, std::string> seen_;
};

TEST(SpoolHistories, LoseNothingAndCountNothingTwice) {
  std::random_device device;
  const std::uint64_t base = device();
  for (std::uint64_t i = 0; i < 300; ++i) {
    const std::uint64_t seed = i < 150 ? i : base + i;
    SCOPED_TRACE("seed " + std::to_string(seed));
    History(seed).run();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace spate::agent
