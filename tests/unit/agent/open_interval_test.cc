#include "agent/open_interval.h"

#include <gmock/gmock.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "agent/recorder.h"
#include "agent/recovery.h"
#include "common/random.h"
#include "proto/wire.h"
#include "tests/unit/agent/record_fixture.h"
#include "tests/unit/temporary_directory.h"

namespace spate::agent {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::IsEmpty;

Instant at(Duration d) { return from_ns(1'000'000'000) + d; }

struct OpenIntervalTest : testing::Test {
  std::shared_ptr<SlotRing> ring(std::uint32_t worker = 0) {
    auto made = SlotRing::create(folder.path(), {"run-1", "pc-1", 7, worker});
    EXPECT_TRUE(made) << (made ? "" : made.error().message);
    return *made;
  }
  std::vector<WorkerRemains> remains() {
    std::vector<std::string> complaints;
    auto found = read_remains(folder.path(), complaints);
    EXPECT_THAT(complaints, IsEmpty());
    return found;
  }

  TemporaryDirectory folder;
};

TEST_F(OpenIntervalTest, WhatIsCountedIsInTheFile) {
  Recorder recorder(ring());
  recorder.set_connections_requested(3);
  recorder.connection_opened();
  recorder.connect_failed(111, "connect: refused");
  EXPECT_THAT(remains().at(0).intervals, IsEmpty()) << "the run has not begun";
  recorder.start(at(0s), at(2s), {.epoch = 4, .phase = 2, .drain = false, .guard = true});
  const RequestTimes one{at(2s), at(2s + 1ms)};
  const RequestTimes two{at(3s), at(3s)};
  recorder.request_sent(one);
  recorder.request_sent(two);
  recorder.request_failed(Outcome::application_error, 5, "not found", one, at(3s + 5ms));
  recorder.bytes_sent(10);

  const auto found = remains();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].owner.run, "run-1");
  EXPECT_EQ(found[0].owner.incarnation, 7U);
  ASSERT_EQ(found[0].intervals.size(), 1U);
  const Record& r = found[0].intervals[0].record;
  EXPECT_EQ(found[0].intervals[0].ordinal, 1U);
  EXPECT_EQ(r.epoch, 4U);
  EXPECT_EQ(r.phase, 2U);
  EXPECT_TRUE(r.guard);
  EXPECT_EQ(r.start, 2s);
  EXPECT_EQ(r.length, 1s + 5ms) << "up to the last that is known";
  EXPECT_EQ(r.counters.sent, 2U);
  EXPECT_EQ(r.counters.in_flight_end, 1U);
  EXPECT_EQ(r.counters.connect_failed, 1U);
  EXPECT_EQ(r.counters.bytes_sent, 10U);
  EXPECT_EQ(r.count(Outcome::application_error), 1U);
  EXPECT_EQ(r.series[index(Outcome::application_error)].latency.max(), 1'005'000'000);
  ASSERT_EQ(r.errors.classes().size(), 2U);
  EXPECT_EQ(r.errors.classes()[1].text, "not found");
  EXPECT_EQ(r.gauges.connections_requested, 3U);
  EXPECT_EQ(r.gauges.connections_established, 1U);
}

TEST_F(OpenIntervalTest, AClosedIntervalStaysUntilItIsReleased) {
  const auto shared = ring();
  Recorder recorder(shared);
  recorder.start(at(0s), at(0s), {});
  std::vector<Record> closed;
  for (int i = 0; i < 3; ++i) {
    recorder.request_sent({at(i * 1s), at(i * 1s)});
    closed.push_back(recorder.close(at((i + 1) * 1s), {}));
  }
  auto found = remains();
  ASSERT_EQ(found.at(0).intervals.size(), 4U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(found[0].intervals[i].record, closed[i]);
  shared->release_through(2);
  found = remains();
  ASSERT_EQ(found.at(0).intervals.size(), 2U);
  EXPECT_EQ(found[0].intervals[0].ordinal, 3U);
  EXPECT_EQ(found[0].intervals[1].ordinal, 4U);
}

TEST_F(OpenIntervalTest, ASlotThatIsUsedAgainIsEmpty) {
  const auto shared = ring();
  Recorder recorder(shared);
  recorder.start(at(0s), at(0s), {});
  for (std::uint64_t i = 0; i < 40; ++i) {
    const Instant begin = at(i * 1s);
    const RequestTimes times{begin, begin + 1us * (i + 1)};
    recorder.request_sent(times);
    recorder.request_failed(Outcome::reset, static_cast<std::uint32_t>(i), "text", times,
                            begin + 1ms * (i * i));
    const Record r = recorder.close(begin + 1s, {});
    EXPECT_EQ(r.counters.sent, 1U);
    EXPECT_EQ(r.errors.classes().size(), 1U);
    EXPECT_EQ(r.count(Outcome::reset), 1U);
    EXPECT_THAT(broken_laws(r), IsEmpty());
    shared->release_through(i + 1);
  }
}

// The disk keeps the control thread: nothing is released.
TEST_F(OpenIntervalTest, KeepsTheLastSlotsForBordersThatChangeSomething) {
  const auto shared = ring();
  Recorder recorder(shared);
  recorder.start(at(0s), at(0s), {});
  std::uint64_t closed = 0;
  const auto pass_borders = [&](std::uint64_t from, std::uint64_t to) {
    for (std::uint64_t i = from; i < to; ++i) {
      recorder.request_sent({at(i * 1s), at(i * 1s)});
      if (recorder.should_go_on()) continue;
      recorder.close(at((i + 1) * 1s), {});
      ++closed;
    }
  };
  pass_borders(0, 60);
  EXPECT_EQ(closed, SlotRing::kSlots - SlotRing::kSpareSlots - 1);
  // A change, and all that was counted since, whatever happens to the process.
  recorder.close(at(60s), IntervalLabel{2, 0, false, false});
  std::uint64_t sent = 0;
  const auto left = remains();
  for (const auto& interval : left.at(0).intervals) sent += interval.record.counters.sent;
  EXPECT_EQ(sent, 60U);
  shared->release_through(closed);
  EXPECT_FALSE(recorder.should_go_on());
}

TEST_F(OpenIntervalTest, WhereThereIsLittleRoomItKeepsToThat) {
  const std::string small = folder.path() + "/small";
  std::filesystem::create_directory(small);
  if (::mount("tmpfs", small.c_str(), "tmpfs", 0, "size=1m") != 0)
    GTEST_SKIP() << "only root mounts a tmpfs";
  {
    auto made = SlotRing::create(small, {"run-1", "pc-1", 7, 0});  // for three slots
    ASSERT_TRUE(made);
    Recorder recorder(*made);
    recorder.start(at(0s), at(0s), {});
    Duration now{};
    std::uint64_t closed = 0;
    const auto close = [&] {
      recorder.close(at(now += 1s), {});
      ++closed;
    };
    for (; !recorder.should_go_on() && closed < 20;) close();
    EXPECT_EQ(closed, 2U) << "the third one is open";
    (*made)->release_through(closed);
    EXPECT_FALSE(recorder.should_go_on());
    close();
    EXPECT_TRUE(recorder.should_go_on()) << "one of three is to spare";
    close();
    std::vector<std::string> complaints;
    const auto kept = read_remains(small, complaints);
    ASSERT_EQ(kept.size(), 1U);
    EXPECT_EQ(kept[0].intervals.back().ordinal, closed + 1) << "the open one is there, too";
  }
  EXPECT_EQ(::umount(small.c_str()), 0);
}

TEST_F(OpenIntervalTest, WithoutAFreeSlotItCountsInMemoryOfItsOwn) {
  const auto shared = ring();
  Recorder recorder(shared);
  recorder.start(at(0s), at(0s), {});
  std::uint64_t sent = 0;
  const std::uint64_t intervals = SlotRing::kSlots + 5;
  for (std::uint64_t i = 0; i < intervals; ++i) {
    recorder.request_sent({at(i * 1s), at(i * 1s)});
    sent += recorder.close(at((i + 1) * 1s), {}).counters.sent;
  }
  EXPECT_EQ(sent, intervals);
  EXPECT_EQ(remains().at(0).intervals.size(), SlotRing::kSlots);
  shared->release_through(intervals);
  recorder.request_sent({at(intervals * 1s), at(intervals * 1s)});
  recorder.close(at((intervals + 1) * 1s), {});
  EXPECT_EQ(remains().at(0).intervals.size(), 1U) << "back in the ring";
}

TEST_F(OpenIntervalTest, AFileOfAnotherBuildIsSaid) {
  const auto shared = ring();
  const std::string path = std::filesystem::directory_iterator(folder.path())->path();
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.write("spate open 9", 12);
  file.close();
  std::vector<std::string> complaints;
  EXPECT_THAT(read_remains(folder.path(), complaints), IsEmpty());
  ASSERT_EQ(complaints.size(), 1U);
  EXPECT_THAT(complaints[0], HasSubstr("another version"));
  remove_remains(folder.path());
  EXPECT_FALSE(std::filesystem::exists(path));
}

// --- what can be half recorded

TEST(RecordOf, CompletesTheOneSampleThatIsHalfRecorded) {
  // Every prefix of the stores of one request that ends.
  const auto slot_after = [](int stores) {
    auto slot = std::make_unique<OpenSlot>();
    slot->prepare();
    slot->has_begun = true;
    slot->state = OpenSlot::open;
    const auto count = [&](std::size_t i, std::int64_t v) {
      slot->heads[i].record(slot->buckets[i].data(), v);
    };
    for (int i = 0; i < 3; ++i) count(kSendLag, 10);
    count(latency_of(Outcome::ok), 100);
    count(service_time_of(Outcome::ok), 90);
    slot->ended_intended_ns = 1000;
    slot->ended_sent_ns = 1010;
    slot->ended_ns = 5000;
    for (const std::size_t i : {latency_of(Outcome::ok), service_time_of(Outcome::ok)}) {
      const std::int64_t v = i == latency_of(Outcome::ok) ? 4000 : 3990;
      Histogram::Head& h = slot->heads[i];
      if (stores-- > 0) ++slot->buckets[i][Histogram::bucket_of(static_cast<std::uint64_t>(v))];
      if (stores-- > 0) ++h.count;
      if (stores-- > 0) h.max = v;
      if (stores-- > 0) h.sum += static_cast<std::uint64_t>(v);
    }
    return slot;
  };
  for (int stores = 0; stores <= 8; ++stores) {
    SCOPED_TRACE(stores);
    Result<Record> r = record_of(*slot_after(stores));
    ASSERT_TRUE(r) << r.error().message;
    EXPECT_EQ(r->count(Outcome::ok), stores == 0 ? 1U : 2U);
    EXPECT_EQ(r->counters.sent, 3U);
    EXPECT_EQ(r->counters.in_flight_end, stores == 0 ? 2U : 1U);
    const OutcomeSeries& ok = r->series[index(Outcome::ok)];
    EXPECT_EQ(ok.latency.max(), stores == 0 ? 100 : 4000);
    EXPECT_EQ(ok.service_time.max(), stores == 0 ? 90 : 3990);
    r->key = {"run", "pc", 1, 1};
    EXPECT_THAT(broken_laws(*r), IsEmpty());
    const auto again = wire::from_bytes(wire::to_bytes(*r));
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(*again, *r);
  }
}

// --- from workers to the agent's records

WorkerRemains worker(std::uint32_t index, std::vector<std::pair<std::uint64_t, Record>> intervals) {
  WorkerRemains w{{"run-1", "pc-1", 7, index}, {}, true};
  for (auto& [ordinal, record] : intervals) w.intervals.push_back({ordinal, std::move(record)});
  return w;
}

Record labelled(Record r, std::uint32_t epoch) {
  r.epoch = epoch;
  return r;
}

TEST(Recovery, MakesOneRecordPerLabelChainedToWhatIsStored) {
  SpoolAccount stored;
  stored.key = {"run-1", 7};
  stored.last_seq = 5;
  stored.end = 5s;
  stored.in_flight = 6;
  stored.taken = {5, 5};
  const auto left = left_behind({worker(0, {{5, lawful(4s, 1s, 4, 4, 10)},
                                            {6, lawful(5s, 1s, 4, 4, 10)},
                                            {7, labelled(lawful(6s, 300ms, 4, 3, 5), 2)}}),
                                 worker(1, {{6, lawful(5s, 800ms, 2, 1, 7)}})},
                                [&](const AccountKey&) { return stored; });
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(left[0].taken, (std::vector<std::uint64_t>{7, 6}));
  ASSERT_EQ(left[0].records.size(), 2U);
  Record previous;
  previous.key = {"run-1", "pc-1", 7, 5};
  previous.start = 4s;
  previous.length = 1s;
  previous.counters.in_flight_end = 6;
  std::uint64_t seq = 5;
  for (Record r : left[0].records) {
    EXPECT_TRUE(r.recovered);
    r.key.seq = ++seq;
    EXPECT_THAT(broken_laws(r), IsEmpty());
    EXPECT_THAT(broken_chain(previous, r), IsEmpty());
    previous = r;
  }
  EXPECT_EQ(left[0].records[0].count(Outcome::ok), 17U);
  EXPECT_EQ(left[0].records[1].epoch, 2U);
  EXPECT_EQ(left[0].records[1].counters.in_flight_end, 4U) << "worker 1 with what it had";
  stored.taken = left[0].taken;
  EXPECT_THAT(left_behind({worker(0, {{7, lawful(6s, 1s, 4, 4, 10)}})},
                          [&](const AccountKey&) { return stored; }),
              IsEmpty())
      << "asked again";
}

TEST(Recovery, SaysWhenTheProcessHadTheEndInItsOwnMemory) {
  const auto nothing = [](const AccountKey&) { return std::nullopt; };
  const auto is_recovered = [&](std::vector<WorkerRemains> remains) {
    return left_behind(std::move(remains), nothing).at(0).records.back().recovered;
  };
  const Record one = lawful(0s, 1s, 0, 4, 10);
  const Record two = lawful(1s, 1s, 4, 4, 10);
  EXPECT_TRUE(is_recovered({worker(0, {{1, one}, {2, two}})}));
  EXPECT_FALSE(is_recovered({worker(0, {{1, one}, {3, two}})})) << "where is the second one?";
  WorkerRemains full = worker(0, {{1, one}, {2, two}});
  full.has_open = false;
  EXPECT_FALSE(is_recovered({full}));
  WorkerRemains other = worker(1, {});
  other.has_open = false;
  EXPECT_FALSE(is_recovered({worker(0, {{1, one}}), other})) << "nothing is known of worker 1";
}

// --- SIGKILL

// What the process itself knows, in memory that it shares with its parent.
struct Truth {
  struct Worker {
    std::uint64_t sent_begun, sent_done;
    std::uint64_t ended_begun, ended_done;
    std::uint64_t taken;                                   // intervals that a spool would have
    std::array<std::uint64_t, 1 << 16> sent_by, ended_by;  // up to the end of each
  };
  std::array<Worker, 2> workers;
  std::atomic<std::uint32_t> ready;
};

void fence() { std::atomic_signal_fence(std::memory_order_seq_cst); }

// Counts until it is killed: requests that overlap, fail and succeed, intervals that are closed and
// released.
void count_for_ever(std::shared_ptr<SlotRing> ring, Truth& truth, std::size_t index) {
  Truth::Worker& t = truth.workers[index];
  Recorder recorder(ring);
  Random random(static_cast<std::uint64_t>(getpid()) * 2 + index);
  Instant now = at(0s);
  recorder.start(now, now, {});
  std::array<RequestTimes, 8> open{};
  std::size_t count = 0;
  std::uint64_t closed = 0;
  truth.ready.fetch_add(1);
  for (std::uint64_t step = 1;; ++step) {
    now += Duration(random.between(1, 3'000'000));
    if (count < open.size() && random.between(0, 1) == 0) {
      open[count] = {now - Duration(random.between(0, 5000)), now};
      ++t.sent_begun;
      fence();
      recorder.request_sent(open[count++]);
      fence();
      ++t.sent_done;
    } else if (count > 0) {
      --count;
      ++t.ended_begun;
      fence();
      if (random.between(0, 3) == 0)
        recorder.request_failed(Outcome::reset, 104, "connection reset", open[count], now);
      else
        recorder.request_ok(open[count], now);
      fence();
      ++t.ended_done;
    }
    if (step % 50 == 0) {
      const Record r = recorder.close(now, {});
      if (++closed == t.sent_by.size()) pause();
      t.sent_by[closed] = t.sent_by[closed - 1] + r.counters.sent;
      t.ended_by[closed] = t.ended_by[closed - 1] + r.finished();
      fence();
      t.taken = closed;  // as one commit would
      fence();
      if (closed % 4 == 0) ring->release_through(closed);
    }
  }
}

TEST_F(OpenIntervalTest, SigkillLosesNoCount) {
  std::random_device device;
  const std::uint64_t seed = device();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  auto* const truth = static_cast<Truth*>(
      mmap(nullptr, sizeof(Truth), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  for (int round = 0; round < 100; ++round) {
    std::memset(static_cast<void*>(truth), 0, sizeof(Truth));
    const pid_t child = fork();
    if (child == 0) {
      std::vector<std::thread> threads;
      for (std::uint32_t w = 0; w < 2; ++w)
        threads.emplace_back([&, w] {
          auto made = SlotRing::create(folder.path(), {"run-1", "pc-1", 7, w});
          if (!made) _exit(1);
          count_for_ever(*made, *truth, w);
        });
      pause();
    }
    while (truth->ready.load() < 2) sched_yield();
    const Instant end = BootClock::now() + 1us * random.between(0, 3000);
    while (BootClock::now() < end) sched_yield();
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "round " << round;

    const auto found = remains();
    for (const WorkerRemains& w : found) {
      const Truth::Worker& t = truth->workers[w.owner.worker];
      std::uint64_t sent = t.sent_by[t.taken];
      std::uint64_t ended = t.ended_by[t.taken];
      for (const auto& interval : w.intervals) {
        if (interval.ordinal <= t.taken) continue;
        Record r = interval.record;
        EXPECT_EQ(r.counters.in_flight_begin, sent - ended);
        sent += r.counters.sent;
        ended += r.finished();
        r.key = {"run-1", "pc-1", 7, interval.ordinal};
        EXPECT_THAT(broken_laws(r), IsEmpty());
        EXPECT_TRUE(wire::from_bytes(wire::to_bytes(r))) << "it can be sent";
      }
      EXPECT_GE(sent, t.sent_done) << "round " << round;
      EXPECT_LE(sent, t.sent_begun);
      EXPECT_GE(ended, t.ended_done);
      EXPECT_LE(ended, t.ended_begun);
    }
    remove_remains(folder.path());
    if (HasFailure()) break;
  }
  munmap(truth, sizeof(Truth));
}

}  // namespace
}  // namespace spate::agent
