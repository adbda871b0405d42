#include "controller/aggregate.h"

#include <gmock/gmock.h>

#include "tests/unit/controller/run_data.h"

namespace spate::controller {
namespace {

using test::FakeAgent;
using test::kSecond;

TEST(Aggregate, IsExactlyOneBigHistogram) {
  Random random(7);
  auto info = test::run_info(
      13, {test::phase("warm-up", 5 * kSecond, false), test::phase("hold", 15 * kSecond)});
  Aggregate run(info);
  Histogram all, measured;
  std::vector<FakeAgent> agents;
  for (const auto& a : info.agents) agents.emplace_back(a.name, a.incarnation);
  for (int s = 0; s < 20; ++s)
    for (auto& agent : agents) {
      FakeAgent::Interval interval;
      interval.start = s * kSecond;
      interval.phase = s < 5 ? 0 : 1;
      for (int n = 0; n < 200; ++n) {
        const auto latency = static_cast<std::int64_t>(random() % 1'000'000'000);
        interval.requests.emplace_back(Outcome::ok, latency);
        all.record(latency);
        if (s >= 5) measured.record(latency);
      }
      run.add(agent.next(interval));
    }
  Histogram of_points, of_agents;
  for (const auto& p : run.points()) of_points.merge(p.latency);
  for (const auto& a : run.agents()) of_agents.merge(a.latency);
  EXPECT_EQ(of_points, all);
  EXPECT_EQ(of_agents, measured);
  EXPECT_EQ(run.phases().at(1).latency, measured);
  EXPECT_EQ(run.summary().latency.p99, measured.quantile(0.99));
  EXPECT_EQ(run.summary().latency.max, measured.max());
}

TEST(Aggregate, PutsAllAgentsOnOneGridInWhateverOrderTheyArrive) {
  auto info = test::run_info(2, {test::phase("hold", 4 * kSecond)});
  Aggregate run(info);
  FakeAgent a("pc-1", 100), b("pc-2", 101);
  for (int s = 0; s < 4; ++s)
    run.add(a.next({.start = s * kSecond, .requests = test::ok_requests(3)}));
  // A little early by its own clock, and late in coming.
  for (int s = 0; s < 4; ++s)
    run.add(b.next({.start = s * kSecond - (s == 0 ? Duration{} : Duration(1'000'000)),
                    .length = s == 0 ? kSecond - Duration(1'000'000) : kSecond,
                    .requests = test::ok_requests(4)}));
  ASSERT_EQ(run.points().size(), 4U);
  for (const auto& p : run.points()) {
    EXPECT_EQ(p.ok(), 7U);
    EXPECT_EQ(p.agents_reporting, 2U);
    EXPECT_EQ(p.connections_requested, 20U);
    EXPECT_EQ(p.connections_established, 20U);
    EXPECT_NEAR(p.rate_per_s(), 7, 0.1);
  }
}

TEST(Aggregate, NeverMixesPhasesInAPoint) {
  const auto half = kSecond / 2;
  Aggregate run(test::run_info(1, {test::phase("a", 3 * half), test::phase("b", 3 * half)}));
  FakeAgent a("pc-1", 100);
  run.add(a.next({.start = Duration{}, .requests = test::ok_requests(1)}));
  run.add(a.next({.start = kSecond, .length = half, .requests = test::ok_requests(2)}));
  run.add(a.next({.start = 3 * half,
                  .length = half,
                  .phase = 1,
                  .epoch = 2,
                  .requests = test::ok_requests(3)}));
  run.add(a.next({.start = 4 * half, .phase = 1, .epoch = 2, .requests = test::ok_requests(4)}));
  ASSERT_EQ(run.points().size(), 4U);
  EXPECT_EQ(run.points()[1].phase, 0U);
  EXPECT_EQ(run.points()[2].phase, 1U);
  EXPECT_EQ(run.points()[2].epoch, 2U);
  EXPECT_EQ(run.points()[2].length, half);
  EXPECT_EQ(run.phases().at(0).finished, 3U);
  EXPECT_EQ(run.phases().at(1).finished, 7U);
  EXPECT_EQ(run.summary().epochs, 2U);
}

TEST(Aggregate, HoldsNoMorePointsThanItsLimitAndLosesNothingByIt) {
  constexpr int kIntervals = 9'001;
  auto info =
      test::run_info(2, {test::phase("a", 4'000 * kSecond), test::phase("b", 5'001 * kSecond)});
  Aggregate run(info);
  FakeAgent a("pc-1", 100), b("pc-2", 101);
  Histogram all;
  std::uint64_t sent = 0;
  for (int s = 0; s < kIntervals; ++s) {
    FakeAgent::Interval interval{.start = s * kSecond, .phase = s < 4'000 ? 0U : 1U};
    interval.requests = test::ok_requests(2, 1'000 * s + 1'000);
    interval.established = s == 6'000 ? 7 : 10;
    for (auto* agent : {&a, &b}) {
      run.add(agent->next(interval));
      all.record(1'000 * s + 1'000, 2);
      sent += 2;
    }
  }
  EXPECT_LE(run.points().size(), kMaxPoints);
  EXPECT_GT(run.points().size(), kMaxPoints / 2);
  Histogram merged;
  std::uint64_t counted = 0;
  Duration covered{};
  for (std::size_t i = 0; i < run.points().size(); ++i) {
    const auto& p = run.points()[i];
    merged.merge(p.latency);
    counted += p.counters.sent;
    covered += p.length;
    EXPECT_EQ(p.agents_reporting, 2U);
    EXPECT_EQ(p.connections_requested, 20U);
    const auto previous_end =
        i == 0 ? Duration{} : run.points()[i - 1].start + run.points()[i - 1].length;
    EXPECT_EQ(p.start, previous_end);
    EXPECT_EQ(p.phase, p.start < 4'000 * kSecond ? 0U : 1U);
  }
  EXPECT_EQ(merged, all);
  EXPECT_EQ(counted, sent);
  EXPECT_EQ(covered, kIntervals * kSecond);
  EXPECT_EQ(run.phases().at(1).connections_established, 14U)
      << "the fewest of a merged point is kept";
}

TEST(Aggregate, CountsTheDrainForTheLastPoint) {
  auto info = test::run_info(1, {test::phase("hold", 2 * kSecond)});
  info.agents[0].last_seq = 3;
  Aggregate run(info);
  FakeAgent a("pc-1", 100);
  run.add(a.next({.start = Duration{}, .requests = test::ok_requests(5)}));
  run.add(a.next({.start = kSecond, .requests = test::ok_requests(5), .sent = 8}));
  auto drain = test::ok_requests(2, 3'000'000'000);
  drain.emplace_back(Outcome::cancelled, 5'000'000'000);
  run.add(a.next({.start = 2 * kSecond,
                  .length = 5 * kSecond,
                  .drain = true,
                  .requests = drain,
                  .sent = 0,
                  .established = 0}));
  ASSERT_EQ(run.points().size(), 2U);
  const auto& last = run.points()[1];
  EXPECT_EQ(last.ok(), 7U);
  EXPECT_EQ(last.length, kSecond);
  EXPECT_EQ(last.counters.in_flight_end, 0U);
  EXPECT_EQ(last.connections_established, 10U);
  const auto s = run.summary();
  EXPECT_EQ(s.latency.max, 3'000'000'000)
      << "slow answers of the drain are not hidden, the cut-off one has no latency";
  EXPECT_EQ(s.requests.scheduled, 13U);
  EXPECT_EQ(s.requests.scheduled, s.requests.ok + s.requests.failed + s.requests.timed_out +
                                      s.requests.cancelled + s.requests.missed);
  EXPECT_EQ(s.records.gaps, 0U);
  EXPECT_DOUBLE_EQ(s.rate_per_s, 6.0);
}

TEST(Aggregate, ShowsAGapInTheMiddleWithItsCause) {
  auto info = test::run_info(2, {test::phase("hold", 6 * kSecond)});
  for (auto& agent : info.agents) agent.last_seq = 6;
  Aggregate run(info);
  FakeAgent a("pc-1", 100), b("pc-2", 101);
  for (int s = 0; s < 6; ++s)
    run.add(a.next({.start = s * kSecond, .requests = test::ok_requests(1)}));
  for (int s = 0; s < 6; ++s) {
    if (s == 2 || s == 3) {
      b.skip(1);
      continue;
    }
    run.add(b.next({.start = s * kSecond, .requests = test::ok_requests(1)}));
  }
  const auto gaps = run.gaps();
  ASSERT_EQ(gaps.size(), 1U);
  EXPECT_EQ(gaps[0].agent, "pc-2");
  EXPECT_EQ(gaps[0].from, 2 * kSecond);
  EXPECT_EQ(gaps[0].to, 4 * kSecond);
  EXPECT_EQ(gaps[0].cause, "records 3 to 4 never came");
  EXPECT_EQ(run.points()[1].agents_reporting, 2U);
  EXPECT_EQ(run.points()[2].agents_reporting, 1U);
  EXPECT_EQ(run.points()[4].agents_reporting, 2U);
  EXPECT_EQ(run.summary().verdict, Verdict::invalid);
}

TEST(Aggregate, ShowsTheEndOfALostAgentAndOfASilentOneAsGaps) {
  auto info = test::run_info(3, {test::phase("hold", 6 * kSecond)});
  info.agents[0].last_seq = 6;
  info.agents[1].last_seq.reset();
  info.agents[1].lost_reason = "its stream broke";
  info.agents[2].last_seq.reset();
  Aggregate run(info);
  FakeAgent a("pc-1", 100), b("pc-2", 101);
  for (int s = 0; s < 6; ++s)
    run.add(a.next({.start = s * kSecond, .requests = test::ok_requests(1)}));
  for (int s = 0; s < 2; ++s)
    run.add(b.next({.start = s * kSecond, .requests = test::ok_requests(1)}));
  const auto gaps = run.gaps();
  ASSERT_EQ(gaps.size(), 2U);
  EXPECT_EQ(gaps[0].agent, "pc-3");
  EXPECT_EQ(gaps[0].cause, "no record ever came");
  EXPECT_EQ(gaps[1].agent, "pc-2");
  EXPECT_EQ(gaps[1].from, 2 * kSecond);
  EXPECT_EQ(gaps[1].to, 6 * kSecond);
}

TEST(Aggregate, FindsBrokenLaws) {
  Aggregate run(test::run_info(1, {test::phase("hold", 2 * kSecond)}));
  FakeAgent a("pc-1", 100);
  auto r = a.next({.requests = test::ok_requests(3)});
  r.counters.scheduled = 5;
  run.add(r);
  EXPECT_EQ(run.broken_law_count(), 1U);
  EXPECT_EQ(run.summary().verdict, Verdict::invalid);
  EXPECT_EQ(run.summary().balance, Balance::unbalanced);
}

TEST(Aggregate, KeepsTargetSamplesAndEventsBounded) {
  auto run = test::good_run();
  for (int i = 0; i < 20'000; ++i) {
    auto s = test::target_sample((11 + i) * kSecond.count());
    s.completed = s.received = 100;
    s.agents = {{"pc-1", 100, 50, 50, 0}, {"pc-2", 101, 50, 50, 0}};
    run.add(s);
    run.add(RunEvent{i, RunEvent::Severity::info, "tick"});
  }
  EXPECT_LE(run.target_samples().size(), kMaxTargetSamples);
  EXPECT_EQ(run.target_samples().size(), run.completed_at_samples().size());
  EXPECT_EQ(run.target_samples().front().at_ns, 0);
  EXPECT_LE(run.events().size(), kMaxEvents);
  EXPECT_EQ(run.summary().target.received, 100U);
}

}  // namespace
}  // namespace spate::controller
