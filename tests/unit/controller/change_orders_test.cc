#include "controller/change_orders.h"

#include <gmock/gmock.h>

namespace spate::controller {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::int64_t kStart = 1'796'083'200'000;  // 2026-12-01T00:00:00Z

RunInfo run_with(std::size_t agents) {
  RunInfo run;
  run.started_wall_ms = kStart;
  for (std::size_t i = 1; i <= agents; ++i) {
    run.agents.emplace_back();
    run.agents.back().name = "pc-" + std::to_string(i);
  }
  return run;
}

ChangeRequest set(std::vector<std::string> assignments) {
  ChangeRequest request;
  request.run = "run";
  request.assignments = std::move(assignments);
  return request;
}

ChangeOrderOrProblems make(const ChangeRequest& request, std::size_t agents = 8) {
  return make_change(request, run_with(agents), hours(1), kStart + 3'600'000);
}

TEST(ChangeOrdersTest, NamesPositionsAndWhatWasOrdered) {
  ChangeRequest request = set({"load.connections=4000", "call.compress=true"});
  request.agents = {"pc-3", "pc-1", "pc-3"};
  request.reason = "more";
  const ChangeOrderOrProblems made = make(request);
  ASSERT_THAT(made.problems, IsEmpty());
  const Change& change = made.order.change;
  EXPECT_THAT(change.parts.at(0).agents, ElementsAre(0, 2));
  EXPECT_EQ(change.parts[0].patch.connections, 4000u);
  EXPECT_EQ(change.parts[0].patch.compress, true);
  EXPECT_EQ(change.what, "call.compress=true load.connections=4000 on pc-1, pc-3");
  EXPECT_EQ(change.who, "operator");
  EXPECT_EQ(change.wall_ms, kStart + 3'600'000);
  EXPECT_FALSE(made.order.at);
}

TEST(ChangeOrdersTest, EveryMistakeAtOnceWithTheNearestName) {
  ChangeRequest request = set({"load.conections=4000", "interval=2s"});
  request.agents = {"pc-11"};
  request.at = "tomorrow";
  const auto problems = make(request).problems;
  ASSERT_EQ(problems.size(), 4u);
  EXPECT_THAT(problems[0], HasSubstr("load.connections"));
  EXPECT_THAT(problems[1], HasSubstr("interval"));
  EXPECT_THAT(problems[2],
              HasSubstr("--agent pc-11: this run has no such agent, did you mean pc-1"));
  EXPECT_THAT(problems[3], HasSubstr("--at tomorrow: a time like 2026-12-01T06:00:00Z"));
}

TEST(ChangeOrdersTest, AnInstantFromNowOrByTheWallClock) {
  ChangeRequest request = set({"load.connections=8"});
  request.at = "+24h";
  EXPECT_EQ(make(request).order.at, Duration(hours(25)));
  request.at = "2026-12-01T06:00:00Z";
  EXPECT_EQ(make(request).order.at, Duration(hours(6)));
  request.at = "2026-12-01T06:00:00.250+02:00";
  EXPECT_EQ(make(request).order.at, Duration(hours(4)) + milliseconds(250));
  request.at = "2026-11-30T00:00:00Z";
  EXPECT_EQ(make(request).order.at, Duration(-hours(24)));  // refused by the book
}

TEST(ChangeOrdersTest, WhatIsNoTimeIsRefused) {
  for (const char* text : {"", "12:00", "2026-02-31T00:00:00Z", "2026-12-01T25:00:00Z",
                           "2026-12-01T00:00:00", "2026-12-01T00:00:00+1", "2026-12-01T00:00:00.Z"})
    EXPECT_FALSE(parse_rfc3339(text)) << text;
}

TEST(ChangeOrdersTest, ACanaryIsTheFirstAgentsRoundedUp) {
  ChangeRequest request = set({"call.compress=true"});
  request.canary_percent = 10;
  EXPECT_THAT(make(request, 8).order.change.parts.at(0).agents, ElementsAre(0));
  EXPECT_THAT(make(request, 11).order.change.parts.at(0).agents, ElementsAre(0, 1));
  EXPECT_TRUE(make(request, 8).order.change.canary);
  EXPECT_EQ(make(request, 8).order.change.what, "call.compress=true on trial on pc-1");
  EXPECT_THAT(make(request, 1).problems, ElementsAre(HasSubstr("nobody would be left")));
  request.agents = {"pc-1"};
  EXPECT_THAT(make(request).problems, ElementsAre(HasSubstr("leave out --agent")));
  request.canary_percent = 100;
  EXPECT_THAT(make(request).problems, ElementsAre(HasSubstr("between 0% and 100%")));
}

TEST(ChangeOrdersTest, AGuardBandAsLongAsSaidOrAsNeeded) {
  ChangeRequest request = set({"load.connections=8"});
  EXPECT_EQ(make(request).order.change.guard, kChangeGuard);
  request.guard = "2s";
  EXPECT_EQ(make(request).order.change.guard, seconds(2));
  request.guard = "0s";
  EXPECT_EQ(make(request).order.change.guard, Duration{});
  for (const char* wrong : {"25h", "soon", "-1s"}) {
    request.guard = wrong;
    EXPECT_THAT(make(request).problems, ElementsAre(HasSubstr(std::string("--guard ") + wrong)));
  }
  request = set({"load.pause=1s"});
  EXPECT_EQ(make(request).order.change.guard, Duration{});
  request.guard = "5s";
  EXPECT_EQ(make(request).order.change.guard, seconds(5));
}

TEST(ChangeOrdersTest, ARotationsGuardIsAlsoThatOfAnOrder) {
  RunInfo run = run_with(2);
  run.plan.rotation.emplace().guard = seconds(4);
  const auto made = make_change(set({"load.connections=8"}), run, hours(1), kStart + 3'600'000);
  EXPECT_EQ(made.order.change.guard, seconds(4));
}

TEST(ChangeOrdersTest, PauseAndResumeAreChangesToo) {
  ChangeRequest request;
  request.verb = ChangeRequest::Verb::pause;
  request.who = "alice";
  EXPECT_EQ(make(request).order.change.parts.at(0).patch.paused, true);
  EXPECT_EQ(make(request).order.change.what, "pause");
  EXPECT_EQ(make(request).order.change.who, "alice");
  request.verb = ChangeRequest::Verb::resume;
  EXPECT_EQ(make(request).order.change.parts.at(0).patch.paused, false);
}

}  // namespace
}  // namespace spate::controller
