#include "common/reference_log.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

namespace spate {
namespace {

// The reference log's own first rows, and its last.
constexpr std::string_view kExample =
    "2005-12-24 01:30:43; Time (sec); Memory (MB); Requests; Avg req/sec; Curr req/sec\n"
    "2005-12-24 01:30:46; 2; 122,348; 5000; 2037,49; 2037,49\n"
    "2005-12-24 01:30:48; 4; 124,848; 10000; 2461,236; 3107,52\n"
    "2005-12-24 02:44:50; 4446; 209,848; 9400577; 2113,951; 2053,381\n";

class ReferenceLogTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("TZ", "UTC", 1);
    tzset();
  }
};

TEST_F(ReferenceLogTest, IsReadAndWrittenTheSame) {
  const auto log = parse_reference_log(kExample);
  ASSERT_TRUE(log) << log.error().message;
  EXPECT_EQ(log->started_wall_ms, 1'135'387'843'000);
  ASSERT_EQ(log->rows.size(), 3u);
  EXPECT_EQ(log->rows[0], (ReferenceRow{1'135'387'846'000, 2, 122.348, 5000, 2037.49, 2037.49}));
  EXPECT_EQ(log->rows[2].requests, 9'400'577u);
  std::string written = reference_header(log->started_wall_ms);
  for (const ReferenceRow& row : log->rows) written += format_row(row);
  EXPECT_EQ(written, kExample);
}

TEST_F(ReferenceLogTest, AcceptsPointsAndCarriageReturns) {
  std::string text;
  for (const char c : kExample) {
    if (c == '\n') text += '\r';
    text += c == ',' ? '.' : c;
  }
  const auto log = parse_reference_log(text);
  ASSERT_TRUE(log) << log.error().message;
  EXPECT_EQ(log->rows, parse_reference_log(kExample)->rows);
}

TEST_F(ReferenceLogTest, NamesTheLineThatIsWrong) {
  const std::string header(kExample.substr(0, kExample.find('\n') + 1));
  EXPECT_FALSE(parse_reference_log("").has_value());
  EXPECT_NE(parse_reference_log("x\n").error().message.find("line 1"), std::string::npos);
  for (const std::string row : {"2005-12-24 01:30:46; 2; 122,348; 5000; 2037,49",
                                "2005-12-24 01:30:46; 2; 122,348; 5000; 2037,49; 1; 1",
                                "2005-12-24; 2; 122,348; 5000; 2037,49; 1",
                                "2005-12-24 01:30:46; -2; 122,348; 5000; 2037,49; 1",
                                "2005-12-24 01:30:46; 2; 1.2.3; 5000; 2037,49; 1",
                                "2005-12-24 01:30:46; 2; 1; 50x; 2037,49; 1",
                                "2005-12-24 01:30:46; 2; ; 5000; 2037,49; 1", "nonsense"}) {
    const auto log = parse_reference_log(header + row + "\n");
    ASSERT_FALSE(log.has_value()) << row;
    EXPECT_NE(log.error().message.find("line 2"), std::string::npos) << log.error().message;
  }
}

TEST_F(ReferenceLogTest, RowsAreComputedFromARunningCount) {
  ReferenceLogWriter writer(1'135'387'843'900, 1'000'000'000, ',');
  EXPECT_EQ(writer.header(), kExample.substr(0, kExample.find('\n') + 1));
  EXPECT_EQ(writer.row(3'454'000'000, 5'000, 128'290'980),
            "2005-12-24 01:30:46; 2; 122,348; 5000; 2037,49; 2037,49\n");
  EXPECT_EQ(writer.row(5'454'000'000, 10'000, 1'048'576),
            "2005-12-24 01:30:48; 4; 1; 10000; 2245,173; 2500\n");
  EXPECT_EQ(writer.row(5'454'000'000, 10'000, 0),
            "2005-12-24 01:30:48; 4; 0; 10000; 2245,173; 0\n");
}

}  // namespace
}  // namespace spate
