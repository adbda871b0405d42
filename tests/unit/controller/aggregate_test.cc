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

// One agent's records as they came, another's merged from ten: they share the longer points.
TEST(Aggregate, GivesLongAndShortRecordsOneTimeAxis) {
  for (const bool long_first : {true, false}) {
    auto info = test::run_info(2, {test::phase("hold", 30 * kSecond)});
    info.agents[0].last_seq = info.agents[1].last_seq = 30;
    Aggregate run(info);
    FakeAgent a("pc-1", 100), b("pc-2", 101);
    const auto add_short = [&] {
      for (int s = 0; s < 30; ++s)
        run.add(a.next({.start = s * kSecond, .requests = test::ok_requests(1)}));
    };
    const auto add_long = [&] {
      for (int s = 0; s < 30; s += 10) {
        b.skip(9);
        auto record = b.next(
            {.start = s * kSecond, .length = 10 * kSecond, .requests = test::ok_requests(10)});
        record.first_seq = record.key.seq - 9;
        run.add(record);
      }
    };
    long_first ? add_long() : add_short();
    long_first ? add_short() : add_long();
    ASSERT_EQ(run.points().size(), 3U);
    for (const auto& p : run.points()) {
      EXPECT_EQ(p.ok(), 20U);
      EXPECT_EQ(p.length, 10 * kSecond);
      EXPECT_EQ(p.agents_reporting, 2U);
      EXPECT_EQ(p.connections_requested, 20U);
      EXPECT_EQ(p.connections_established, 20U);
    }
    EXPECT_TRUE(run.gaps().empty());
    EXPECT_EQ(run.broken_law_count(), 0U);
    EXPECT_EQ(run.summary().records.stored, 60U) << "as the agents made them";
    EXPECT_EQ(run.agents()[1].records, 30U);
  }
}

// A rotation once a minute for a month: epochs must not fill the memory either.
TEST(Aggregate, HoldsNoMorePointsThanItsLimitForAnyNumberOfEpochs) {
  constexpr int kEpochs = 6'000;
  auto info = test::run_info(2, {test::phase("hold", 3 * kEpochs * kSecond)});
  Aggregate run(info);
  FakeAgent a("pc-1", 100), b("pc-2", 101);
  for (int s = 0; s < 3 * kEpochs; ++s) {
    for (auto* agent : {&a, &b}) {
      auto record = agent->next({.start = s * kSecond,
                                 .epoch = static_cast<std::uint32_t>(1 + s / 3),
                                 .requests = test::ok_requests(1)});
      record.guard = s % 3 == 0 && s > 0;
      run.add(record);
    }
  }
  ASSERT_LE(run.points().size(), kMaxPoints);
  std::uint64_t ok = 0;
  Duration covered_to{};
  for (const auto& p : run.points()) {
    ok += p.ok();
    EXPECT_EQ(p.connections_requested, 20U);
    covered_to = std::max(covered_to, p.start + p.length);
  }
  EXPECT_EQ(ok, 2U * 3 * kEpochs);
  EXPECT_EQ(covered_to, 3 * kEpochs * kSecond);
  EXPECT_GT(run.points().size(), kMaxPoints / 8);
  EXPECT_EQ(run.summary().epochs, static_cast<std::uint32_t>(kEpochs));
}

TEST(Aggregate, DoesNotMeasureWhatIsInAGuardBand) {
  auto info = test::run_info(1, {test::phase("hold", 30 * kSecond)});
  info.agents[0].last_seq = 30;
  Aggregate run(info);
  FakeAgent a("pc-1", 100);
  for (int s = 0; s < 30; ++s) {
    const bool guard = s >= 10 && s < 15;
    auto record = a.next({.start = s * kSecond,
                          .epoch = s < 10 ? 1U : 2U,
                          .requests = test::ok_requests(4, guard ? 900'000'000 : 2'000'000)});
    record.guard = guard;
    run.add(record);
  }
  const auto summary = run.summary();
  EXPECT_EQ(summary.requests.ok, 120U);
  EXPECT_NEAR(summary.rate_per_s, 4, 0.01);
  EXPECT_LT(summary.latency.max, 3'000'000);
  EXPECT_NEAR(summary.phases.at(0).length_s, 25, 0.001);
  EXPECT_EQ(run.points().size(), 30U);
  EXPECT_TRUE(run.points()[12].guard);
  EXPECT_FALSE(run.points()[15].guard);
}

// Agents that are on different epochs for a while have points of their own, side by side in time.
TEST(Aggregate, KeepsPointsInTheOrderOfTimeWhileEpochsOverlap) {
  auto info = test::run_info(2, {test::phase("hold", 6'000 * kSecond)});
  info.agents[0].last_seq = info.agents[1].last_seq = 6'000;
  Aggregate run(info);
  FakeAgent a("pc-1", 100), b("pc-2", 101);
  for (int s = 0; s < 6'000; ++s) {
    run.add(a.next(
        {.start = s * kSecond, .epoch = s < 1'000 ? 1U : 2U, .requests = test::ok_requests(1)}));
    run.add(b.next(
        {.start = s * kSecond, .epoch = s < 5'000 ? 1U : 2U, .requests = test::ok_requests(2)}));
  }
  std::uint64_t first = 0, second = 0;
  Duration before{};
  for (const auto& p : run.points()) {
    EXPECT_GE(p.start, before);
    before = p.start;
    (p.epoch == 1 ? first : second) += p.ok();
  }
  EXPECT_EQ(first, 1'000U + 10'000U);
  EXPECT_EQ(second, 5'000U + 2'000U);
  EXPECT_LE(run.points().size(), kMaxPoints);
}

TEST(Aggregate, KnowsAProcessThatDiedFromTheOneThatCameAfterIt) {
  auto info = test::run_info(1, {test::phase("hold", 20 * kSecond)});
  info.agents[0].incarnation = 2;
  info.agents[0].last_seq = 10;
  info.agents[0].dead = {{1, 6, "killed"}};
  Aggregate run(info);
  FakeAgent before("pc-1", 1), after("pc-1", 2);
  for (int s = 0; s < 5; ++s)
    run.add(before.next({.start = s * kSecond, .requests = test::ok_requests(3)}));
  auto last = before.next(
      {.start = 5 * kSecond, .length = kSecond / 2, .requests = test::ok_requests(1), .sent = 3});
  last.recovered = true;
  run.add(last);
  for (int s = 0; s < 10; ++s)
    run.add(after.next({.start = (10 + s) * kSecond, .requests = test::ok_requests(3)}));

  auto sample = test::target_sample(25 * kSecond.count());
  sample.agents = {{"pc-1", 1, 17, 17, 0}, {"pc-1", 2, 30, 30, 0}};
  run.add(sample);
  EXPECT_TRUE(run.gaps().empty()) << run.gaps().front().cause;
  const auto absences = run.absences();
  ASSERT_EQ(absences.size(), 1U);
  EXPECT_EQ(absences[0].from, 5 * kSecond + kSecond / 2);
  EXPECT_EQ(absences[0].to, 10 * kSecond);
  EXPECT_EQ(absences[0].cause, "killed");

  const auto summary = run.summary();
  EXPECT_EQ(summary.agents, 1U);
  EXPECT_EQ(summary.balance, Balance::explained) << summary.balance_lines.front();
  EXPECT_THAT(summary.balance_lines.front(), testing::HasSubstr("in flight when it died 2"));
  EXPECT_EQ(summary.verdict, Verdict::suspect);
  EXPECT_THAT(summary.reasons,
              testing::Contains("Agent pc-1 was away from 5.5 s to 10.0 s: killed."));
  EXPECT_EQ(run.points()[7].agents_reporting, 1U);
}

TEST(Aggregate, MissesTheLastRecordsOfAProcessThatDied) {
  auto info = test::run_info(1, {test::phase("hold", 20 * kSecond)});
  info.agents[0].incarnation = 3;
  info.agents[0].last_seq = 0;
  info.agents[0].dead = {{1, 7, "killed"}, {2, {}, "exit 134"}};
  Aggregate run(info);
  FakeAgent before("pc-1", 1);
  for (int s = 0; s < 5; ++s)
    run.add(before.next({.start = s * kSecond, .requests = test::ok_requests(3)}));
  const auto gaps = run.gaps();
  ASSERT_EQ(gaps.size(), 2U);
  EXPECT_EQ(gaps[1].cause,
            "its process died (killed); its last record was 7, the last that came 5");
  EXPECT_EQ(gaps[1].incarnation, 1U);
  EXPECT_EQ(gaps[0].cause,
            "its process died (exit 134) and nobody has said how many records it had");
}

// A process that is started again and again for weeks must not fill the memory.
TEST(Aggregate, FoldsTheProcessesOfAnAgentThatRestartsWithoutEnd) {
  auto info = test::run_info(2, {test::phase("hold", 5'000 * kSecond)});
  Aggregate run(info);
  TargetSample sample = test::target_sample(5'001 * kSecond.count());
  std::uint64_t sent = 0;
  for (std::uint64_t i = 1; i <= 5'000; ++i) {
    FakeAgent process("pc-1", i);
    run.add(process.next({.start = static_cast<std::int64_t>(i) * kSecond,
                          .requests = test::ok_requests(2),
                          .sent = 3}));
    sent += 3;
    sample.agents.push_back({"pc-1", i, 3, 2, 0});
  }
  run.add(sample);
  EXPECT_LE(run.agents().size(), kMaxAccounts + 1);
  EXPECT_EQ(run.broken_law_count(), 0U);
  std::uint64_t counted = 0, in_flight = 0;
  for (const auto& a : run.agents()) {
    counted += a.counters.sent;
    in_flight += a.counters.in_flight_end;
  }
  EXPECT_EQ(counted, sent);
  EXPECT_EQ(in_flight, 5'000U);
  std::vector<std::string> lines;
  EXPECT_NE(run.balance(lines), Balance::unbalanced) << lines.front();
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
