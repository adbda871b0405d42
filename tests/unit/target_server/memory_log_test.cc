#include "target-server/memory_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

namespace spate::target_server {
namespace {

using ::testing::HasSubstr;

class MemoryLogTest : public ::testing::Test {
 protected:
  MemoryLogTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "memory-log-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~MemoryLogTest() override { std::filesystem::remove_all(folder_); }

  std::string path() const { return (folder_ / "log.csv").string(); }
  MemoryLog::Options options(std::uint64_t every) const {
    return {path(), every, ',', [] { return std::uint64_t{128'289'079}; }};
  }
  static std::string text(const std::string& file) {
    std::ifstream in(file);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::vector<ReferenceRow> rows() const {
    const auto log = parse_reference_log(text(path()));
    EXPECT_TRUE(log) << log.error().message;
    return log ? log->rows : std::vector<ReferenceRow>{};
  }

  std::filesystem::path folder_;
};

TEST_F(MemoryLogTest, WritesARowForEveryNAndTheTotal) {
  auto log = MemoryLog::open(options(10));
  ASSERT_TRUE(log) << log.error().message;
  for (std::uint64_t i = 1; i <= 35; ++i) (*log)->completed(i);
  ASSERT_TRUE((*log)->close(35));
  std::vector<std::uint64_t> requests;
  for (const auto& row : rows()) {
    requests.push_back(row.requests);
    EXPECT_NEAR(row.memory_mb, 122.346, 0.001);
  }
  EXPECT_EQ(requests, (std::vector<std::uint64_t>{10, 20, 30, 35}));
}

TEST_F(MemoryLogTest, WritesTheTotalOnlyOnce) {
  auto log = MemoryLog::open(options(10));
  ASSERT_TRUE(log);
  for (std::uint64_t i = 1; i <= 20; ++i) (*log)->completed(i);
  ASSERT_TRUE((*log)->close(20));
  EXPECT_EQ(rows().size(), 2u);
}

TEST_F(MemoryLogTest, WritesARowEvenForNoRequests) {
  auto log = MemoryLog::open(options(10));
  ASSERT_TRUE(log);
  ASSERT_TRUE((*log)->close(0));
  ASSERT_EQ(rows().size(), 1u);
  EXPECT_EQ(rows()[0].requests, 0u);
}

TEST_F(MemoryLogTest, KeepsTheOrderWhateverThreadIsFaster) {
  auto log = MemoryLog::open(options(10));
  ASSERT_TRUE(log);
  for (const std::uint64_t total : {30u, 20u, 10u, 40u}) (*log)->completed(total);
  ASSERT_TRUE((*log)->close(40));
  const auto written = rows();
  ASSERT_EQ(written.size(), 4u);
  EXPECT_TRUE(std::is_sorted(written.begin(), written.end(),
                             [](const auto& a, const auto& b) { return a.requests < b.requests; }));
}

TEST_F(MemoryLogTest, LosesNoRowUnderLoad) {
  auto log = MemoryLog::open(options(2));
  ASSERT_TRUE(log);
  constexpr std::uint64_t kTotal = 20'001;
  std::atomic<std::uint64_t> completed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (std::uint64_t n = ++completed; n <= kTotal; n = ++completed) (*log)->completed(n);
    });
  }
  for (auto& thread : threads) thread.join();
  ASSERT_TRUE((*log)->close(kTotal));
  const auto written = rows();
  ASSERT_EQ(written.size(), kTotal / 2 + 1);
  for (std::size_t i = 0; i + 1 < written.size(); ++i) {
    ASSERT_EQ(written[i].requests, 2 * (i + 1));
    ASSERT_LE(written[i].wall_ms, written[i + 1].wall_ms);
  }
  EXPECT_EQ(written.back().requests, kTotal);
}

TEST_F(MemoryLogTest, KeepsAnOldLog) {
  for (int i = 0; i < 3; ++i) {
    auto log = MemoryLog::open(options(10));
    ASSERT_TRUE(log) << log.error().message;
    ASSERT_TRUE((*log)->close(static_cast<std::uint64_t>(i) + 1));
  }
  EXPECT_EQ(rows().at(0).requests, 3u);
  EXPECT_THAT(text(path() + ".1"), HasSubstr("; 1; "));
  EXPECT_THAT(text(path() + ".2"), HasSubstr("; 2; "));
}

TEST_F(MemoryLogTest, RefusesAFileThatCannotBeWritten) {
  auto impossible = options(10);
  impossible.path = (folder_ / "missing" / "log.csv").string();
  const auto log = MemoryLog::open(impossible);
  ASSERT_FALSE(log);
  EXPECT_THAT(log.error().message,
              HasSubstr("missing/log.csv: cannot open for writing: No such file"));
}

TEST_F(MemoryLogTest, RefusesAFullDiskAtOnce) {
  auto full = options(10);
  full.path = "/dev/full";
  const auto log = MemoryLog::open(full);
  ASSERT_FALSE(log);
  EXPECT_THAT(log.error().message, HasSubstr("No space left"));
}

}  // namespace
}  // namespace spate::target_server
