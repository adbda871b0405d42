#include "controller/orders.h"

#include <gmock/gmock.h>

namespace spate::controller {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

SubmitOrder local_order() {
  SubmitOrder order;
  order.plan = R"({"name": "n", "target": "local", "rotate": {"every": "10s", "sets": [
    {"name": "plain"}, {"name": "tls", "target": {"url": "grpcs://local"}}]}})";
  order.target_url = "grpc://127.0.0.1:1";
  order.target_tls_url = "grpcs://127.0.0.1:2";
  order.target_probe = "127.0.0.1:3";
  return order;
}

TEST(Orders, SayWhereTheLocalTargetIs) {
  const auto made = make_order(local_order(), 0, 1);
  ASSERT_THAT(made.problems, ElementsAre());
  const Plan& plan = made.order.plan;
  EXPECT_EQ(plan.target.url, "grpc://127.0.0.1:1");
  EXPECT_EQ(plan.target.probe, "127.0.0.1:3");
  EXPECT_EQ(plan.rotation->sets[0].patch.target_url, std::nullopt);
  EXPECT_EQ(plan.rotation->sets[1].patch.target_url, "grpcs://127.0.0.1:2");
}

TEST(Orders, RefuseALocalTargetThatNobodyStarted) {
  SubmitOrder order = local_order();
  order.target_url.clear();
  EXPECT_THAT(make_order(order, 0, 1).problems, ElementsAre(HasSubstr("/target/url")));
}

}  // namespace
}  // namespace spate::controller
