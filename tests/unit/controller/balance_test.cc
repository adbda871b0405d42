#include "controller/balance.h"

#include <gmock/gmock.h>

#include "tests/unit/controller/run_data.h"

namespace spate::controller {
namespace {

using test::FakeAgent;
using test::kSecond;
using testing::Contains;
using testing::HasSubstr;

BalanceFacts::Agent agent(std::uint64_t sent, std::uint64_t ok, std::uint64_t received) {
  BalanceFacts::Agent a;
  a.agent = "pc-1";
  a.sent = sent;
  a.outcomes[index(Outcome::ok)] = ok;
  a.received = received;
  return a;
}

BalanceFacts facts(BalanceFacts::Agent a) {
  BalanceFacts f;
  f.agents = {std::move(a)};
  f.target_known = true;
  f.probe_planned = true;
  f.target = "grpc://127.0.0.1:7000";
  return f;
}

TEST(Balance, IsBalancedIfAllIsEqual) {
  const auto r = check_balance(facts(agent(100, 100, 100)));
  EXPECT_EQ(r.balance, Balance::balanced);
  EXPECT_THAT(r.lines, Contains("pc-1: sent 100, answered 100, received by the target 100"));
}

TEST(Balance, CountsApplicationErrorsAsAnswers) {
  auto a = agent(100, 90, 100);
  a.outcomes[index(Outcome::application_error)] = 10;
  EXPECT_EQ(check_balance(facts(a)).balance, Balance::balanced);
}

TEST(Balance, ExplainsADifferenceByRequestsThatBroke) {
  for (const auto cause : {Outcome::timed_out, Outcome::refused, Outcome::reset,
                           Outcome::protocol_error, Outcome::cancelled}) {
    auto a = agent(100, 95, 97);
    a.outcomes[index(cause)] = 5;
    const auto r = check_balance(facts(a));
    EXPECT_EQ(r.balance, Balance::explained);
    EXPECT_THAT(r.worst_line, HasSubstr("3 not received, at most 5 explained by: "));
  }
}

TEST(Balance, IsBalancedIfTheTargetGotEvenTheBrokenOnes) {
  auto a = agent(100, 95, 100);
  a.outcomes[index(Outcome::timed_out)] = 5;
  EXPECT_EQ(check_balance(facts(a)).balance, Balance::balanced);
}

TEST(Balance, IsUnbalancedBeyondWhatBroke) {
  auto a = agent(100, 98, 97);
  a.outcomes[index(Outcome::reset)] = 2;
  const auto r = check_balance(facts(a));
  EXPECT_EQ(r.balance, Balance::unbalanced);
  EXPECT_THAT(r.worst_line, HasSubstr("1 were answered that the target never counted"));
}

TEST(Balance, IsUnbalancedIfTheTargetGotMoreThanWasSent) {
  const auto r = check_balance(facts(agent(100, 100, 103)));
  EXPECT_EQ(r.balance, Balance::unbalanced);
  EXPECT_THAT(r.worst_line, HasSubstr("3 more than were sent"));
}

TEST(Balance, CallsTheOutcomeOfWhatWasInFlightAtADeathUnknown) {
  auto a = agent(100, 95, 98);
  a.in_flight_end = 5;
  a.incarnation = 3;
  a.died = "killed";
  a.last_interval_kept = true;
  const auto r = check_balance(facts(a));
  EXPECT_EQ(r.balance, Balance::explained);
  EXPECT_THAT(r.worst_line, HasSubstr("pc-1 (process 3): sent 100"));
  EXPECT_THAT(r.worst_line, HasSubstr("at most 5 explained by: in flight when it died 5"));

  a.received = 100;
  const auto all_received = check_balance(facts(a));
  EXPECT_EQ(all_received.balance, Balance::explained);
  EXPECT_THAT(all_received.worst_line,
              HasSubstr("it died (killed): the outcome of 5 in flight then is unknown"));
}

TEST(Balance, ExplainsMoreReceivedThanStoredOnlyIfTheLastIntervalWasLost) {
  auto a = agent(100, 100, 130);
  a.died = "power loss or reboot";
  const auto r = check_balance(facts(a));
  EXPECT_EQ(r.balance, Balance::explained);
  EXPECT_THAT(r.worst_line, HasSubstr("30 more than is stored: it died (power loss or reboot)"));
  a.last_interval_kept = true;
  EXPECT_EQ(check_balance(facts(a)).balance, Balance::unbalanced);
}

TEST(Balance, ExplainsMoreReceivedThanStoredByALostAgentOrAGap) {
  auto a = agent(100, 100, 150);
  a.lost = true;
  EXPECT_EQ(check_balance(facts(a)).balance, Balance::explained);
  a.lost = false;
  a.records_missing = true;
  EXPECT_EQ(check_balance(facts(a)).balance, Balance::explained);
}

TEST(Balance, IsUnbalancedIfARequestHasNoOutcome) {
  EXPECT_EQ(check_balance(facts(agent(101, 100, 101))).balance, Balance::unbalanced);
}

TEST(Balance, IsUnbalancedIfALawIsBroken) {
  auto f = facts(agent(100, 100, 100));
  f.broken_laws = 1;
  f.broken_law_texts = {"agent pc-1 record 4: scheduled"};
  const auto r = check_balance(f);
  EXPECT_EQ(r.balance, Balance::unbalanced);
  EXPECT_THAT(r.lines, Contains(HasSubstr("agent pc-1 record 4: scheduled")));
}

TEST(Balance, OfAForeignTargetIsTheAgentsSideOnlyAndSaysSo) {
  auto f = facts(agent(100, 100, 0));
  f.target_known = f.probe_planned = false;
  const auto r = check_balance(f);
  EXPECT_EQ(r.balance, Balance::balanced);
  EXPECT_THAT(r.lines, Contains(HasSubstr("the agents' side only")));
}

TEST(Balance, OfATargetThatWasNeverReadIsNotBalanced) {
  auto f = facts(agent(100, 100, 0));
  f.target_known = false;
  EXPECT_EQ(check_balance(f).balance, Balance::explained);
}

TEST(Balance, ExplainsWhatARestartHidIfItFits) {
  auto f = facts(agent(100, 95, 80));
  f.agents[0].outcomes[index(Outcome::reset)] = 5;
  f.target_restarts = 1;
  f.sent_unseen_max = 15;
  EXPECT_EQ(check_balance(f).balance, Balance::explained);
  f.sent_unseen_max = 14;
  EXPECT_EQ(check_balance(f).balance, Balance::unbalanced);
}

TEST(Balance, ExplainsWhatABootHidThatNobodySaw) {
  auto f = facts(agent(100, 100, 80));
  f.head_unseen = true;  // it restarted before its first sample, for all we know
  f.sent_unseen_max = 20;
  EXPECT_EQ(check_balance(f).balance, Balance::explained);
  f.sent_unseen_max = 19;
  EXPECT_EQ(check_balance(f).balance, Balance::unbalanced);
  f.agents[0].received = 100;
  EXPECT_EQ(check_balance(f).balance, Balance::balanced);
}

TEST(Balance, HasALinePerAgentOnlyWhileTheyAreFew) {
  auto f = facts(agent(100, 100, 100));
  f.agents.assign(kMaxBalancedLines + 1, f.agents[0]);
  f.agents[7].received = 101;
  EXPECT_EQ(check_balance(f).lines.size(), 3U);
}

// The same through the records and samples of a run.

TEST(Balance, OfAGoodRunIsBalanced) {
  const auto s = test::good_run().summary();
  EXPECT_EQ(s.balance, Balance::balanced) << testing::PrintToString(s.balance_lines);
  EXPECT_EQ(s.target.received, s.requests.sent);
  EXPECT_EQ(s.verdict, Verdict::valid) << testing::PrintToString(s.reasons);
  EXPECT_EQ(s.exit_code, 0);
}

// Agent pc-1 sends 10 a second for 10 s; the target dies at 5.5 s, having been seen at 5 s.
Aggregate restarted_run(std::uint64_t received_by_second_boot) {
  auto info = test::run_info(1, {test::phase("hold", 10 * kSecond)});
  info.agents[0].last_seq = 10;
  info.plan.target.probe = "127.0.0.1:7001";
  Aggregate run(info);
  FakeAgent a("pc-1", 100);
  for (int s = 0; s < 10; ++s)
    run.add(a.next({.start = s * kSecond, .requests = test::ok_requests(10)}));
  for (int s = 0; s <= 5; ++s) {
    auto sample = test::target_sample(s * kSecond.count());
    const auto n = static_cast<std::uint64_t>(s) * 10;
    sample.completed = sample.received = n;
    sample.agents = {{"pc-1", 100, n, n, 0}};
    run.add(sample);
  }
  auto sample = test::target_sample(11 * kSecond.count(), "boot-2");
  sample.completed = sample.received = received_by_second_boot;
  sample.agents = {{"pc-1", 100, received_by_second_boot, received_by_second_boot, 0}};
  run.add(sample);
  return run;
}

TEST(Balance, SumsTheBootsOfATargetThatRestarted) {
  const auto s = restarted_run(45).summary();
  EXPECT_EQ(s.target.received, 95U);
  EXPECT_EQ(s.target.restarts, 1U);
  EXPECT_EQ(s.balance, Balance::explained) << testing::PrintToString(s.balance_lines);
  EXPECT_THAT(s.reasons, Contains(HasSubstr("restarted once")));
}

TEST(Balance, OfARestartedTargetThatSawMoreThanWasSentIsUnbalanced) {
  EXPECT_EQ(restarted_run(60).summary().balance, Balance::unbalanced);
}

TEST(Balance, KnowsThatALastSampleTooEarlyHidesTheEnd) {
  auto info = test::run_info(1, {test::phase("hold", 4 * kSecond)});
  info.agents[0].last_seq = 4;
  Aggregate run(info);
  FakeAgent a("pc-1", 100);
  for (int s = 0; s < 4; ++s)
    run.add(a.next({.start = s * kSecond, .requests = test::ok_requests(10)}));
  auto sample = test::target_sample(2 * kSecond.count());
  sample.agents = {{"pc-1", 100, 20, 20, 0}};
  run.add(sample);
  std::vector<std::string> lines;
  EXPECT_EQ(run.balance(lines), Balance::explained) << testing::PrintToString(lines);
}

}  // namespace
}  // namespace spate::controller
