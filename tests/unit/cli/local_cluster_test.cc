#include "cli/local_cluster.h"

#include <gtest/gtest.h>

namespace spate::cli {
namespace {

TEST(LocalCluster, ResolvesTheNamesOfItsTargetOnly) {
  LiveLocalCluster live;
  live.target_url = "grpc://127.0.0.1:1";
  live.target_tls_url = "grpcs://127.0.0.1:2";
  const auto with = [&](const char* assignment) { return with_local_target(assignment, live); };
  EXPECT_EQ(with("target.url=local"), "target.url=grpc://127.0.0.1:1");
  EXPECT_EQ(with("target.url=grpcs://local"), "target.url=grpcs://127.0.0.1:2");
  EXPECT_EQ(with("target.url=\"grpcs://local\""), "target.url=grpcs://127.0.0.1:2") << "as JSON";
  EXPECT_EQ(with("target.url=grpc://local:7"), "target.url=grpc://local:7") << "a host";
  EXPECT_EQ(with("call.method=local"), "call.method=local");
}

TEST(LocalCluster, WithoutATargetLeavesItsNamesToBeRefused) {
  EXPECT_EQ(with_local_target("target.url=grpcs://local", {}), "target.url=grpcs://local");
}

TEST(LocalCluster, IsNotLiveWithoutAProcess) {
  EXPECT_FALSE(live_local_cluster("/nowhere/store.sqlite").has_value());
}

}  // namespace
}  // namespace spate::cli
