#include "cli/progress.h"

#include <gmock/gmock.h>

#include "proto/operator.pb.h"

namespace spate::cli {
namespace {

ops::v1::Progress typical() {
  ops::v1::Progress p;
  p.set_elapsed_ms(12'040);
  p.set_planned_ms(33'000);
  p.set_phase("flood");
  p.set_agents(4);
  p.set_agents_reporting(4);
  p.set_connections_requested(1'200);
  p.set_connections_established(1'198);
  p.set_rate_per_s(41'234.4);
  p.set_ok(41'230);
  p.set_failed(4);
  p.set_latency_p50_ns(1'240'000);
  p.set_latency_p99_ns(82'100'000);
  p.set_target_rss_bytes(std::uint64_t{210} << 20);
  return p;
}

TEST(Progress, StandsUnderItsHeading) {
  const std::string heading = progress_heading();
  const std::string line = format_progress(typical());
  EXPECT_EQ(
      heading,
      "         time  phase          connections  requests/s      p50      p99  failed     target");
  EXPECT_EQ(
      line,
      "    0:12/0:33  flood          1,198/1,200      41,234   1.24ms   82.1ms       4    210 MiB");
  EXPECT_EQ(heading.size(), line.size());
}

TEST(Progress, ShowsNoLatencyWhereNothingFinished) {
  auto p = typical();
  p.set_ok(0);
  p.set_failed(0);
  p.set_target_rss_bytes(0);
  EXPECT_EQ(
      format_progress(p),
      "    0:12/0:33  flood          1,198/1,200      41,234        -        -       0          -");
}

TEST(Progress, SaysWhenAnAgentIsMissing) {
  auto p = typical();
  p.set_agents_reporting(3);
  EXPECT_THAT(format_progress(p), ::testing::EndsWith("  3 of 4 agents report"));
}

TEST(Progress, CutsALongPhaseNameSoThatColumnsStayInPlace) {
  auto p = typical();
  p.set_phase("a-very-long-name-of-a-phase");
  EXPECT_EQ(format_progress(p).size(), progress_heading().size());
}

TEST(Progress, EventsSayHowBadTheyAre) {
  ops::v1::Event event;
  event.set_at_ms(61'000);
  event.set_severity("warning");
  event.set_text("agent lost agent=pc-07");
  EXPECT_EQ(format_event(event), "         1:01  warning: agent lost agent=pc-07");
  event.set_severity("info");
  event.set_at_ms(-2'500);
  EXPECT_EQ(format_event(event), "        -0:02  agent lost agent=pc-07");
}

TEST(Progress, ElapsedTimeGoesOnPastADay) {
  EXPECT_EQ(format_elapsed(0), "0:00");
  EXPECT_EQ(format_elapsed(3'599'999), "59:59");
  EXPECT_EQ(format_elapsed(3'600'000), "1:00:00");
  EXPECT_EQ(format_elapsed(1'261'336'000), "350:22:16");
}

}  // namespace
}  // namespace spate::cli
