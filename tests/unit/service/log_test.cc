#include "service/log.h"

#include <gmock/gmock.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/temporary_directory.h"

namespace spate::service {
namespace {

namespace fs = std::filesystem;

class LogTest : public testing::Test {
 protected:
  LogTest() { before_ = spdlog::default_logger(); }
  ~LogTest() override {
    spdlog::drop("test");
    spdlog::set_default_logger(before_);
  }
  TemporaryDirectory folder_;
  std::shared_ptr<spdlog::logger> before_;
};

TEST_F(LogTest, BeginsANewFileWhenOneIsFullAndKeepsSoMany) {
  LogFlags flags;
  flags.file = folder_ / "agent.log";
  flags.max_size = "64KiB";
  flags.kept = 2;
  ASSERT_TRUE(start_log("test", flags).has_value());
  for (int i = 0; i < 10'000; ++i) spdlog::info("line number={} of many", i);
  std::size_t files = 0;
  std::uintmax_t bytes = 0;
  for (const auto& file : fs::directory_iterator(folder_.path())) {
    ++files;
    bytes += file.file_size();
    EXPECT_LE(file.file_size(), 64U * 1024);
  }
  EXPECT_EQ(files, 3U);
  EXPECT_GT(bytes, 2U * 60 * 1024);
  std::ifstream newest(flags.file);
  std::string text((std::istreambuf_iterator<char>(newest)), {});
  EXPECT_THAT(text, testing::HasSubstr("info test line number=9999 of many"));
}

TEST_F(LogTest, CanBeReadByItsOwnerOnly) {
  LogFlags flags;
  flags.file = folder_ / "agent.log";
  ASSERT_TRUE(start_log("test", flags).has_value());
  struct stat status {};
  ASSERT_EQ(stat(flags.file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 077U, 0U);
}

TEST_F(LogTest, RefusesWhatCannotWork) {
  LogFlags flags;
  flags.file = folder_ / "agent.log";
  flags.max_size = "1KiB";
  EXPECT_EQ(start_log("test", flags).error().message, "--log-max-size must be at least 64 KiB");
  flags.max_size = "many";
  EXPECT_THAT(start_log("test", flags).error().message, testing::HasSubstr("--log-max-size"));
  flags.max_size = "1MiB";
  std::ofstream(folder_ / "file") << "not a folder";
  flags.file = folder_ / "file/agent.log";
  EXPECT_THAT(start_log("test", flags).error().message,
              testing::HasSubstr("--log-file cannot be written"));
}

}  // namespace
}  // namespace spate::service
