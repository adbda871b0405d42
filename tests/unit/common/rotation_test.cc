#include <gtest/gtest.h>

#include <ctime>
#include <map>
#include <set>

#include "common/plan_json.h"
#include "common/random.h"
#include "common/rotation.h"
#include "common/shares.h"
#include "common/time_zone.h"
#include "common/timeline.h"

namespace spate {
namespace {

using namespace std::chrono_literals;

std::string listed(const std::vector<PlanProblem>& problems) {
  std::string out;
  for (const PlanProblem& p : problems) out += p.to_string("plan") + "\n";
  return out;
}

Plan good_plan(const std::string& text) {
  const PlanOrProblems result = parse_plan(text);
  EXPECT_TRUE(result.ok()) << listed(result.problems);
  return result.plan;
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

Plan plan_with(const std::string& rotate, const std::string& more = "") {
  return good_plan(R"({"name": "n", "target": {"url": "grpc://10.0.0.1:7000"},
    "call": {"method": "a.B/C", "timeout": "5s"}, "load": {"connections": 12}, "agents": 4,
    "phases": [{"name": "all", "for": "10m"}])" +
                   more + R"(, "rotate": )" + rotate + "}");
}

constexpr const char* kThreeSets =
    R"([{"name": "plain"}, {"name": "gzip", "call": {"compress": true}},
        {"name": "tls", "target": {"url": "grpcs://10.0.0.1:7443"}, "load": {"connections": 6}}])";

std::string three_sets(const std::string& more) {
  return R"({"every": "1m", "sets": )" + std::string(kThreeSets) + more + "}";
}

Timeline timeline_of(const Plan& plan, std::int64_t start_wall_ms = 0) {
  const auto timeline = planned_timeline(plan, start_wall_ms);
  EXPECT_TRUE(timeline.has_value()) << timeline.error().message;
  return *timeline;
}

// What holds of every timeline.
void check_timeline(const Timeline& t, const Plan& plan) {
  ASSERT_FALSE(t.segments.empty());
  Duration end{};
  std::uint32_t last_epoch = 0;
  std::set<std::uint32_t> used;
  for (const Segment& s : t.segments) {
    ASSERT_EQ(s.offset, end);
    ASSERT_GT(s.length, Duration::zero());
    ASSERT_GE(s.epoch, last_epoch);
    ASSERT_LT(s.phase, plan.phases.size());
    ASSERT_EQ(t.epoch(s.epoch).shares.size(), plan.agents);
    last_epoch = s.epoch;
    used.insert(s.epoch);
    end += s.length;
  }
  ASSERT_EQ(end, plan.length());
  std::uint32_t last_number = 0;
  for (const Epoch& e : t.epochs) {
    ASSERT_GT(e.number, last_number);
    ASSERT_TRUE(used.contains(e.number));
    ASSERT_LE(e.connections(), plan.max_connections());
    last_number = e.number;
  }
}

std::int64_t utc_ms(int year, int month, int day, int hour = 0, int minute = 0) {
  std::tm t{};
  t.tm_year = year - 1900;
  t.tm_mon = month - 1;
  t.tm_mday = day;
  t.tm_hour = hour;
  t.tm_min = minute;
  return static_cast<std::int64_t>(timegm(&t)) * 1000;
}

Rotation by_clock(const std::string& at, const std::string& zone, Duration every) {
  Rotation r;
  r.every = every;
  r.sets.resize(3);
  r.at = at;
  r.zone = zone;
  r.zone_rules = load_zone(zone)->rules();
  return r;
}

TEST(Rotation, ComesBackFromItsJson) {
  for (const std::string& rotate :
       {three_sets(""), three_sets(R"(, "across": "agents", "guard": "5s")"),
        three_sets(R"(, "at": "18:30")"), three_sets(R"(, "at": "00:00", "zone": "Europe/Vienna")"),
        std::string(R"({"every": "2m", "sets": [{}, {"paused": true}, {"agents": {"threads": 3},
          "call": {"message": {"a": 1}, "metadata": {"k": "v"}, "timeout": "1s", "method": "d.E/F"},
          "load": {"calls_per_loop": 5, "pause": "2s"}}]})")}) {
    const Plan plan = plan_with(rotate);
    EXPECT_EQ(good_plan(to_json(plan)), plan) << to_json(plan);
  }
  const Plan plan = plan_with(three_sets(""));
  EXPECT_EQ(plan.rotation->sets[1].name, "gzip");
  EXPECT_EQ(plan.rotation->across, Rotation::Across::run);
  EXPECT_EQ(plan_with(R"({"every": "1m", "sets": [{}, {}]})").rotation->sets[1].name, "set-2");
}

TEST(Rotation, SaysWhatIsWrongWithItAndWhere) {
  const struct {
    const char* rotate;
    const char* path;
    const char* says;
  } kCases[] = {
      {R"({"sets": [{}, {}]})", "/rotate/every", "missing"},
      {R"({"every": "1m"})", "/rotate/sets", "missing"},
      {R"({"every": "1m", "sets": [{}]})", "/rotate/sets", "a list of 2 to 1000"},
      {R"({"every": "1m", "sets": {}})", "/rotate/sets", "a list of 2 to 1000"},
      {R"({"every": "500ms", "sets": [{}, {}]})", "/rotate/every",
       "is shorter than the interval of 1s"},
      {R"({"every": "1m", "guard": "1m", "sets": [{}, {}]})", "/rotate/guard",
       "shorter than `every`"},
      {R"({"every": "1m", "across": "pcs", "sets": [{}, {}]})", "/rotate/across",
       "must be \"run\" or \"agents\", not \"pcs\""},
      {R"({"every": "1m", "sets": [{}, {"interval": "2s"}]})", "/rotate/sets/1/interval",
       "may not change from set to set; what may: target.url"},
      {R"({"every": "1m", "sets": [{}, {"agents": {"count": 3}}]})", "/rotate/sets/1/agents/count",
       "may not change from set to set"},
      {R"({"every": "1m", "sets": [{}, {"call": {"proto": "x"}}]})", "/rotate/sets/1/call/proto",
       "may not change from set to set"},
      {R"({"every": "1m", "sets": [{}, {"target": {"probe": "a:1"}}]})",
       "/rotate/sets/1/target/probe", "may not change from set to set"},
      {R"({"every": "1m", "sets": [{}, {"load": {"conections": 3}}]})",
       "/rotate/sets/1/load/conections", "did you mean \"load.connections\"?"},
      {R"({"every": "1m", "sets": [{}, {"load": {"connections": 0}}]})",
       "/rotate/sets/1/load/connections", "from 1 to 10000000"},
      {R"({"every": "1m", "sets": [{}, {"load": {"pause": "1s"}}]})", "/rotate/sets/1/load/pause",
       "a pause needs calls_per_loop"},
      {R"({"every": "1m", "sets": [{}, {"call": 4}]})", "/rotate/sets/1/call",
       "is no parameter itself"},
      {R"({"every": "1m", "sets": [{}, {"target": {"url": "http://x:1"}}]})",
       "/rotate/sets/1/target/url", ""},
      {R"({"every": "1m", "sets": [{"name": "a"}, {"name": "a"}]})", "/rotate/sets/1/name",
       "is the name of an earlier set"},
      {R"({"every": "1m", "sets": [{}, 4]})", "/rotate/sets/1", "must be an object"},
      {R"({"every": "1m", "zone": "UTC", "sets": [{}, {}]})", "/rotate/zone", "goes with `at`"},
      {R"({"every": "1m", "at": "24:00", "sets": [{}, {}]})", "/rotate/at", "is not a time of day"},
      {R"({"every": "1m", "at": "00:00", "zone": "Europe/Wien", "sets": [{}, {}]})", "/rotate/zone",
       "there is no time zone \"Europe/Wien\""},
      {R"({"every": "1m", "at": "00:00", "zone": "../x", "sets": [{}, {}]})", "/rotate/zone",
       "there is no time zone"},
      {R"({"every": "7m", "at": "00:00", "sets": [{}, {}]})", "/rotate/every",
       "must divide a day (6h, 15m …) or be whole days"},
      {R"({"every": "36h", "at": "00:00", "sets": [{}, {}]})", "/rotate/every",
       "must divide a day"},
      {R"({"every": "1m", "often": true, "sets": [{}, {}]})", "/rotate/often", "unknown key"},
      {R"(["a"])", "/rotate", "must be an object"},
  };
  for (const auto& c : kCases) {
    const std::string text = R"({"name": "n",
"target": {"url": "grpc://10.0.0.1:7000"}, "call": {"method": "a.B/C"},
"rotate": )" + std::string(c.rotate) +
                             "}";
    const PlanOrProblems result = parse_plan(text);
    ASSERT_EQ(result.problems.size(), 1u) << text << "\n" << listed(result.problems);
    const PlanProblem& p = result.problems[0];
    EXPECT_EQ(p.path, c.path) << p.text;
    EXPECT_EQ(p.line, 3) << p.path;
    EXPECT_TRUE(contains(p.text, c.says)) << p.text << "\nexpected: " << c.says;
  }
}

TEST(Rotation, OfTooManyChangesIsRefused) {
  const auto result = parse_plan(R"({"name": "n", "target": "local", "phases": [{"for": "400d"}],
    "rotate": {"every": "1m", "sets": [{}, {}]}})");
  ASSERT_EQ(result.problems.size(), 1u) << listed(result.problems);
  EXPECT_EQ(result.problems[0].path, "/rotate");
  EXPECT_TRUE(contains(result.problems[0].text, "more than 10000 times"))
      << result.problems[0].text;
  const std::string large(200'000, 'x');
  const auto heavy = parse_plan(R"({"name": "n", "target": "local", "agents": 1000,
    "phases": [{"for": "1h"}], "rotate": {"every": "1m", "sets":
    [{"call": {"message": {"x": ")" +
                                large + R"("}}}, {}]}})");
  ASSERT_EQ(heavy.problems.size(), 1u);
  EXPECT_TRUE(contains(heavy.problems[0].text, "larger than 128 MiB")) << heavy.problems[0].text;
}

TEST(Rotation, NamesBothSidesOfTheLocalTarget) {
  const std::string sets = R"(, "rotate": {"every": "10s", "sets": [
    {"target": {"url": "local"}}, {"target": {"url": "grpcs://local"}}]}})";
  const Plan plan = good_plan(R"({"name": "n", "target": "local")" + sets);
  EXPECT_EQ(plan.rotation->sets[1].patch.target_url, kLocalTlsUrl);
  EXPECT_EQ(good_plan(to_json(plan)), plan);
  EXPECT_TRUE(good_plan(R"({"name": "n", "target": {"url": "grpcs://local"}})").target.is_local());
  // Of another target nobody knows these.
  const auto foreign = parse_plan(R"({"name": "n", "target": {"url": "grpc://h:1"},
    "call": {"method": "a.B/C"})" +
                                  sets);
  ASSERT_EQ(foreign.problems.size(), 2u) << listed(foreign.problems);
  EXPECT_EQ(foreign.problems[1].path, "/rotate/sets/1/target/url");
}

TEST(ControllerLoss, IsRead) {
  const auto with = [](const std::string& more) {
    return parse_plan(R"({"name": "n", "target": "local")" + more + "}");
  };
  EXPECT_EQ(with("").plan.on_controller_loss, OnControllerLoss::go_on);
  EXPECT_EQ(with("").plan.controller_loss_limit, Duration(10min));
  const Plan drain = with(R"(, "on_controller_loss": "drain")").plan;
  EXPECT_EQ(drain.on_controller_loss, OnControllerLoss::drain);
  EXPECT_EQ(good_plan(to_json(drain)), drain);
  const Plan limit = with(R"(, "controller_loss_limit": "3d",
    "agents": {"redistribute": "after_fence"})")
                         .plan;
  EXPECT_EQ(limit.controller_loss_limit, Duration(72h));
  EXPECT_EQ(limit.redistribute, Redistribute::after_fence);
  EXPECT_EQ(good_plan(to_json(limit)), limit);
  const auto path = [&](const std::string& more) {
    const auto result = with(more);
    return result.problems.size() == 1 ? result.problems[0].path : listed(result.problems);
  };
  EXPECT_EQ(path(R"(, "on_controller_loss": "wait")"), "/on_controller_loss");
  EXPECT_EQ(path(R"(, "controller_loss_limit": "1ms")"), "/controller_loss_limit");
  EXPECT_EQ(path(R"(, "on_controller_loss": "stop", "controller_loss_limit": "5m")"),
            "/controller_loss_limit");
  EXPECT_EQ(path(R"(, "agents": {"redistribute": true})"), "/agents/redistribute");
}

TEST(RotationTimeline, AcrossAgentsIsALatinSquare) {
  const Plan plan = plan_with(three_sets(R"(, "across": "agents")"));
  const Timeline t = timeline_of(plan);
  check_timeline(t, plan);
  ASSERT_EQ(t.epochs.size(), 10u);
  for (std::size_t k = 0; k < t.epochs.size(); ++k) {
    for (std::size_t i = 0; i < plan.agents; ++i) {
      const AgentShare& share = t.epochs[k].shares[i];
      EXPECT_EQ(share.set, (i + k) % 3);
      EXPECT_EQ(share.parameters.call.compress, share.set == 1);
      EXPECT_EQ(share.parameters.target_url,
                share.set == 2 ? "grpcs://10.0.0.1:7443" : "grpc://10.0.0.1:7000");
      EXPECT_EQ(share.parameters.load.connections, equal_part(share.set == 2 ? 6 : 12, 4, i));
      EXPECT_EQ(share.parameters.call.timeout, Duration(5s)) << "the plan's, in every set";
    }
  }
}

TEST(RotationTimeline, AcrossTheRunEverybodyHoldsTheSame) {
  const Plan plan = plan_with(three_sets(""));
  const Timeline t = timeline_of(plan);
  check_timeline(t, plan);
  ASSERT_EQ(t.epochs.size(), 10u);
  for (std::size_t k = 0; k < t.epochs.size(); ++k) {
    EXPECT_EQ(t.epochs[k].connections(), k % 3 == 2 ? 6u : 12u) << "sums are exact";
    for (const AgentShare& share : t.epochs[k].shares) EXPECT_EQ(share.set, k % 3);
  }
}

TEST(RotationTimeline, GuardsEachChangeOverButNotTheStart) {
  const Plan plan = plan_with(three_sets(R"(, "guard": "10s")"));
  const Timeline t = timeline_of(plan);
  check_timeline(t, plan);
  EXPECT_FALSE(t.segment_at(0s).guard);
  EXPECT_FALSE(t.segment_at(59'999ms).guard);
  EXPECT_TRUE(t.segment_at(60s).guard);
  EXPECT_TRUE(t.segment_at(69'999ms).guard);
  EXPECT_FALSE(t.segment_at(70s).guard);
  EXPECT_EQ(t.epoch_at(65s), t.epoch_at(75s)) << "a guard band is of the new epoch";
  Duration guarded{};
  for (const Segment& s : t.segments) guarded += s.guard ? s.length : Duration::zero();
  EXPECT_EQ(guarded, 90s);
}

TEST(RotationTimeline, GoesOnOverThePhases) {
  const Plan plan = good_plan(R"({"name": "n", "target": "local", "agents": 2, "phases": [
    {"name": "warm-up", "for": "90s", "measured": false, "load": {"connections": 2}},
    {"name": "flood", "for": "100s", "load": {"connections": 10}}],
    "rotate": {"every": "1m", "guard": "40s", "sets": [{}, {"load": {"connections": 4}}]}})");
  const Timeline t = timeline_of(plan);
  check_timeline(t, plan);
  const auto connections = [&](Duration at) { return t.epoch(t.epoch_at(at)).connections(); };
  EXPECT_EQ(connections(30s), 2u);
  EXPECT_EQ(connections(61s), 4u);
  EXPECT_EQ(connections(95s), 4u) << "a set wins over the phase";
  EXPECT_EQ(connections(125s), 10u);
  EXPECT_EQ(connections(185s), 4u);
  EXPECT_TRUE(t.segment_at(95s).guard) << "a guard band goes on into the next phase";
  EXPECT_EQ(t.segment_at(95s).phase, 1u);
  EXPECT_EQ(t.epoch_at(61s), t.epoch_at(95s)) << "nothing changes between";
}

TEST(RotationTimeline, ChangesWinOverWhatFollows) {
  const Plan plan = plan_with(three_sets(R"(, "across": "agents", "guard": "5s")"));
  const Timeline planned = timeline_of(plan);
  Change change;
  change.epoch = planned.last_epoch() + 1;
  change.at = 90s;
  change.parts.resize(1);
  change.parts[0].patch.compress = false;
  const Timeline t = changed_timeline(planned, std::vector{change});
  check_timeline(t, plan);
  for (const Epoch& e : t.epochs) {
    for (const AgentShare& share : e.shares) {
      EXPECT_EQ(share.parameters.call.compress, share.set == 1 && e.number < change.epoch);
    }
  }
  EXPECT_EQ(t.epoch(t.epoch_at(9min)).shares[0].set, 0u) << "the rotation goes on";
}

TEST(RotationTimeline, ByWallClockFollowsLocalMidnight) {
  // 2026-03-28 18:00 CET; the 29th has 23 hours.
  const Rotation spring = by_clock("00:00", "Europe/Vienna", 24h);
  const auto offsets = change_overs(spring, 80h, utc_ms(2026, 3, 28, 17)).value();
  EXPECT_EQ(offsets, (std::vector<Duration>{6h, 29h, 53h, 77h}));
  // 2026-10-24 12:00 CEST; the 25th has 25 hours.
  const auto autumn = change_overs(spring, 80h, utc_ms(2026, 10, 24, 10)).value();
  EXPECT_EQ(autumn, (std::vector<Duration>{12h, 37h, 61h}));
}

TEST(RotationTimeline, ByWallClockStartsAtTheNextSuchTime) {
  const Rotation daily = by_clock("18:30", "UTC", 24h);
  EXPECT_EQ(change_overs(daily, 48h, utc_ms(2026, 6, 1, 18, 30)).value(),
            (std::vector<Duration>{24h}))
      << "T itself is no change-over";
  EXPECT_EQ(change_overs(daily, 1h, utc_ms(2026, 6, 1, 18, 29) + 500).value(),
            (std::vector<Duration>{59'500ms}));
  const Rotation quarters = by_clock("00:10", "UTC", 15min);
  EXPECT_EQ(change_overs(quarters, 1h, utc_ms(2026, 6, 1, 23, 45)).value(),
            (std::vector<Duration>{10min, 25min, 40min, 55min}));
  const Rotation weekly = by_clock("00:00", "Europe/Vienna", 7 * 24h);
  const auto weeks = change_overs(weekly, 24h * 30, utc_ms(2026, 3, 15, 12)).value();
  ASSERT_EQ(weeks.size(), 5u);
  EXPECT_EQ(weeks[1] - weeks[0], 7 * 24h);
  EXPECT_EQ(weeks[2] - weeks[1], 7 * 24h - 1h) << "23 hours on the 29th of March";
}

TEST(RotationTimeline, ByWallClockTakesASkippedTimeWhenItIsSkipped) {
  // On 2026-03-29 Vienna has no 02:30; the clocks go on at 03:00.
  EXPECT_EQ(
      change_overs(by_clock("02:30", "Europe/Vienna", 24h), 30h, utc_ms(2026, 3, 28, 12)).value(),
      (std::vector<Duration>{13h}));
  const auto hours =
      change_overs(by_clock("00:00", "Europe/Vienna", 1h), 5h, utc_ms(2026, 3, 28, 22, 30)).value();
  EXPECT_EQ(hours, (std::vector<Duration>{30min, 90min, 150min, 210min, 270min}))
      << "02:00 and 03:00 are one instant";
}

TEST(RotationTimeline, IsWholeWhateverThePlan) {
  Random random(11);
  const std::vector<std::string> zones = {"UTC", "Europe/Vienna", "America/New_York",
                                          "Australia/Lord_Howe", "Asia/Kathmandu"};
  for (int round = 0; round < 300; ++round) {
    Plan plan;
    plan.agents = static_cast<std::uint32_t>(random.between(1, 12));
    for (std::int64_t i = random.between(1, 4); i > 0; --i)
      plan.phases.push_back({"p" + std::to_string(i),
                             Duration(1h) * random.between(1, 60),
                             true,
                             {static_cast<std::uint64_t>(random.between(1, 500)), 0, 0s}});
    Rotation r;
    r.sets.resize(static_cast<std::size_t>(random.between(2, 6)));
    for (auto& set : r.sets) {
      if (random.unit() < 0.5)
        set.patch.connections = static_cast<std::uint64_t>(random.between(1, 500));
    }
    r.across = random.unit() < 0.5 ? Rotation::Across::run : Rotation::Across::agents;
    const Duration every[] = {15min, 1h, 6h, 24h, 48h};
    r.every = every[random.between(0, 4)];
    r.guard = r.every * random.between(0, 9) / 10;
    if (random.unit() < 0.6) {
      const std::string zone = zones[static_cast<std::size_t>(random.between(0, 4))];
      const Rotation clock = by_clock(random.unit() < 0.5 ? "00:00" : "02:15", zone, r.every);
      r.at = clock.at;
      r.zone = clock.zone;
      r.zone_rules = clock.zone_rules;
    }
    plan.rotation = r;
    const std::int64_t start = random.between(utc_ms(2026, 1, 1), utc_ms(2030, 1, 1));
    const Timeline t = timeline_of(plan, start);
    check_timeline(t, plan);
    for (const Epoch& e : t.epochs) {
      for (std::size_t i = 0; i < e.shares.size(); ++i) {
        const std::uint32_t first = e.shares[0].set;
        EXPECT_EQ(e.shares[i].set,
                  r.across == Rotation::Across::run ? first : (first + i) % r.sets.size());
      }
    }
    std::vector<Change> changes;
    std::uint32_t next = t.last_epoch() + 1;
    Timeline current = t;
    for (std::int64_t i = random.between(0, 4); i > 0; --i) {
      Change c;
      c.epoch = next;
      c.at = Duration(1min) * random.between(0, plan.length() / 1min - 1);
      c.parts.resize(1);
      c.parts[0].patch.connections = static_cast<std::uint64_t>(
          random.between(1, static_cast<std::int64_t>(plan.max_connections())));
      changes.push_back(c);
      current = with_last_change(t, current, changes);
      check_timeline(current, plan);
      next = current.last_epoch() + 1;
    }
  }
}

}  // namespace
}  // namespace spate
