#include "controller/registry.h"

#include <gmock/gmock.h>

#include "common/version.h"

namespace spate::controller {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

AgentHello hello(const std::string& name, std::uint64_t incarnation,
                 const std::string& host = "host-a", const std::string& peer = "10.0.0.5") {
  AgentHello h;
  h.protocol = kProtocolVersion;
  h.version = kVersion;
  h.name = name;
  h.incarnation = incarnation;
  h.host = host;
  h.peer = peer;
  return h;
}

class RegistryTest : public testing::Test {
 protected:
  Instant now_ = from_ns(1'000'000'000'000);
  Registry registry_;
};

TEST_F(RegistryTest, AdmitsAnAgentUnderItsName) {
  const auto admission = registry_.hello(1, hello("pc-1", 7), now_);
  EXPECT_TRUE(admission.accepted);
  EXPECT_EQ(admission.name, "pc-1");
  EXPECT_FALSE(admission.is_back);
  EXPECT_EQ(registry_.find(1)->state, AgentState::online);
}

TEST_F(RegistryTest, GivesATakenNameASuffix) {
  registry_.hello(1, hello("pc", 7), now_);
  EXPECT_EQ(registry_.hello(2, hello("pc", 8), now_).name, "pc (2)");
  EXPECT_EQ(registry_.hello(3, hello("pc", 9), now_).name, "pc (3)");
}

TEST_F(RegistryTest, KeepsTheSuffixWhenTheAgentComesBack) {
  registry_.hello(1, hello("pc", 7), now_);
  registry_.hello(2, hello("pc", 8), now_);
  registry_.stream_broke(2, now_);
  const auto again = registry_.hello(3, hello("pc (2)", 8), now_);
  EXPECT_TRUE(again.is_back);
  EXPECT_EQ(again.name, "pc (2)");
  EXPECT_EQ(registry_.agents().size(), 2U);
}

TEST_F(RegistryTest, GivesARestartedAgentItsNameBack) {
  registry_.hello(1, hello("pc", 7), now_);
  registry_.stream_broke(1, now_);
  const auto again = registry_.hello(2, hello("pc", 8), now_ + seconds(1));
  EXPECT_EQ(again.name, "pc");
  EXPECT_EQ(again.restarted, 7U);
  EXPECT_FALSE(again.is_back);
  EXPECT_EQ(registry_.agents().size(), 1U);
}

TEST_F(RegistryTest, DoesNotGiveAnotherHostTheNameOfAnAgentThatMayComeBack) {
  registry_.hello(1, hello("pc", 7, "host-a"), now_);
  registry_.stream_broke(1, now_);
  EXPECT_EQ(registry_.hello(2, hello("pc", 8, "host-b"), now_).name, "pc (2)");
}

TEST_F(RegistryTest, ReplacesTheOlderStreamOfTheSameAgent) {
  registry_.hello(1, hello("pc", 7), now_);
  const auto again = registry_.hello(2, hello("pc", 7), now_);
  EXPECT_TRUE(again.accepted);
  EXPECT_EQ(again.replaced, 1U);
}

TEST_F(RegistryTest, RefusesTheSameIdentityFromTwoAddresses) {
  registry_.hello(1, hello("pc", 7, "host-a", "10.0.0.5"), now_);
  const auto clone = registry_.hello(2, hello("pc", 7, "host-a", "10.0.0.9"), now_);
  EXPECT_FALSE(clone.accepted);
  EXPECT_THAT(clone.refusal, HasSubstr("identity used twice"));
  EXPECT_THAT(clone.refusal, HasSubstr("10.0.0.5"));
  EXPECT_THAT(clone.refusal, HasSubstr("10.0.0.9"));
}

TEST_F(RegistryTest, RefusesAnotherProtocolWithBothVersions) {
  AgentHello old = hello("pc", 7);
  old.protocol = 99;
  old.version = "9.9";
  const auto admission = registry_.hello(1, old, now_);
  EXPECT_FALSE(admission.accepted);
  EXPECT_THAT(admission.refusal, HasSubstr("9.9"));
  EXPECT_THAT(admission.refusal, HasSubstr(kVersion));
}

TEST_F(RegistryTest, RefusesNamesThatCannotTravel) {
  EXPECT_FALSE(registry_.hello(1, hello("", 7), now_).accepted);
  EXPECT_FALSE(registry_.hello(1, hello(std::string(65, 'x'), 7), now_).accepted);
  EXPECT_FALSE(registry_.hello(1, hello("a\nb", 7), now_).accepted);
}

TEST_F(RegistryTest, SaysWhenAWallClockWasSet) {
  constexpr std::int64_t kHour = 3'600'000'000'000;
  const auto beat = [&](std::int64_t wall_clock_offset_ns) {
    AgentHeartbeat heartbeat;
    heartbeat.wall_clock_offset_ns = wall_clock_offset_ns;
    return registry_.heartbeat(1, heartbeat, now_).clock_step;
  };
  registry_.hello(1, hello("pc", 7), now_);
  EXPECT_EQ(beat(5 * kHour), Duration{}) << "the first one";
  EXPECT_EQ(beat(5 * kHour + 400'000'000), Duration{}) << "slewed";
  EXPECT_EQ(beat(4 * kHour + 400'000'000), Duration(-kHour));
  EXPECT_EQ(beat(4 * kHour + 400'000'000), Duration{});
  EXPECT_EQ(beat(0), Duration{}) << "an agent that does not say";
}

TEST_F(RegistryTest, SaysWhenAWallClockDiffersFromTheControllers) {
  constexpr std::int64_t kMs = 1'000'000;
  constexpr std::int64_t kHour = 3'600'000 * kMs;
  const auto beat = [&](std::int64_t lead_ns, std::int64_t bound_ns = 1'000'000) {
    AgentHeartbeat heartbeat;
    heartbeat.offset_ns = -7 * kHour;  // its machine has been up for so much longer
    heartbeat.offset_bound_ns = bound_ns;
    heartbeat.wall_clock_offset_ns = 93 * kHour + lead_ns;
    return registry_.heartbeat(1, heartbeat, now_);
  };
  const auto off = [&] { return registry_.find("pc")->clock_off / std::chrono::milliseconds(1); };
  registry_.hello(1, hello("pc", 7), now_);
  beat(2'000 * kMs);
  EXPECT_EQ(off(), 0) << "the controller's is not known";
  EXPECT_EQ(registry_.wall_clock(100 * kHour), Duration{});
  EXPECT_FALSE(beat(2'000 * kMs, -1).is_clock_off_new) << "its own is not known";
  EXPECT_TRUE(beat(2'000 * kMs).is_clock_off_new);
  EXPECT_EQ(off(), 2'000);
  EXPECT_EQ(note_of(*registry_.find("pc")), "wall clock differs from the controller's by +2s");
  EXPECT_FALSE(beat(1'600 * kMs).is_clock_off_new);
  EXPECT_FALSE(beat(1'200 * kMs).is_clock_off_new);
  EXPECT_FALSE(beat(800 * kMs).is_clock_off_new);
  EXPECT_FALSE(beat(400 * kMs).is_clock_off_new) << "near the limit it neither comes nor goes";
  EXPECT_TRUE(beat(200 * kMs).is_clock_off_new);
  EXPECT_EQ(off(), 0);
  EXPECT_FALSE(beat(600 * kMs, 200 * kMs).is_clock_off_new) << "as far as it can be measured";
  const Registry::News news = beat(-kHour);
  EXPECT_EQ(shown_step(news.clock_step), "-1h1s");
  EXPECT_FALSE(news.is_clock_off_new) << "the step says so";
  EXPECT_EQ(off(), -3'600'000);
}

TEST_F(RegistryTest, ItsOwnClocksStepIsToldOnceAndNotOfEachAgent) {
  constexpr std::int64_t kHour = 3'600'000'000'000;
  EXPECT_EQ(registry_.wall_clock(100 * kHour), Duration{}) << "the first one";
  registry_.hello(1, hello("pc", 7), now_);
  registry_.heartbeat(1, AgentHeartbeat{0, 0, 0, 0, 100 * kHour, ""}, now_);
  EXPECT_EQ(shown_step(registry_.wall_clock(101 * kHour)), "+1h");
  EXPECT_EQ(registry_.wall_clock(101 * kHour), Duration{});
  EXPECT_EQ(registry_.find("pc")->clock_off, Duration(-kHour));
  const auto news = registry_.heartbeat(1, AgentHeartbeat{0, 0, 0, 0, 100 * kHour, ""}, now_);
  EXPECT_FALSE(news.is_clock_off_new);
}

TEST_F(RegistryTest, SuspectsASilentAgentAndLosesItAfterFiveSeconds) {
  registry_.hello(1, hello("pc", 7), now_);
  registry_.heartbeat(1, AgentHeartbeat{0, 5, 6, 0, 0, ""}, now_ + seconds(1));
  EXPECT_TRUE(registry_.tick(now_ + seconds(3)).empty());
  EXPECT_EQ(registry_.find("pc")->state, AgentState::online);
  EXPECT_TRUE(registry_.tick(now_ + milliseconds(3500)).empty());
  EXPECT_EQ(registry_.find("pc")->state, AgentState::suspect);
  const auto lost = registry_.tick(now_ + seconds(6));
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_EQ(lost[0].incarnation, 7U);
  EXPECT_THAT(lost[0].cause, HasSubstr("no heartbeat for 5s"));
  EXPECT_TRUE(registry_.tick(now_ + seconds(7)).empty());
}

TEST_F(RegistryTest, LosesAnAgentFiveSecondsAfterItsStreamBroke) {
  registry_.hello(1, hello("pc", 7), now_);
  registry_.stream_broke(1, now_ + seconds(1));
  EXPECT_EQ(registry_.find("pc")->state, AgentState::suspect);
  EXPECT_TRUE(registry_.tick(now_ + milliseconds(4900)).empty());
  ASSERT_EQ(registry_.tick(now_ + seconds(6)).size(), 1U);
  // A lost agent that comes back is the same one.
  EXPECT_TRUE(registry_.hello(2, hello("pc", 7), now_ + seconds(9)).is_back);
  EXPECT_EQ(registry_.find("pc")->state, AgentState::online);
}

TEST_F(RegistryTest, ForgetsTheOldestLostAgents) {
  for (std::uint64_t i = 0; i < kMaxLost + 20; ++i) {
    registry_.hello(i + 1, hello("pc-" + std::to_string(i), i), now_ + milliseconds(i));
    registry_.stream_broke(i + 1, now_ + milliseconds(i));
  }
  registry_.tick(now_ + seconds(60));
  EXPECT_EQ(registry_.agents().size(), kMaxLost);
  EXPECT_EQ(registry_.find("pc-0"), nullptr);
  EXPECT_NE(registry_.find("pc-119"), nullptr);
}

class IdentityTest : public RegistryTest {
 protected:
  static AgentHello with_id(const std::string& id, const std::string& name, std::uint64_t start) {
    AgentHello h = hello(name, start);
    h.agent_id = id;
    h.nonce = 10 + start;
    return h;
  }
};

TEST_F(IdentityTest, KnowsAnAgentByItsIdWhateverItIsCalled) {
  registry_.hello(1, with_id("a", "pc", 1), now_);
  const auto again = registry_.hello(2, with_id("a", "desk", 2), now_);
  EXPECT_EQ(again.restarted, 1U);
  EXPECT_EQ(again.replaced, 1U);
  EXPECT_EQ(again.name, "desk");
  EXPECT_EQ(registry_.agents().size(), 1U);
}

TEST_F(IdentityTest, KeepsTheNameThatARunKnowsItBy) {
  registry_.hello(1, with_id("a", "desk", 1), now_, {{"pc", "a"}});
  EXPECT_EQ(registry_.find(1)->name, "pc");
  EXPECT_EQ(registry_.hello(2, with_id("b", "pc", 1), now_, {{"pc", "a"}}).name, "pc (2)");
}

TEST_F(IdentityTest, AnotherAgentMayTakeTheNameOfOneThatIsLostAndNotInARun) {
  registry_.hello(1, with_id("a", "pc", 1), now_);
  registry_.stream_broke(1, now_);
  EXPECT_EQ(registry_.hello(2, with_id("b", "pc", 1), now_).name, "pc (2)");
  registry_.tick(now_ + kLostAfter);
  EXPECT_EQ(registry_.hello(3, with_id("c", "pc", 1), now_ + kLostAfter).name, "pc");
}

TEST_F(IdentityTest, HoldsTwoProcessesWithOneIdentity) {
  registry_.hello(1, with_id("a", "pc", 3), now_);
  AgentHello copy = with_id("a", "pc", 3);
  copy.nonce = 99;
  copy.peer = "10.0.0.9";
  const auto clone = registry_.hello(2, copy, now_);
  EXPECT_TRUE(clone.is_copied);
  EXPECT_EQ(clone.replaced, 1U);
  EXPECT_THAT(clone.refusal, HasSubstr("10.0.0.5, 10.0.0.9"));
  EXPECT_EQ(registry_.find("pc")->state, AgentState::held);
  EXPECT_EQ(registry_.find("pc")->held_because, clone.refusal);
  const auto first = registry_.hello(3, with_id("a", "pc", 3), now_);
  EXPECT_FALSE(first.accepted);
  EXPECT_FALSE(first.is_copied) << "said once";
  EXPECT_EQ(first.refusal, clone.refusal);
  EXPECT_TRUE(registry_.hello(4, with_id("a", "pc", 4), now_).accepted);
  EXPECT_EQ(registry_.find("pc")->held_because, "");
}

TEST_F(IdentityTest, RefusesAnOldCopyOfAStateFolder) {
  registry_.hello(1, with_id("a", "pc", 3), now_);
  const auto old = registry_.hello(2, with_id("a", "pc", 2), now_);
  EXPECT_FALSE(old.accepted);
  EXPECT_THAT(old.refusal, HasSubstr("old copy"));
  EXPECT_EQ(registry_.find("pc")->state, AgentState::online);
}

}  // namespace
}  // namespace spate::controller
