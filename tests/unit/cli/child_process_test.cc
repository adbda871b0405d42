#include "cli/child_process.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include "cli/files.h"
#include "tests/unit/temporary_directory.h"

namespace spate::cli {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class Child : public ::testing::Test {
 protected:
  ChildProcess shell(const std::string& script) {
    auto child = ChildProcess::start("/bin/sh", {"-c", script}, log());
    EXPECT_TRUE(child);
    return std::move(*child);
  }
  std::string log() const { return directory_ / "log"; }

  TemporaryDirectory directory_;
};

TEST_F(Child, IsReadyWhenItSaysSo) {
  auto child = shell("echo starting; echo x listening on 127.0.0.1:1234; exec tail -f /dev/null");
  const auto line = child.wait_for_line("listening on ", 20s);
  ASSERT_TRUE(line) << line.error().message;
  EXPECT_EQ(*line, "x listening on 127.0.0.1:1234");
  EXPECT_FALSE(child.ended());
  child.signal(SIGTERM);
  EXPECT_TRUE(child.wait_for_end(20s));
  EXPECT_EQ(child.ended(), "signal 15");
}

TEST_F(Child, ThatEndsEarlyIsNoticedAtOnceAndItsErrorsAreKept) {
  auto child = shell("echo bad address >&2; exit 2");
  const auto line = child.wait_for_line("listening on ", 20s);
  ASSERT_FALSE(line);
  EXPECT_THAT(line.error().message, HasSubstr("status 2"));
  EXPECT_EQ(*read_file(log()), "bad address\n");
}

TEST_F(Child, LastWordsBeforeTheEndAreHeard) {
  auto child = shell("echo x listening on y");
  ASSERT_TRUE(child.wait_for_end(20s));
  EXPECT_TRUE(child.wait_for_line("listening", 20s));
}

TEST_F(Child, ThatSaysNothingIsGivenUp) {
  auto child = shell("exec tail -f /dev/null");
  const auto line = child.wait_for_line("listening on ", 50ms);
  ASSERT_FALSE(line);
  EXPECT_THAT(line.error().message, HasSubstr("in time"));
}

TEST_F(Child, IsGoneWithItsObject) {
  pid_t pid = 0;
  {
    auto child = shell("trap '' TERM; echo ready; exec tail -f /dev/null");
    ASSERT_TRUE(child.wait_for_line("ready", 20s));
    pid = child.pid();
    EXPECT_EQ(kill(pid, 0), 0);
    EXPECT_NE(getpgid(pid), getpgid(0)) << "Ctrl-C in the terminal would reach it";
  }
  EXPECT_EQ(kill(pid, 0), -1);
}

TEST_F(Child, DoesNotInheritOurOwnSettings) {
  setenv("SPATE_CA", "/some/ca.crt", 1);
  setenv("OTHER", "kept", 1);
  auto child = shell("echo ca=$SPATE_CA other=$OTHER");
  unsetenv("SPATE_CA");
  const auto line = child.wait_for_line("other=", 20s);
  ASSERT_TRUE(line);
  EXPECT_EQ(*line, "ca= other=kept");
}

TEST_F(Child, ThatDoesNotExistIsNamed) {
  auto child = ChildProcess::start("/nowhere/program", {}, log());
  ASSERT_TRUE(child);
  EXPECT_FALSE(child->wait_for_line("ready", 20s));
  EXPECT_THAT(*read_file(log()), HasSubstr("cannot start /nowhere/program: No such file"));
}

}  // namespace
}  // namespace spate::cli
