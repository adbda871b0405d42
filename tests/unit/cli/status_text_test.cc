#include "cli/status_text.h"

#include <gmock/gmock.h>

#include "proto/operator.pb.h"

namespace spate::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

ops::v1::StatusReply live() {
  ops::v1::StatusReply reply;
  reply.mutable_run()->set_run("soak-1");
  reply.mutable_run()->set_state("running");
  reply.mutable_live()->set_epoch(7);
  auto& agent = *reply.mutable_live()->add_agents();
  agent.set_name("pc-1");
  agent.set_state("online");
  agent.set_epoch(7);
  agent.set_connections(12);
  agent.set_records_waiting(30);
  return reply;
}

TEST(StatusText, SaysWhatIsWrongWithTheStoreOnlyIfSomethingIs) {
  ops::v1::StatusReply reply = live();
  EXPECT_THAT(status_text(reply), Not(HasSubstr("TROUBLE")));
  EXPECT_THAT(status_text(reply), Not(HasSubstr("store:")));
  reply.mutable_live()->set_store_trouble("disk full");
  reply.mutable_live()->set_store_space("2 MiB, 1 KiB free");
  EXPECT_THAT(status_text(reply), HasSubstr("TROUBLE: disk full (30 records wait on the agents"));
  EXPECT_THAT(status_text(reply), HasSubstr("store: 2 MiB, 1 KiB free\n"));
}

TEST(StatusText, ShowsNoEpochThatIsNotKnown) {
  ops::v1::StatusReply reply = live();
  EXPECT_THAT(status_text(reply), HasSubstr("  7           12  "));
  reply.mutable_live()->mutable_agents(0)->set_epoch(0);
  EXPECT_THAT(status_text(reply), HasSubstr("  -            -  "));
}

}  // namespace
}  // namespace spate::cli
