#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "service/sd_notify.h"
#include "service/watchdog.h"
#include "tests/unit/temporary_directory.h"

namespace spate::service {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;

// A service manager, as far as a service sees it.
class Manager {
 public:
  explicit Manager(const std::string& name) : fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name.data(), name.size());
    if (name[0] == '@') address.sun_path[0] = '\0';
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&address), length), 0);
    setenv("NOTIFY_SOCKET", name.c_str(), 1);
  }
  ~Manager() {
    close(fd_);
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) unsetenv(name);
  }
  // What came so far.
  std::vector<std::string> heard() const {
    std::vector<std::string> all;
    std::array<char, 4096> buffer{};
    for (;;) {
      const auto n = recv(fd_, buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (n < 0) return all;
      all.emplace_back(buffer.data(), static_cast<std::size_t>(n));
    }
  }

 private:
  int fd_;
};

TEST(Notifier, DoesNothingWithoutAManager) {
  unsetenv("NOTIFY_SOCKET");
  setenv("WATCHDOG_USEC", "30000000", 1);
  Notifier notifier = Notifier::from_environment();
  notifier.ready("up");
  EXPECT_FALSE(notifier.watchdog());
}

TEST(Notifier, SpeaksToASocketInTheFileSystem) {
  TemporaryDirectory folder;
  Manager manager(folder / "notify");
  Notifier notifier = Notifier::from_environment();
  notifier.ready("listening on 127.0.0.1:7070");
  notifier.status("2 runs\nREADY=0");
  notifier.stopping("draining");
  EXPECT_THAT(manager.heard(), ElementsAre("READY=1\nSTATUS=listening on 127.0.0.1:7070",
                                           "STATUS=2 runs READY=0", "STOPPING=1\nSTATUS=draining"));
  EXPECT_EQ(std::getenv("NOTIFY_SOCKET"), nullptr) << "not for children";
}

TEST(Notifier, SpeaksToAnAbstractSocket) {
  Manager manager("@spate-notify-test-" + std::to_string(getpid()));
  Notifier notifier = Notifier::from_environment();
  notifier.alive();
  EXPECT_THAT(manager.heard(), ElementsAre("WATCHDOG=1"));
}

TEST(Notifier, IsWatchedOnlyIfItIsMeant) {
  Manager manager("@spate-notify-test-" + std::to_string(getpid()));
  const std::string socket_name = std::getenv("NOTIFY_SOCKET");
  setenv("WATCHDOG_USEC", "30000000", 1);
  setenv("WATCHDOG_PID", std::to_string(getpid()).c_str(), 1);
  EXPECT_EQ(Notifier::from_environment().watchdog(), std::chrono::seconds(30));
  setenv("NOTIFY_SOCKET", socket_name.c_str(), 1);
  setenv("WATCHDOG_USEC", "30000000", 1);
  setenv("WATCHDOG_PID", "1", 1);
  EXPECT_FALSE(Notifier::from_environment().watchdog());
  setenv("NOTIFY_SOCKET", socket_name.c_str(), 1);
  setenv("WATCHDOG_USEC", "soon", 1);
  EXPECT_FALSE(Notifier::from_environment().watchdog());
}

class WatchdogTest : public testing::Test {
 protected:
  WatchdogTest() : manager_("@spate-watchdog-test-" + std::to_string(getpid())) {
    setenv("WATCHDOG_USEC", "20000", 1);
    notifier_ = Notifier::from_environment();
  }
  Manager manager_;
  Notifier notifier_;
  boost::asio::io_context loop_{1};
};

TEST_F(WatchdogTest, GivesASignOfLifeAtHalfTheTime) {
  Watchdog watchdog(loop_, notifier_, [](auto came_back) { came_back(); });
  watchdog.start();
  for (int ticks = 0; ticks < 9;) ticks += static_cast<int>(loop_.run_one()) > 0 ? 1 : 0;
  // Each tick and each probe's return is one handler.
  EXPECT_THAT(manager_.heard(), testing::SizeIs(testing::Ge(5)));
}

TEST_F(WatchdogTest, SaysNothingMoreWhenTheProbeDoesNotComeBack) {
  std::function<void()> stuck;
  Watchdog watchdog(loop_, notifier_, [&](auto came_back) { stuck = std::move(came_back); });
  watchdog.start();
  for (int ticks = 0; ticks < 10; ++ticks) loop_.run_one();
  EXPECT_THAT(manager_.heard(), ElementsAre("WATCHDOG=1")) << "the one before it was stuck";
  stuck();
  for (int ticks = 0; ticks < 3; ++ticks) loop_.run_one();
  EXPECT_THAT(manager_.heard(), ElementsAre("WATCHDOG=1")) << "it moves again";
}

TEST_F(WatchdogTest, SaysNothingWhenItsOwnLoopIsStuck) {
  Watchdog watchdog(loop_, notifier_, [](auto came_back) { came_back(); });
  watchdog.start();
  manager_.heard();
  EXPECT_THAT(manager_.heard(), ElementsAre()) << "nobody runs the loop";
}

}  // namespace
}  // namespace spate::service
