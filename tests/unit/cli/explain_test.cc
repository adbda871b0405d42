#include "cli/explain.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace spate::cli {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

Plan sweep() {
  Plan plan;
  plan.name = "sweep";
  plan.target.url = "grpc://10.0.0.100:7000";
  plan.call.method = "spate.target.v1.Calls/Call";
  plan.call.message_json = "{}";
  plan.agents = 3;
  plan.threads = 2;
  const Load small{.connections = 10, .calls_per_loop = 50, .pause = 1s};
  Load large = small;
  large.connections = 3'001;
  plan.phases = {{.name = "warm-up", .length = 10s, .measured = false, .load = small},
                 {.name = "first", .length = 30s, .measured = true, .load = small},
                 {.name = "second", .length = 1min, .measured = true, .load = large}};
  return plan;
}

TEST(Explain, ShowsEveryPhaseAndTheEpochItRunsIn) {
  const std::string text = explain_text(sweep(), 0).value();
  EXPECT_THAT(
      text,
      HasSubstr(
          "1  warm-up      0s     10s  no            1           10  50 calls, then 1s pause"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "2  first       10s     30s  yes           1           10  50 calls, then 1s pause"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "3  second      40s      1m  yes           2        3,001  50 calls, then 1s pause"));
}

TEST(Explain, SharesAddUpToTheTotal) {
  const std::string text = explain_text(sweep(), 0).value();
  EXPECT_THAT(text, HasSubstr("    1  1                      4  2                  4\n"
                              "    1  2 to 3                 3  1 or 2             6\n"
                              "    1  all                                         10\n"));
  EXPECT_THAT(text, HasSubstr("1,001"));
  const auto json = nlohmann::json::parse(explain_json(sweep(), 0).value());
  for (const auto& epoch : json["epochs"]) {
    std::uint64_t sum = 0;
    for (const auto& share : epoch["shares"]) sum += share["connections"].get<std::uint64_t>();
    EXPECT_EQ(sum, epoch["connections"].get<std::uint64_t>());
    EXPECT_EQ(epoch["shares"].size(), 3U);
  }
}

TEST(Explain, SaysWhatItAddsUpTo) {
  EXPECT_THAT(explain_text(sweep(), 0).value(),
              HasSubstr("together  1m40s, 1m30s of them measured; at most "
                        "3,001 connections, 1,001 on one agent; 2 epochs"));
}

Plan rotating() {
  Plan plan = sweep();
  plan.phases = {{.name = "soak", .length = 72h, .measured = true, .load = {.connections = 30}}};
  Rotation rotation;
  rotation.every = 24h;
  rotation.sets = {{"plain", {}}, {"gzip", {}}, {"few", {}}};
  rotation.sets[1].patch.compress = true;
  rotation.sets[2].patch.connections = 3;
  rotation.across = Rotation::Across::agents;
  rotation.guard = 10s;
  plan.rotation = rotation;
  return plan;
}

TEST(Explain, ShowsWhoHoldsWhichSetWhen) {
  const std::string text = explain_text(rotating(), 0).value();
  EXPECT_THAT(text, HasSubstr("rotation  every 1d, 10s after each change are not measured; 3 sets "
                              "take turns across the agents\n"));
  EXPECT_THAT(text, HasSubstr("2  gzip   call.compress=true"));
  EXPECT_THAT(text, HasSubstr("     0      0s  1970-01-01 00:00:00 +0000      1  1  2  3\n"
                              "     1      1d  1970-01-02 00:00:00 +0000      2  2  3  1\n"
                              "     2      2d  1970-01-03 00:00:00 +0000      3  3  1  2\n"));
  EXPECT_THAT(text, HasSubstr("at most 21 connections, 10 on one agent; 3 epochs"));
}

TEST(Explain, ShowsWallTimesInTheZoneOfTheRotation) {
  Plan plan = rotating();
  plan.rotation->at = "00:00";
  plan.rotation->zone = "Europe/Vienna";
  plan.rotation->zone_rules = "3600 CET-1CEST,M3.5.0,M10.5.0/3";
  // 2026-03-28 18:00 UTC; the day after has 23 hours.
  const std::string text = explain_text(plan, 1'774'720'800'000).value();
  EXPECT_THAT(text, HasSubstr("     0      0s  2026-03-28 19:00:00 +0100 "));
  EXPECT_THAT(text, HasSubstr("     1      5h  2026-03-29 00:00:00 +0100 "));
  EXPECT_THAT(text, HasSubstr("     2    1d4h  2026-03-30 00:00:00 +0200 "));
}

TEST(Explain, SaysIfNotAllSetsHaveATurn) {
  Plan plan = rotating();
  plan.set_measured_length(30h);
  EXPECT_THAT(explain_text(plan, 0).value(), HasSubstr("2 periods are too few for all sets"));
  plan.set_measured_length(1h);
  EXPECT_THAT(explain_text(plan, 0).value(), HasSubstr("ends before the first change"));
}

TEST(Explain, HasEverySegmentInItsJson) {
  const auto json = nlohmann::json::parse(explain_json(rotating(), 0).value());
  EXPECT_EQ(json["segments"].size(), 5U) << "three periods, two with a guard band";
  EXPECT_EQ(json["segments"][1]["guard"], true);
  EXPECT_EQ(json["segments"][1]["starts_at"], "1970-01-02T00:00:00Z");
  EXPECT_EQ(json["epochs"][1]["shares"][0]["set"], "gzip");
  EXPECT_EQ(json["plan"]["rotate"]["sets"].size(), 3U);
}

}  // namespace
}  // namespace spate::cli
