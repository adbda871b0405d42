#include "agent/recorder.h"

#include <gmock/gmock.h>

#include "agent/timer_queue.h"

namespace spate::agent {
namespace {

using testing::IsEmpty;

Instant at(std::int64_t ns) { return from_ns(1'000'000 + ns); }

TEST(Recorder, KeepsTheLawsAcrossBorders) {
  Recorder recorder;
  recorder.connection_opened();
  recorder.bytes_sent(100);
  recorder.set_connections_requested(2);
  recorder.start(at(0), at(0), {.epoch = 1, .phase = 0, .drain = false});
  const RequestTimes first{at(0), at(5)};
  const RequestTimes second{at(10), at(10)};
  recorder.request_sent(first);
  recorder.request_sent(second);
  recorder.request_ok(first, at(50));
  Record one = recorder.close(at(100), {.epoch = 2, .phase = 1, .drain = false});
  recorder.request_failed(Outcome::timed_out, 0, "no answer", second, at(150));
  recorder.request_sent({at(150), at(151)});
  Record two = recorder.close(at(200), {.epoch = 2, .phase = 1, .drain = true});
  Record empty = recorder.close(at(200), {.epoch = 2, .phase = 1, .drain = true});
  one.key = {"r", "a", 1, 1};
  two.key = {"r", "a", 1, 2};
  empty.key = {"r", "a", 1, 3};

  for (const Record& record : {one, two, empty}) EXPECT_THAT(broken_laws(record), IsEmpty());
  EXPECT_THAT(broken_chain(one, two), IsEmpty());
  EXPECT_THAT(broken_chain(two, empty), IsEmpty());
  EXPECT_EQ(one.epoch, 1U);
  EXPECT_EQ(two.epoch, 2U);
  EXPECT_TRUE(empty.drain);
  EXPECT_EQ(one.start, Duration(0));
  EXPECT_EQ(one.length, Duration(100));
  EXPECT_EQ(one.counters.in_flight_end, 1U);
  EXPECT_EQ(one.counters.connections_opened, 1U);
  EXPECT_EQ(one.counters.bytes_sent, 100U);
  EXPECT_EQ(two.counters.connections_opened, 0U);
  EXPECT_EQ(one.gauges.connections_requested, 2U);
  EXPECT_EQ(two.gauges.connections_established, 1U);
  EXPECT_EQ(one.series[index(Outcome::ok)].latency.max(), 50);
  EXPECT_EQ(one.series[index(Outcome::ok)].service_time.max(), 45);
  EXPECT_EQ(one.send_lag.max(), 5);
  EXPECT_EQ(two.count(Outcome::timed_out), 1U);
  ASSERT_EQ(two.errors.classes().size(), 1U);
  EXPECT_EQ(two.errors.classes()[0].text, "no answer");
  EXPECT_EQ(empty.length, Duration(0));
  EXPECT_EQ(empty.counters.in_flight_end, 1U);
}

TEST(TimerQueue, FiresInOrderAndOnlyWhatIsLive) {
  TimerQueue queue;
  std::array<TimerSlot, 3> slots;
  const auto slot_of = [&](std::uint32_t i) -> TimerSlot& { return slots[i]; };
  EXPECT_TRUE(queue.schedule(0, TimerKind::deadline, at(50), slots[0]));
  EXPECT_FALSE(queue.schedule(1, TimerKind::wake, at(60), slots[1]));
  EXPECT_TRUE(queue.schedule(1, TimerKind::wake, at(20), slots[1]));       // supersedes 60
  EXPECT_FALSE(queue.schedule(0, TimerKind::deadline, at(70), slots[0]));  // later: nothing to do
  EXPECT_EQ(queue.size(), 3U);
  EXPECT_FALSE(queue.take_due(at(10), slot_of).has_value());
  auto due = queue.take_due(at(100), slot_of);
  ASSERT_TRUE(due.has_value());
  EXPECT_EQ(due->connection, 1U);
  due = queue.take_due(at(100), slot_of);
  ASSERT_TRUE(due.has_value());
  EXPECT_EQ(due->connection, 0U);
  EXPECT_EQ(due->kind, TimerKind::deadline);
  EXPECT_FALSE(queue.take_due(at(100), slot_of).has_value());
  EXPECT_EQ(queue.size(), 0U);
  EXPECT_EQ(queue.next(), kNever);
}

}  // namespace
}  // namespace spate::agent
