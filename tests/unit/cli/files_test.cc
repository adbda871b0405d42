#include "cli/files.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "cli/table.h"
#include "tests/unit/temporary_directory.h"

namespace spate::cli {
namespace {

std::size_t files_in(const std::string& path) {
  std::size_t n = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path)) n += entry.exists() ? 1 : 0;
  return n;
}

TEST(Files, AreReplacedWholeOrNotAtAll) {
  const TemporaryDirectory directory;
  const std::string path = directory / "deep/er/report.html";
  ASSERT_TRUE(write_file(path, "one", 0644, IfExists::replace));
  ASSERT_TRUE(write_file(path, "two", 0644, IfExists::replace));
  EXPECT_EQ(*read_file(path), "two");
  const auto refused = write_file(path, "three", 0644, IfExists::refuse);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("exists already"));
  EXPECT_EQ(*read_file(path), "two");
  EXPECT_EQ(files_in(directory / "deep/er"), 1U) << "a temporary file was left behind";
}

TEST(Files, WhatCannotBeReadIsNamed) {
  const TemporaryDirectory directory;
  EXPECT_THAT(read_file(directory / "nothing").error().message,
              ::testing::HasSubstr("nothing: No such file"));
  EXPECT_THAT(read_file(directory.path()).error().message, ::testing::HasSubstr("Is a directory"));
}

TEST(Files, TailIsTheLastLines) {
  const TemporaryDirectory directory;
  const std::string path = directory / "log";
  EXPECT_EQ(tail(path, 3), "");
  ASSERT_TRUE(write_file(path, "1\n2\n3\n4\n", 0644, IfExists::replace));
  EXPECT_EQ(tail(path, 2), "3\n4\n");
  EXPECT_EQ(tail(path, 4), "1\n2\n3\n4\n");
  EXPECT_EQ(tail(path, 9), "1\n2\n3\n4\n");
  ASSERT_TRUE(write_file(path, "1\n2\nno newline", 0644, IfExists::replace));
  EXPECT_EQ(tail(path, 1), "no newline");
}

TEST(Table, EveryColumnIsAsWideAsItsWidestCell) {
  Table table({"name", ">count", "note"});
  table.add({"a", "1,000", ""});
  table.add({"longer", "7", "yes"});
  EXPECT_EQ(table.to_string(),
            "name    count  note\n"
            "a       1,000\n"
            "longer      7  yes\n");
}

}  // namespace
}  // namespace spate::cli
