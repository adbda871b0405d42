#include "controller/ledger.h"

#include <gmock/gmock.h>

#include "controller/closed_runs.h"

namespace spate::controller {
namespace {

using Ruling = Ledger::Ruling;

Record record(std::uint64_t seq, const std::string& agent = "pc-1") {
  Record r;
  r.key = {"run", agent, 7, seq};
  r.start = std::chrono::seconds(seq - 1);
  r.length = std::chrono::seconds(1);
  return r;
}

TEST(Ledger, AcceptsContiguousRecordsOnly) {
  Ledger ledger;
  EXPECT_EQ(ledger.offer(record(2), 12).ruling, Ruling::gap);
  EXPECT_EQ(ledger.offer(record(1), 11).ruling, Ruling::accepted);
  EXPECT_EQ(ledger.offer(record(3), 13).ruling, Ruling::gap);
  EXPECT_EQ(ledger.offer(record(2), 12).ruling, Ruling::accepted);
  EXPECT_EQ(ledger.offered_mark("pc-1", 7), 2U);
}

TEST(Ledger, CountsADuplicateAndDoesNotTakeIt) {
  Ledger ledger;
  ledger.offer(record(1), 11);
  EXPECT_EQ(ledger.offer(record(1), 11).ruling, Ruling::duplicate);
  EXPECT_EQ(ledger.duplicates(), 1U);
}

TEST(Ledger, QuarantinesOtherContentUnderTheSameKey) {
  Ledger ledger;
  ledger.offer(record(1), 11);
  EXPECT_EQ(ledger.offer(record(1), 99).ruling, Ruling::quarantined);
}

TEST(Ledger, AcknowledgesOnlyWhatIsCommitted) {
  Ledger ledger;
  ledger.offer(record(1), 11);
  ledger.offer(record(2), 12);
  EXPECT_EQ(ledger.committed_mark("pc-1", 7), 0U);
  ledger.committed("pc-1", 7, 1);
  EXPECT_EQ(ledger.committed_mark("pc-1", 7), 1U);
}

TEST(Ledger, KeepsAgentsAndIncarnationsApart) {
  Ledger ledger;
  EXPECT_EQ(ledger.offer(record(1, "pc-1"), 11).ruling, Ruling::accepted);
  EXPECT_EQ(ledger.offer(record(1, "pc-2"), 21).ruling, Ruling::accepted);
  Record other = record(1, "pc-1");
  other.key.incarnation = 8;
  EXPECT_EQ(ledger.offer(other, 31).ruling, Ruling::accepted);
}

TEST(Ledger, NamesBrokenLawsButTakesTheRecord) {
  Ledger ledger;
  Record r = record(1);
  r.counters.scheduled = 5;  // none of them sent or missed
  const auto entry = ledger.offer(r, 11);
  EXPECT_EQ(entry.ruling, Ruling::accepted);
  EXPECT_FALSE(entry.broken.empty());
}

TEST(Ledger, NamesABrokenChain) {
  Ledger ledger;
  EXPECT_TRUE(ledger.offer(record(1), 11).broken.empty());
  Record next = record(2);
  next.start += std::chrono::milliseconds(10);
  EXPECT_FALSE(ledger.offer(next, 12).broken.empty());
}

TEST(Ledger, RemembersContentOverManyRecords) {
  Ledger ledger;
  for (std::uint64_t seq = 1; seq <= 1000; ++seq) ledger.offer(record(seq), seq);
  EXPECT_EQ(ledger.offer(record(1000), 1000).ruling, Ruling::duplicate);
  EXPECT_EQ(ledger.offer(record(800), 1).ruling, Ruling::quarantined);
  // Too long ago to be known: taken for the duplicate that it nearly always is.
  EXPECT_EQ(ledger.offer(record(3), 1).ruling, Ruling::duplicate);
}

Record merged(std::uint64_t first, std::uint64_t last) {
  Record r = record(last);
  r.first_seq = first;
  r.start = std::chrono::seconds(first - 1);
  r.length = std::chrono::seconds(last - first + 1);
  return r;
}

TEST(Ledger, TakesAMergedRecordWholeOrNotAtAll) {
  Ledger ledger;
  ledger.offer(record(1), 11);
  EXPECT_EQ(ledger.offer(merged(3, 9), 39).ruling, Ruling::gap);
  EXPECT_EQ(ledger.offer(merged(1, 9), 19).ruling, Ruling::gap) << "1 would count twice";
  const auto entry = ledger.offer(merged(2, 9), 29);
  EXPECT_EQ(entry.ruling, Ruling::accepted);
  EXPECT_TRUE(entry.broken.empty());
  EXPECT_EQ(ledger.offered_mark("pc-1", 7), 9U);
  EXPECT_EQ(ledger.offer(merged(2, 9), 29).ruling, Ruling::duplicate);
  EXPECT_EQ(ledger.offer(merged(2, 9), 28).ruling, Ruling::quarantined);
  EXPECT_TRUE(ledger.offer(record(10), 10).broken.empty());
}

TEST(Ledger, ComparesContentOnlyWithTheSameRecord) {
  Ledger ledger;
  for (std::uint64_t seq = 1; seq <= 44; ++seq) ledger.offer(record(seq), seq);
  ledger.offer(merged(45, 300), 300);
  EXPECT_EQ(ledger.offer(record(290), 1).ruling, Ruling::duplicate);
}

TEST(Ledger, RemembersTheContentOfTheLatestIncarnationsOnly) {
  Ledger ledger;
  for (std::uint64_t incarnation = 1; incarnation <= 100; ++incarnation) {
    Record r = record(1);
    r.key.incarnation = incarnation;
    EXPECT_EQ(ledger.offer(r, incarnation).ruling, Ruling::accepted);
  }
  Record old = record(1);
  old.key.incarnation = 50;
  EXPECT_EQ(ledger.offer(old, 999).ruling, Ruling::duplicate) << "its mark is kept";
  old.key.incarnation = 100;
  EXPECT_EQ(ledger.offer(old, 999).ruling, Ruling::quarantined);
}

TEST(ClosedRuns, RemembersManyRunsByTheirMarks) {
  ClosedRuns closed;
  const auto late = [](std::size_t run, std::uint64_t seq) {
    AgentRecord one{record(seq), "x"};
    one.record.key.run = "run-" + std::to_string(run);
    return one;
  };
  for (std::size_t i = 0; i <= kMaxClosedRuns; ++i) {
    const std::string run = "run-" + std::to_string(i);
    closed.add(run, {{"pc-1", {"id-1", 7}}}, {});
    closed.restore({run, "pc-1", 7, 4});
    EXPECT_EQ(closed.offer(late(i, 5), "id-1"), ClosedRuns::Ruling::store);
    closed.committed({run, "pc-1", 7, 5});
  }
  EXPECT_EQ(closed.offer(late(0, 6), "id-1"), ClosedRuns::Ruling::unknown_run);
  EXPECT_EQ(closed.offer(late(1, 5), "id-1"), ClosedRuns::Ruling::acknowledge);
  EXPECT_EQ(closed.offer(late(1, 6), "id-1"), ClosedRuns::Ruling::store);
  EXPECT_EQ(closed.committed_mark("run-1", "pc-1", 7), 5U);
}

TEST(ClosedRuns, StoresLateRecordsOfARunBehindItsMark) {
  ClosedRuns closed;
  closed.add("run", {{"pc-1", {"id-1", 7}}}, {});
  closed.restore({"run", "pc-1", 7, 4});
  EXPECT_EQ(closed.committed_mark("run", "pc-1", 7), 4U);
  EXPECT_EQ(closed.offer({record(4), "x"}, "id-1"), ClosedRuns::Ruling::acknowledge);
  EXPECT_EQ(closed.offer({record(5), "x"}, "id-1"), ClosedRuns::Ruling::store);
  EXPECT_EQ(closed.offer({record(6), "x"}, "id-2"), ClosedRuns::Ruling::not_its_own);
  closed.committed({"run", "pc-1", 7, 5});
  EXPECT_EQ(closed.committed_mark("run", "pc-1", 7), 5U);
  Record other = record(1);
  other.key.run = "unknown";
  EXPECT_EQ(closed.offer({other, "x"}, "id-1"), ClosedRuns::Ruling::unknown_run);
}

TEST(ClosedRuns, HearOfAProcessThatNoControllerLivedToStore) {
  ClosedRuns closed;
  closed.add("run", {{"pc-1", {"id-1", 7}}}, {});
  const auto bury = [&](AgentAccount account) { return closed.bury(account, "id-1"); };
  EXPECT_FALSE(bury({"run", 7, 4, "killed"})) << "the run knows of it";
  EXPECT_FALSE(bury({"run", 8, 4, ""})) << "it lives";
  EXPECT_FALSE(bury({"other", 8, 4, "killed"}));
  EXPECT_FALSE(closed.bury({"run", 8, 4, "killed"}, "id-2"));
  const auto dead = bury({"run", 8, 4, "power loss or reboot"});
  ASSERT_TRUE(dead);
  EXPECT_EQ(dead->run, "run");
  EXPECT_EQ(dead->agent, "pc-1");
  EXPECT_EQ(dead->dead, (DeadIncarnation{8, 4, "power loss or reboot"}));
  EXPECT_FALSE(bury({"run", 8, 4, "power loss or reboot"})) << "once";
}

}  // namespace
}  // namespace spate::controller
