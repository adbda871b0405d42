#include "controller/verdict.h"

#include <gmock/gmock.h>

namespace spate::controller {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

VerdictFacts good() {
  VerdictFacts f;
  f.finished_requests = 100;
  return f;
}

TEST(Verdict, IsValidWithoutAReason) {
  const auto j = judge(good());
  EXPECT_EQ(j.verdict, Verdict::valid);
  EXPECT_TRUE(j.reasons.empty());
}

struct Rule {
  const char* name;
  void (*spoil)(VerdictFacts&);
  Verdict verdict;
  const char* says;
};

class VerdictRule : public testing::TestWithParam<Rule> {};

TEST_P(VerdictRule, GivesItsVerdictAndSaysTheNumber) {
  auto f = good();
  GetParam().spoil(f);
  const auto j = judge(f);
  EXPECT_EQ(j.verdict, GetParam().verdict);
  EXPECT_THAT(j.reasons, ElementsAre(HasSubstr(GetParam().says)));
}

constexpr auto kInvalid = Verdict::invalid;
constexpr auto kSuspect = Verdict::suspect;

TEST(Verdict, FindsNothingInACapThatWasHardlyReached) {
  auto f = good();
  f.capped = {{"pc-3", 500, 30'000, 300, 2'000'000}};
  EXPECT_EQ(judge(f).verdict, Verdict::valid);
}

INSTANTIATE_TEST_SUITE_P(
    All, VerdictRule,
    testing::Values(
        Rule{"NothingFinished", [](VerdictFacts& f) { f.finished_requests = 0; }, kInvalid,
             "No request finished."},
        Rule{"AgentLost",
             [](VerdictFacts& f) {
               f.lost = {{"pc-7", "no heartbeat for 5 s", 12'500'000'000, true}};
             },
             kInvalid, "Agent pc-7 was lost at 12.5 s: no heartbeat for 5 s."},
        Rule{"OwnersCap",
             [](VerdictFacts& f) {
               f.capped = {{"pc-3", 500, 30'000, 28'400, 1'980'000'000}};
             },
             Verdict::suspect,
             "The owner of agent pc-3 allows 500/s: 28,400 of its 30,000 requests were held back "
             "for that, 1.98s on average. The load is lower than the plan's."},
        Rule{"Gap",
             [](VerdictFacts& f) {
               f.gaps = {{"pc-7", std::chrono::seconds(3), std::chrono::seconds(5),
                          "records 4 to 5 never came"}};
             },
             kInvalid,
             "Nothing is known of agent pc-7 from 3.0 s to 5.0 s: records 4 to 5 never came."},
        Rule{"BrokenLaw",
             [](VerdictFacts& f) {
               f.broken_laws = 1;
               f.first_broken_law = "scheduled 5 is not sent 3";
             },
             kInvalid, "1 broken law in the stored records; the first: scheduled 5"},
        Rule{"ErrorEvent", [](VerdictFacts& f) { f.error_events = {"law broken agent=pc-1"}; },
             kInvalid, "An error during the run: law broken agent=pc-1."},
        Rule{"Unbalanced",
             [](VerdictFacts& f) {
               f.balance = Balance::unbalanced;
               f.balance_line = "pc-1: sent 10, received 12";
             },
             kInvalid, "totals disagree: pc-1: sent 10, received 12."},
        Rule{"TooFewConnections",
             [](VerdictFacts& f) {
               f.worst_connections = {1'000, 989, "hold", 4'000'000'000};
             },
             kInvalid,
             "Only 989 of 1,000 connections (98.90 %) were established at 4.0 s in phase hold; at "
             "least 99.00 %"},
        Rule{"SomeConnectionsMissing",
             [](VerdictFacts& f) {
               f.worst_connections = {1'000, 990, "hold", 4'000'000'000};
             },
             kSuspect, "Only 990 of 1,000 connections (99.00 %)"},
        Rule{"Crashed",
             [](VerdictFacts& f) {
               f.end = RunEnd::crashed;
               f.end_reason = "controller restarted during the run";
             },
             kInvalid, "no proper end: controller restarted during the run."},
        Rule{"Failed",
             [](VerdictFacts& f) {
               f.end = RunEnd::failed;
               f.end_reason = "all agents were lost";
             },
             kInvalid, "The run failed: all agents were lost."},
        Rule{"LateSends", [](VerdictFacts& f) { f.send_lag_p99_ns = 100'000'001; }, kInvalid,
             "send lag's p99 is 100ms"},
        Rule{"SomewhatLateSends", [](VerdictFacts& f) { f.send_lag_p99_ns = 12'000'000; }, kSuspect,
             "Generator-limited: the send lag's p99 is 12"},
        Rule{"BusyAgent",
             [](VerdictFacts& f) {
               f.busiest_agent = {"pc-2", 0.951, 4};
             },
             kSuspect, "Agent pc-2 used 95.10 % of the CPU that its 4 threads can use"},
        Rule{"StartSkew",
             [](VerdictFacts& f) {
               f.start_skew_ns = 61'000'000;
               f.start_skew_bound_ns = 10'000'000;
             },
             kSuspect, "The agents started 61"},
        Rule{"UnknownClock",
             [](VerdictFacts& f) {
               f.worst_clock = {"pc-3", 150'000'000};
             },
             kSuspect, "The clock of agent pc-3 is known only to 150"},
        Rule{"TargetRestarted", [](VerdictFacts& f) { f.target_restarts = 2; }, kSuspect,
             "The target restarted 2 times during the run."}),
    [](const auto& rule) { return std::string(rule.param.name); });

TEST(Verdict, TakesTheLimitsThemselvesAsGood) {
  auto f = good();
  f.worst_connections = {1'000, 1'000, "hold", 0};
  f.send_lag_p99_ns = kSendLagSuspectNs;
  f.busiest_agent = {"pc-1", kAgentCpuShareMax, 1};
  f.start_skew_ns = kStartSkewMaxNs;
  f.worst_clock = {"pc-1", kClockBoundMaxNs};
  EXPECT_EQ(judge(f).verdict, Verdict::valid);
}

TEST(Verdict, DoesNotSuspectARunThatAPersonStopped) {
  auto f = good();
  f.end = RunEnd::stopped;
  EXPECT_EQ(judge(f).verdict, Verdict::valid);
}

TEST(Verdict, DoesNotJudgeTheEndOfALiveRun) {
  auto f = good();
  f.ended = false;
  f.end = RunEnd::crashed;
  f.finished_requests = 0;
  EXPECT_EQ(judge(f).verdict, Verdict::valid);
}

TEST(Verdict, NamesInvalidReasonsFirstAndCutsLongLists) {
  auto f = good();
  f.send_lag_p99_ns = 12'000'000;
  f.lost.assign(9, {"pc", "gone", 0, false});
  const auto j = judge(f);
  EXPECT_EQ(j.verdict, Verdict::invalid);
  ASSERT_EQ(j.reasons.size(), kMaxReasonsPerRule + 2);
  EXPECT_EQ(j.reasons[kMaxReasonsPerRule], "4 more agents were lost.");
  EXPECT_THAT(j.reasons.back(), HasSubstr("send lag"));
}

}  // namespace
}  // namespace spate::controller
