#include "controller/report.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "common/reference_log.h"
#include "controller/report_chart.h"
#include "tests/unit/controller/markup.h"
#include "tests/unit/controller/run_data.h"

namespace spate::controller {
namespace {

using test::FakeAgent;
using test::kSecond;
using testing::HasSubstr;
using testing::Not;

constexpr std::size_t kMaxPageBytes = 3'000'000;

std::string html_of(const Aggregate& run) { return render_report(run, "html").value(); }

std::vector<std::vector<std::string>> csv_rows(const std::string& text) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    auto& row = rows.emplace_back();
    std::istringstream cells(line);
    for (std::string cell; std::getline(cells, cell, ',');) row.push_back(cell);
    if (line.ends_with(',')) row.emplace_back();
  }
  return rows;
}

std::uint64_t column_sum(const std::vector<std::vector<std::string>>& rows,
                         const std::string& column) {
  const auto& head = rows.at(0);
  const auto at =
      static_cast<std::size_t>(std::find(head.begin(), head.end(), column) - head.begin());
  std::uint64_t sum = 0;
  for (std::size_t i = 1; i < rows.size(); ++i) sum += std::stoull(rows[i].at(at));
  return sum;
}

TEST(Report, RefusesAnUnknownFormatWithTheList) {
  const auto r = render_report(test::good_run(), "pdf");
  ASSERT_TRUE(r.has_error());
  EXPECT_THAT(r.error().message, HasSubstr("html, csv, json, reference or sets"));
}

TEST(HtmlReport, IsWellFormedAndSelfContained) {
  const auto page = html_of(test::good_run());
  EXPECT_EQ(test::markup_problem(page), "");
  EXPECT_THAT(page, HasSubstr("VALID"));
  EXPECT_THAT(page, HasSubstr("BALANCED"));
  for (const auto* outside : {"http://", "https://", "src=", "@import", "url(", "<link"})
    EXPECT_THAT(page, Not(HasSubstr(outside))) << "nothing may be loaded";
}

TEST(HtmlReport, EscapesEverythingThatPeopleAndTargetsWrote) {
  const std::string evil = "</pre></script><script>alert(1)</script>\"' onload='x' &\xff\x01";
  auto info = test::run_info(1, {test::phase(evil, 2 * kSecond), test::phase(evil, 2 * kSecond)});
  info.plan.name = info.plan.description = info.plan.target.url = info.id = evil;
  info.plan_text = info.end_reason = evil;
  info.overrides = {evil};
  info.agents[0].name = evil;
  info.agents[0].lost_reason = evil;
  info.plan.thresholds.emplace_back();
  info.plan.thresholds[0].text = evil;
  Aggregate run(info);
  FakeAgent a(evil, 100);
  for (int s = 0; s < 4; ++s) {
    auto r = a.next(
        {.start = s * kSecond, .phase = s < 2 ? 0U : 1U, .requests = {{Outcome::reset, 1'000}}});
    r.errors.add(Outcome::reset, 1, evil);
    run.add(r);
  }
  auto sample = test::target_sample(5 * kSecond.count(), evil);
  sample.allocator = evil;
  sample.agents = {{evil, 100, 4, 4, 0}};
  run.add(sample);
  run.add(RunEvent{1, RunEvent::Severity::error, evil});
  const auto page = html_of(run);
  EXPECT_EQ(test::markup_problem(page), "");
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, Not(HasSubstr("onload='x'")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(1)"));
}

TEST(HtmlReport, OfAThirtyDayRunStaysSmall) {
  // Two intervals of a minute stand for what a month leaves: as many points as there may be.
  std::vector<Phase> phases;
  for (int i = 0; i < 30; ++i)
    phases.push_back(test::phase("day " + std::to_string(i + 1), std::chrono::hours(24)));
  auto info = test::run_info(13, phases);
  info.plan.interval = std::chrono::seconds(60);
  Aggregate run(info);
  Random random(3);
  std::vector<FakeAgent> agents;
  for (const auto& a : info.agents) agents.emplace_back(a.name, a.incarnation);
  for (int m = 0; m < 30 * 24 * 60; m += 12) {
    for (auto& agent : agents) {
      FakeAgent::Interval interval;
      interval.start = std::chrono::minutes(m);
      interval.length = std::chrono::minutes(12);
      interval.phase = static_cast<std::uint32_t>(m / 1440);
      interval.epoch = interval.phase + 1;
      interval.requests = {{Outcome::ok, static_cast<std::int64_t>(random() % 1'000'000'000)}};
      run.add(agent.next(interval));
    }
    run.add(test::target_sample(Duration(std::chrono::minutes(m)).count()));
    run.add(RunEvent{Duration(std::chrono::minutes(m)).count(), RunEvent::Severity::warning,
                     "connections dropped agent=pc-1"});
  }
  EXPECT_GT(run.points().size(), 1'000U);
  const auto page = html_of(run);
  EXPECT_LT(page.size(), kMaxPageBytes);
  EXPECT_EQ(test::markup_problem(page), "");
  EXPECT_THAT(page, HasSubstr("day 30"));
}

TEST(HtmlReport, HatchesAGapAndInterruptsTheLine) {
  auto info = test::run_info(1, {test::phase("hold", 6 * kSecond)});
  Aggregate run(info);
  FakeAgent a("pc-1", 100);
  for (const int s : {0, 1, 4, 5}) {
    if (s == 4) a.skip(2);
    run.add(a.next({.start = s * kSecond, .requests = test::ok_requests(5)}));
  }
  const auto page = html_of(run);
  EXPECT_THAT(page, HasSubstr("<div class=\"gap\" style=\"left:33.33%;width:33.33%\">"));
  EXPECT_THAT(page, HasSubstr("M83.3 "));
  EXPECT_THAT(page, HasSubstr("M750.0 ")) << "the line starts anew after the gap";
}

TEST(HtmlReport, DrawsASweepOnlyForThreeDifferentNumbersOfConnections) {
  auto info = test::run_info(
      1, {test::phase("a", kSecond), test::phase("b", kSecond), test::phase("c", kSecond)});
  for (const std::uint64_t last : {20, 30}) {
    Aggregate run(info);
    FakeAgent a("pc-1", 100);
    std::uint32_t phase = 0;
    for (const std::uint64_t n : {std::uint64_t{10}, std::uint64_t{20}, last}) {
      run.add(a.next({.start = phase * kSecond,
                      .phase = phase,
                      .requests = test::ok_requests(5),
                      .requested = n,
                      .established = n}));
      ++phase;
    }
    EXPECT_EQ(html_of(run).find("Rate by connections") != std::string::npos, last == 30);
  }
}

TEST(HtmlReport, OfARunWithoutRecordsSaysWhy) {
  auto info = test::run_info(1, {test::phase("hold", kSecond)});
  info.end = RunEnd::failed;
  info.end_reason = "the target did not answer";
  info.started_wall_ms = 0;
  const auto page = html_of(Aggregate(info));
  EXPECT_EQ(test::markup_problem(page), "");
  EXPECT_THAT(page, HasSubstr("The run failed: the target did not answer."));
}

TEST(CsvReport, AddsUpToTheTotals) {
  auto info = test::run_info(1, {test::phase("hold", 2 * kSecond)});
  Aggregate run(info);
  FakeAgent a("pc-1", 100);
  run.add(a.next({.requests = test::ok_requests(5), .sent = 7}));
  run.add(a.next({.start = kSecond, .requests = {{Outcome::reset, 5'000}}, .sent = 3}));
  run.add(
      a.next({.start = 2 * kSecond, .drain = true, .requests = test::ok_requests(4), .sent = 0}));
  run.add(test::target_sample(kSecond.count()));
  const auto rows = csv_rows(render_report(run, "csv").value());
  ASSERT_EQ(rows.size(), 3U);
  for (const auto& row : rows) EXPECT_EQ(row.size(), rows[0].size());
  const auto s = run.summary();
  EXPECT_EQ(column_sum(rows, "sent"), s.requests.sent);
  EXPECT_EQ(column_sum(rows, "scheduled"), s.requests.scheduled);
  EXPECT_EQ(column_sum(rows, "ok"), s.requests.ok);
  EXPECT_EQ(column_sum(rows, "reset"), s.requests.failed);
  EXPECT_EQ(column_sum(rows, "bytes_sent"), s.bytes.sent);
  EXPECT_EQ(rows[1][0], "2026-11-30T10:26:19.000Z");
  EXPECT_EQ(rows[1][3], "\"hold\"");
  EXPECT_EQ(rows[1].end()[-4], std::to_string(200 << 20));
  EXPECT_EQ(rows[2].end()[-4], "") << "not looked at is not zero";
}

TEST(JsonReport, HasTheSummaryAndTheSeries) {
  const auto run = test::good_run();
  const auto j = nlohmann::json::parse(render_report(run, "json").value());
  EXPECT_EQ(j.at("report_version"), 1);
  EXPECT_EQ(j.at("summary"), nlohmann::json::parse(to_json(run.summary())));
  EXPECT_EQ(j.at("series").size(), 10U);
  EXPECT_EQ(j.at("agents").size(), 2U);
  EXPECT_EQ(j.at("target").back().at("completed"), 100);
  std::uint64_t ok = 0;
  for (const auto& p : j.at("series")) ok += p.at("outcomes").at("ok").get<std::uint64_t>();
  EXPECT_EQ(ok, 100U);
}

// Two agents and two sets that change places after 10 s, with a guard band of 2 s.
Aggregate rotating_run() {
  RunInfo info = test::run_info(2, {test::phase("soak", 20 * test::kSecond)});
  Rotation rotation;
  rotation.every = 10 * test::kSecond;
  rotation.across = Rotation::Across::agents;
  rotation.guard = 2 * test::kSecond;
  rotation.sets = {{"plain", {}}, {"gzip", {}}};
  rotation.sets[1].patch.compress = true;
  info.plan.rotation = rotation;
  for (auto& a : info.agents) a.last_seq = 20;
  Aggregate run(info);
  std::vector<test::FakeAgent> agents;
  for (const auto& a : info.agents) agents.emplace_back(a.name, a.incarnation);
  std::uint64_t sent = 0;
  std::map<std::string, std::uint64_t> by_agent;
  run.add(test::target_sample(0));
  for (int s = 0; s < 20; ++s) {
    for (std::size_t i = 0; i < agents.size(); ++i) {
      test::FakeAgent::Interval interval;
      interval.start = s * test::kSecond;
      interval.epoch = s < 10 ? 1 : 2;
      // The set "gzip" makes 3 a second, "plain" 5.
      const bool gzip = (i == 1) == (s < 10);
      interval.requests = test::ok_requests(gzip ? 3 : 5);
      interval.requested = interval.established = 5;
      Record record = agents[i].next(interval);
      record.guard = s == 10 || s == 11;
      sent += record.counters.sent;
      by_agent[record.key.agent] += record.counters.sent;
      run.add(record);
    }
  }
  auto sample = test::target_sample(20 * test::kSecond.count());
  sample.received = sample.completed = sent;
  for (const auto& a : info.agents)
    sample.agents.push_back({a.name, a.incarnation, by_agent[a.name], by_agent[a.name], 0});
  run.add(sample);
  return run;
}

TEST(ParameterSets, AddUpToTheAgentsAndTheTarget) {
  const Summary s = rotating_run().summary();
  ASSERT_EQ(s.sets.size(), 2u);
  EXPECT_EQ(s.sets[0].name, "plain");
  EXPECT_FALSE(s.sets[0].compressed);
  EXPECT_TRUE(s.sets[1].compressed);
  EXPECT_EQ(s.sets[0].requests, 100u);
  EXPECT_EQ(s.sets[1].requests, 60u);
  EXPECT_EQ(s.sets[0].connections, 5u) << "half of the plan's 10";
  ASSERT_EQ(s.set_agents.size(), 2u);
  EXPECT_EQ(s.set_agents[0].requests, 80u);
  EXPECT_EQ(s.server.requests, 160u);
  EXPECT_DOUBLE_EQ(s.sets[0].rate_per_s, 5) << "18 s of 20 are measured";
  EXPECT_DOUBLE_EQ(s.sets[1].rate_per_s, 3);
  EXPECT_DOUBLE_EQ(s.sets[0].bytes_per_request, 100);
  EXPECT_DOUBLE_EQ(s.sets[0].bytes_per_response, 50);
  EXPECT_EQ(s.sets_total,
            "the sets' requests add up to 160, the agents' to the same, and the target received "
            "exactly these");
  EXPECT_THAT(to_text(s), HasSubstr("gzip"));
  EXPECT_THAT(to_text(s), HasSubstr("server"));
}

TEST(ParameterSets, SayWhatIsUnaccountedFor) {
  Aggregate run = rotating_run();
  auto sample = test::target_sample(21 * test::kSecond.count());
  sample.received = sample.completed = 163;
  sample.agents = {{"pc-1", 100, 80, 80, 0}, {"pc-2", 101, 83, 83, 0}};
  run.add(sample);
  EXPECT_THAT(run.summary().sets_total, HasSubstr("the target received 163, 3 more: "));
}

TEST(ParameterSets, AreNoTableWhereNothingChanges) {
  EXPECT_TRUE(test::good_run().summary().sets.empty());
  EXPECT_EQ(render_report(test::good_run(), "sets").value().find("set,"), std::string::npos);
}

TEST(ParameterSets, HaveARowForWhatAChangeMadeOfThem) {
  RunInfo info = test::run_info(1, {test::phase("soak", 20 * test::kSecond)});
  Change change;
  change.epoch = 2;
  change.at = 10 * test::kSecond;
  change.parts.resize(1);
  change.parts[0].patch.compress = true;
  change.what = "call.compress=true";
  change.who = "alice";
  change.reason = "a <try>";
  change.wall_ms = 1'796'034'389'000;
  info.changes = {change};
  Aggregate run(info);
  test::FakeAgent agent("pc-1", 100);
  for (int s = 0; s < 20; ++s) {
    test::FakeAgent::Interval interval;
    interval.start = s * test::kSecond;
    interval.epoch = s < 10 ? 1 : 2;
    interval.requests = test::ok_requests(1);
    run.add(agent.next(interval));
  }
  const Summary s = run.summary();
  ASSERT_EQ(s.sets.size(), 2u);
  EXPECT_EQ(s.sets[0].name, "epoch 1");
  EXPECT_EQ(s.sets[1].name, "epoch 2");
  EXPECT_TRUE(s.sets[1].compressed);
  const auto page = render_report(run, "html").value();
  EXPECT_THAT(page, HasSubstr("epoch 2: call.compress=true, by alice: a &lt;try&gt;"));
  EXPECT_THAT(page, HasSubstr("<td>1 to 2</td>"));
  const auto json = nlohmann::json::parse(render_report(run, "json").value());
  EXPECT_EQ(json["changes"][0]["who"], "alice");
  EXPECT_EQ(json["epochs"][1]["from_s"], 10.0);
}

TEST(ParameterSets, AreInEveryReport) {
  const Aggregate run = rotating_run();
  const auto page = render_report(run, "html").value();
  EXPECT_THAT(page, HasSubstr("<h2>Parameter sets</h2>"));
  EXPECT_THAT(page, HasSubstr("class=\"guard\""));
  EXPECT_THAT(page, HasSubstr("left:0.00%;width:100.00%\" title=\"soak\"")) << "to its very end";
  EXPECT_THAT(page, HasSubstr("title=\"epoch 2: rotation\""));
  EXPECT_THAT(page, HasSubstr("The sets&#39; requests add up to 160"));
  const auto csv = render_report(run, "sets").value();
  EXPECT_EQ(csv.substr(0, 10), "kind,name,");
  EXPECT_THAT(csv, HasSubstr("\nset,\"gzip\",5,no,yes,60,0,100.0,50.0,3.000,"));
  EXPECT_THAT(csv, HasSubstr("\nserver,\"server\","));
  const auto json = nlohmann::json::parse(render_report(run, "json").value());
  EXPECT_EQ(json["summary"]["parameter_sets"]["sets"].size(), 2u);
  EXPECT_EQ(json["guard_bands"].size(), 1u);
  EXPECT_EQ(json["epochs"][1]["reason"], "rotation");
  EXPECT_THAT(render_report(run, "csv").value(), HasSubstr(",\"soak\",false,true,2,"));
}

TEST(ReferenceReport, ReadsBackAndEndsWithTheExactTotal) {
  const auto run = test::good_run();
  const auto log = parse_reference_log(render_report(run, "reference").value());
  ASSERT_TRUE(log.has_value()) << log.error().message;
  EXPECT_EQ(log->started_wall_ms, run.info().started_wall_ms);
  ASSERT_EQ(log->rows.size(), 10U);
  EXPECT_EQ(log->rows.back().requests, run.summary().target.completed);
  EXPECT_EQ(log->rows.back().requests, 100U);
  EXPECT_DOUBLE_EQ(log->rows.back().memory_mb, 200);
  EXPECT_EQ(log->rows[3].seconds, 4);
}

TEST(ReferenceReport, OfAForeignTargetCountsTheAnswers) {
  auto info = test::run_info(1, {test::phase("hold", 2 * kSecond)});
  Aggregate run(info);
  FakeAgent a("pc-1", 100);
  for (int s = 0; s < 2; ++s)
    run.add(a.next({.start = s * kSecond, .requests = test::ok_requests(5)}));
  const auto log = parse_reference_log(render_report(run, "reference").value());
  ASSERT_TRUE(log.has_value()) << log.error().message;
  EXPECT_EQ(log->rows.back().requests, 10U);
}

TEST(Chart, HasRoundTicksThatCoverTheData) {
  for (const double max : {0.0, 0.4, 1.0, 9.99, 1'234.0, 3.9e9}) {
    const auto scale = report::Scale::linear(max, report::Unit::count);
    EXPECT_GT(scale.high(), max);
    EXPECT_LE(scale.ticks().size(), 6U) << max;
    EXPECT_GE(scale.ticks().size(), 3U) << max;
  }
  for (const double max : {2.0, 900.0, 5e6, 3e11}) {
    const auto scale = report::Scale::logarithmic(1.3, max, report::Unit::ns, 6);
    EXPECT_LE(scale.low(), 1.3);
    EXPECT_GE(scale.high(), max);
    EXPECT_LE(scale.ticks().size(), 6U) << max;
    EXPECT_GE(scale.ticks().size(), 1U) << max;
  }
  for (const double seconds : {0.3, 10.0, 61.0, 3'600.0, 2'592'000.0}) {
    const auto scale = report::Scale::time(0, seconds);
    EXPECT_LE(scale.ticks().size(), 8U) << seconds;
    EXPECT_GE(scale.ticks().size(), 3U) << seconds;
  }
}

TEST(Chart, WritesValuesShortly) {
  using report::short_value;
  using report::Unit;
  EXPECT_EQ(short_value(1'234, Unit::count), "1.23k");
  EXPECT_EQ(short_value(999.9, Unit::count), "1k");
  EXPECT_EQ(short_value(1.5e6, Unit::ns), "1.5 ms");
  EXPECT_EQ(short_value(90e9, Unit::ns), "1.5 min");
  EXPECT_EQ(short_value(210.0 * 1024 * 1024, Unit::bytes), "210 MiB");
  EXPECT_EQ(short_value(0, Unit::bytes), "0 B");
  EXPECT_EQ(report::elapsed_label(90), "1:30");
  EXPECT_EQ(report::elapsed_label(7'200), "2 h");
  EXPECT_EQ(report::elapsed_label(86'400 * 3 + 4 * 3'600), "3 d 4 h");
}

}  // namespace
}  // namespace spate::controller
