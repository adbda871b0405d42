#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "controller/aggregate.h"
#include "tests/unit/controller/run_data.h"

namespace spate::controller {
namespace {

using nlohmann::json;
using test::FakeAgent;
using test::kSecond;
using testing::HasSubstr;
using testing::Not;

TEST(Summary, HasTheKeysOfTheDesign) {
  const auto j = json::parse(to_json(test::good_run().summary()));
  EXPECT_EQ(j.at("summary_version"), 1);
  EXPECT_EQ(j.at("verdict"), "VALID");
  EXPECT_EQ(j.at("balance"), "BALANCED");
  EXPECT_EQ(j.at("run"), "demo-20261130-102619-x7q2");
  EXPECT_EQ(j.at("duration_s"), 10.0);
  for (const auto* path : {"/plan",
                           "/reasons",
                           "/started_at",
                           "/agents",
                           "/epochs",
                           "/connections/requested",
                           "/connections/established",
                           "/connections/opened",
                           "/connections/closed",
                           "/requests/scheduled",
                           "/requests/sent",
                           "/requests/ok",
                           "/requests/failed",
                           "/requests/timed_out",
                           "/requests/cancelled",
                           "/requests/missed",
                           "/requests/held",
                           "/errors",
                           "/rate_per_s",
                           "/bytes/sent",
                           "/bytes/received",
                           "/latency_ns/mean",
                           "/latency_ns/p50",
                           "/latency_ns/p90",
                           "/latency_ns/p99",
                           "/latency_ns/p999",
                           "/latency_ns/max",
                           "/service_time_ns/p99",
                           "/send_lag_ns/p99",
                           "/start_skew_ns",
                           "/records/stored",
                           "/records/gaps",
                           "/records/duplicates",
                           "/agent/cpu_us_per_request",
                           "/agent/rss_bytes_max",
                           "/target/received",
                           "/target/completed",
                           "/target/address_space_bytes",
                           "/target/rss_bytes",
                           "/target/cpu_us_per_request"})
    EXPECT_TRUE(j.contains(json::json_pointer(path))) << path;
  EXPECT_TRUE(j.at("errors").is_object());
  EXPECT_TRUE(j.at("reasons").is_array());
  EXPECT_EQ(j.at("requests").at("ok"), 100);
  EXPECT_EQ(j.at("connections").at("requested"), 20);
  EXPECT_EQ(j.at("target").at("cpu_us_per_request"), 1'000.0);
}

TEST(Summary, BelievesARunWhoseStoreWasFullForAWhile) {
  auto run = test::good_run();
  run.add(
      RunEvent{kSecond.count(), RunEvent::Severity::error,
               "cannot write the store s.sqlite: database or disk is full; agents keep theirs"});
  EXPECT_EQ(run.summary().verdict, Verdict::valid);
  run.add(RunEvent{kSecond.count(), RunEvent::Severity::error, "the store refused a row"});
  EXPECT_EQ(run.summary().verdict, Verdict::invalid);
}

TEST(Summary, SaysWhatOwnersCapsHeldBack) {
  auto run = test::good_run();
  EXPECT_THAT(to_text(run.summary()), Not(HasSubstr("held back")));
  Record capped = FakeAgent("pc-9", 900).next({.requests = test::ok_requests(100), .sent = 100});
  capped.gauges.max_rate_per_s = 500;
  capped.counters.held = 50;
  capped.counters.held_ns = 100'000'000;
  run.add(capped);
  const auto s = run.summary();
  EXPECT_EQ(s.requests.held, 50U);
  EXPECT_THAT(
      s.reasons,
      testing::Contains(HasSubstr("The owner of agent pc-9 allows 500/s: 50 of its 100 requests")));
  EXPECT_THAT(to_text(s), HasSubstr("50 held back by owners' caps, 2.00ms on average"));
}

TEST(Summary, SortsEveryOutcomeIntoOneOfTheTotals) {
  auto info = test::run_info(1, {test::phase("hold", kSecond)});
  info.agents[0].last_seq = 1;
  Aggregate run(info);
  FakeAgent a("pc-1", 100);
  FakeAgent::Interval interval;
  for (const auto o : kOutcomes) interval.requests.emplace_back(o, 5'000'000);
  run.add(a.next(interval));
  const auto s = run.summary();
  EXPECT_EQ(s.requests.ok, 1U);
  EXPECT_EQ(s.requests.timed_out, 1U);
  EXPECT_EQ(s.requests.cancelled, 1U);
  EXPECT_EQ(s.requests.failed, 5U);
  EXPECT_EQ(s.requests.scheduled, 8U);
  EXPECT_EQ(s.errors.at("reset 7 went wrong"), 1U);
  EXPECT_EQ(run.phases().at(0).latency.count(), 4U)
      << "ok, two kinds of answers, and the timed-out one";
}

TEST(Summary, ChecksThresholdsAgainstTheMeasuredPhases) {
  auto info =
      test::run_info(1, {test::phase("warm-up", kSecond, false), test::phase("hold", kSecond)});
  info.agents[0].last_seq = 2;
  const auto threshold = [&](Threshold::Metric m, Threshold::Statistic s, Threshold::Comparison c,
                             double bound) {
    Threshold t;
    t.metric = m;
    t.statistic = s;
    t.comparison = c;
    t.bound = bound;
    t.text = "threshold " + std::to_string(info.plan.thresholds.size());
    info.plan.thresholds.push_back(t);
  };
  using M = Threshold::Metric;
  using S = Threshold::Statistic;
  using C = Threshold::Comparison;
  threshold(M::latency, S::quantile, C::less, 3e6);    // 0 passes: the slow warm-up does not count
  threshold(M::latency, S::max, C::less, 1e6);         // 1 fails
  threshold(M::errors, S::rate, C::less, 0.25);        // 2 passes: 1 of 5
  threshold(M::errors, S::rate, C::less, 0.2);         // 3 fails: 20 % is not less than 20 %
  threshold(M::requests, S::rate, C::greater, 4);      // 4 passes: 5 a second
  threshold(M::service_time, S::mean, C::greater, 1);  // 5 passes
  Aggregate run(info);
  FakeAgent a("pc-1", 100);
  run.add(a.next({.requests = test::ok_requests(5, 900'000'000)}));
  auto requests = test::ok_requests(4);
  requests.emplace_back(Outcome::reset, 1'000);
  run.add(a.next({.start = kSecond, .phase = 1, .requests = requests}));
  const auto s = run.summary();
  EXPECT_THAT(s.passed_thresholds,
              testing::ElementsAre(HasSubstr("threshold 0"), HasSubstr("threshold 2"),
                                   HasSubstr("threshold 4"), HasSubstr("threshold 5")));
  EXPECT_THAT(s.failed_thresholds,
              testing::ElementsAre(HasSubstr("threshold 1"), HasSubstr("threshold 3")));
  EXPECT_EQ(s.exit_code, 99);
}

TEST(Summary, PrefersTheExitCodeOfAStopThenOfAnInvalidRun) {
  auto run = test::good_run();
  auto info = run.info();
  info.plan.thresholds.emplace_back();
  info.plan.thresholds.back().bound = 1;
  run.update(info);
  EXPECT_EQ(run.summary().exit_code, 99);
  info.end = RunEnd::failed;
  run.update(info);
  EXPECT_EQ(run.summary().exit_code, 3);
  info.end = RunEnd::stopped;
  run.update(info);
  EXPECT_EQ(run.summary().exit_code, 105);
  EXPECT_EQ(run.summary().verdict, Verdict::valid);
}

TEST(Summary, MeasuresTheStartSkewBetweenTheFirstAndTheLastAgent) {
  auto run = test::good_run();
  auto info = run.info();
  info.agents[0].start_skew_ns = -2'000'000;
  info.agents[1].start_skew_ns = 58'000'000;
  info.agents[1].clock_bound_ns = 1'000'000;
  run.update(info);
  EXPECT_EQ(run.summary().start_skew_ns, 60'000'000);
  EXPECT_EQ(run.summary().verdict, Verdict::suspect);
}

TEST(Summary, NamesTheWorstMeasuredIntervalOfConnections) {
  auto info =
      test::run_info(1, {test::phase("warm-up", kSecond, false), test::phase("hold", 2 * kSecond)});
  info.agents[0].last_seq = 3;
  Aggregate run(info);
  FakeAgent a("pc-1", 100);
  run.add(a.next({.requests = test::ok_requests(1), .established = 1}));
  run.add(
      a.next({.start = kSecond, .phase = 1, .requests = test::ok_requests(1), .established = 9}));
  run.add(a.next({.start = 2 * kSecond, .phase = 1, .requests = test::ok_requests(1)}));
  const auto s = run.summary();
  EXPECT_EQ(s.verdict, Verdict::invalid);
  EXPECT_THAT(s.reasons, testing::ElementsAre(HasSubstr(
                             "Only 9 of 10 connections (90.00 %) were established at 2.0 s")));
  EXPECT_EQ(s.connections.established, 10U);
}

TEST(Summary, TextPutsTheVerdictFirstAndHasATableForASweep) {
  auto info = test::run_info(
      1, {test::phase("13 connections", kSecond), test::phase("130 connections", kSecond)});
  info.agents[0].last_seq = 2;
  Aggregate run(info);
  FakeAgent a("pc-1", 100);
  run.add(a.next({.requests = test::ok_requests(9)}));
  run.add(a.next({.start = kSecond, .phase = 1, .requests = {{Outcome::reset, 1'000}}}));
  const auto text = to_text(run.summary());
  EXPECT_TRUE(text.starts_with("VALID  demo-")) << text;
  EXPECT_THAT(text, HasSubstr("130 connections"));
  EXPECT_THAT(text, HasSubstr("req/s"));
  EXPECT_THAT(text, HasSubstr("reset 7 went wrong"));
}

TEST(Summary, SurvivesBytesThatAreNotText) {
  auto info = test::run_info(1, {test::phase("hold", kSecond)});
  info.agents[0].last_seq = 1;
  Aggregate run(info);
  FakeAgent a("pc-1", 100);
  auto r = a.next({.requests = {{Outcome::reset, 1'000}}});
  r.errors = {};
  r.errors.add(Outcome::reset, 1, "\xff\xfe\x1b[2J");
  run.add(r);
  const auto s = run.summary();
  EXPECT_FALSE(json::parse(to_json(s)).at("errors").empty());
  EXPECT_EQ(to_text(s).find('\x1b'), std::string::npos);
}

TEST(Summary, OfARunWithoutAnyRecordIsInvalidAndWhole) {
  auto info = test::run_info(2, {test::phase("hold", kSecond)});
  info.end = RunEnd::failed;
  info.end_reason = "the target did not answer";
  const auto s = Aggregate(info).summary();
  EXPECT_EQ(s.verdict, Verdict::invalid);
  EXPECT_EQ(s.exit_code, 3);
  EXPECT_FALSE(to_text(s).empty());
  EXPECT_EQ(json::parse(to_json(s)).at("requests").at("sent"), 0);
}

}  // namespace
}  // namespace spate::controller
