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
  const std::string text = explain_text(sweep());
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
  const std::string text = explain_text(sweep());
  EXPECT_THAT(text, HasSubstr("    1  1                      4  2                  4\n"
                              "    1  2 to 3                 3  1 or 2             6\n"
                              "    1  all                                         10\n"));
  EXPECT_THAT(text, HasSubstr("1,001"));
  const auto json = nlohmann::json::parse(explain_json(sweep()));
  for (const auto& epoch : json["epochs"]) {
    std::uint64_t sum = 0;
    for (const auto& share : epoch["shares"]) sum += share.get<std::uint64_t>();
    EXPECT_EQ(sum, epoch["connections"].get<std::uint64_t>());
    EXPECT_EQ(epoch["shares"].size(), 3U);
  }
}

TEST(Explain, SaysWhatItAddsUpTo) {
  EXPECT_THAT(explain_text(sweep()), HasSubstr("together  1m40s, 1m30s of them measured; at most "
                                               "3,001 connections, 1,001 on one agent; 2 epochs"));
}

}  // namespace
}  // namespace spate::cli
