#include "agent/spool_file.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "agent/spool.h"
#include "tests/unit/agent/record_fixture.h"
#include "tests/unit/temporary_directory.h"

namespace spate::agent {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

const AccountKey kRun{"run-1", 7};

SpoolChange one(std::uint64_t seq, const std::string& payload = "bytes") {
  SpoolChange c;
  c.accounts.push_back(
      {kRun, "pc-1", "cluster", "", seq, seq - 1, 5s, 3, {seq, std::uint64_t{1} << 63}});
  c.put.push_back({kRun, {seq, seq, 2, 1, true, true, 4, payload.size()}, payload});
  return c;
}

struct SpoolFileTest : testing::Test {
  Error refusal() {
    SpoolFile file(path, "");
    const auto contents = file.open();
    EXPECT_FALSE(contents.has_value());
    return contents ? Error{} : contents.error();
  }
  void fill() {
    SpoolFile file(path, "");
    ASSERT_TRUE(file.open());
    ASSERT_TRUE(file.commit(one(1)));
  }

  TemporaryDirectory folder;
  std::string path = folder / "spool.sqlite";
  std::string shelf = folder / "shelf";
};

TEST_F(SpoolFileTest, KeepsEverythingThatItWasGiven) {
  {
    SpoolFile file(path, shelf);
    EXPECT_TRUE(file.open()->chains.empty());
    ASSERT_TRUE(file.commit(one(1)));
    ASSERT_TRUE(file.commit(one(2, std::string("\0\xff", 2))));
    EXPECT_EQ(*file.read(kRun, 2), std::string("\0\xff", 2));
    EXPECT_FALSE(file.read(kRun, 3));
  }
  SpoolFile file(path, shelf);
  auto contents = file.open();
  ASSERT_TRUE(contents) << contents.error().message;
  ASSERT_EQ(contents->chains.size(), 1U);
  EXPECT_EQ(contents->chains[0].account, one(2).accounts[0]);
  ASSERT_EQ(contents->chains[0].entries.size(), 2U);
  EXPECT_EQ(contents->chains[0].entries[0], one(1).put[0].entry);

  SpoolChange erase;
  erase.erase.push_back({kRun, 0, 1});
  ASSERT_TRUE(file.commit(erase));
  contents = file.open();
  EXPECT_EQ(contents->chains[0].entries.size(), 1U);
  SpoolChange forget;
  forget.forget.push_back(kRun);
  ASSERT_TRUE(file.commit(forget));
  EXPECT_TRUE(file.open()->chains.empty());
}

TEST_F(SpoolFileTest, ACommitIsWholeOrNothing) {
  SpoolFile file(path, "");
  ASSERT_TRUE(file.open());
  ASSERT_TRUE(file.commit(one(1)));
  SpoolChange bad = one(2);
  bad.put.push_back({{"run-9", 1}, {1, 1, 1, 0, false, false, 1, 1}, "x"});  // of no account
  EXPECT_FALSE(file.commit(bad));
  EXPECT_FALSE(file.commit(one(2))) << "only after open()";
  const auto contents = file.open();
  EXPECT_EQ(contents->chains[0].account.last_seq, 1U);
}

TEST_F(SpoolFileTest, ShelfIsReplacedWholeAndEmptied) {
  SpoolFile file(path, shelf);
  ASSERT_TRUE(file.open());
  EXPECT_TRUE(file.shelve("one"));
  EXPECT_TRUE(file.shelve("two"));
  EXPECT_EQ(file.open()->shelved, "two");
  EXPECT_TRUE(file.shelve(""));
  EXPECT_TRUE(file.shelve(""));
  EXPECT_EQ(file.open()->shelved, "");
  SpoolFile none(folder / "other.sqlite", "");
  EXPECT_FALSE(none.shelve("x"));
}

TEST_F(SpoolFileTest, RefusesWhatIsNotASpool) {
  std::ofstream(path) << "not a database at all, but long enough to look like one";
  EXPECT_THAT(refusal().message, HasSubstr("not an SQLite file"));
  std::ofstream(path, std::ios::trunc).close();
  EXPECT_THAT(refusal().message, HasSubstr("damaged (it is empty"));
  std::filesystem::remove(path);
  SQLite::Database(path, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE).exec("CREATE TABLE t (a)");
  EXPECT_THAT(refusal().message, HasSubstr("belongs to another program"));
}

TEST_F(SpoolFileTest, RefusesANewerOneAndSaysWhatToDo) {
  fill();
  SQLite::Database(path, SQLite::OPEN_READWRITE).exec("PRAGMA user_version = 99");
  const Error e = refusal();
  EXPECT_THAT(e.message, HasSubstr("newer spate (version 99"));
  EXPECT_THAT(e.message, HasSubstr("--state"));
}

TEST_F(SpoolFileTest, RefusesADamagedOneAndLeavesItAsItIs) {
  {
    SpoolFile file(path, "");
    ASSERT_TRUE(file.open());
    for (std::uint64_t i = 1; i < 60; ++i) ASSERT_TRUE(file.commit(one(i, std::string(900, 'x'))));
  }
  const auto size = std::filesystem::file_size(path);
  {
    std::fstream f(path, std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(static_cast<std::streamoff>(size / 2));
    f << std::string(6000, 'Z');
  }
  EXPECT_THAT(refusal().message, HasSubstr("damaged"));
  EXPECT_THAT(refusal().message, HasSubstr("left as it is"));
  EXPECT_EQ(std::filesystem::file_size(path), size);
}

TEST_F(SpoolFileTest, RefusesAGapThatSomebodyMade) {
  {
    SpoolFile file(path, "");
    ASSERT_TRUE(file.open());
    for (std::uint64_t i = 1; i < 4; ++i) ASSERT_TRUE(file.commit(one(i)));
  }
  SQLite::Database(path, SQLite::OPEN_READWRITE).exec("DELETE FROM records WHERE seq = 2");
  EXPECT_THAT(refusal().message, HasSubstr("after seq 1 of run run-1 a record is missing"));
}

TEST_F(SpoolFileTest, RefusesOneThatAnotherProcessHasOpen) {
  SpoolFile file(path, "");
  ASSERT_TRUE(file.open());
  ASSERT_TRUE(file.commit(one(1)));
  const pid_t child = fork();
  if (child == 0) {
    SpoolFile second(path, "");
    const auto contents = second.open();
    _exit(!contents && contents.error().message.find("in use") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(SpoolFileTest, AFullDiskIsSaidAndHealsAndLosesNothing) {
  SpoolFile file(path, shelf);
  auto spool = *Spool::open(file, {});
  ASSERT_TRUE(spool->begin(7, "", {}));
  spool->open_account(kRun, "pc-1", "");
  spool->stream_up("");
  const auto interval = [](int n) { return lawful(n * 1s, 1s, 5, 5, 10); };
  spool->add(interval(0), {1});
  ASSERT_FALSE(spool->in_trouble()) << spool->trouble();

  // A limit on the size of files is a full disk for everybody who writes them, root included.
  const auto used = std::filesystem::file_size(path + "-wal");
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  rlimit small = old;
  small.rlim_cur = used + 1000;
  setrlimit(RLIMIT_FSIZE, &small);
  for (int i = 1; i < 20; ++i) spool->add(interval(i), {static_cast<std::uint64_t>(i) + 1});
  const bool was_in_trouble = spool->in_trouble();
  const std::string said = spool->trouble();
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, before);
  EXPECT_TRUE(was_in_trouble);
  EXPECT_THAT(said, HasSubstr(path));

  EXPECT_TRUE(spool->retry()) << spool->trouble();
  std::uint64_t ok = 0;
  while (const auto r = spool->next()) ok += r->count(Outcome::ok);
  EXPECT_EQ(ok, 20 * 10U);
}

TEST_F(SpoolFileTest, AFolderThatCannotBeWrittenIsSaid) {
  if (geteuid() == 0) GTEST_SKIP() << "root writes everywhere";
  std::filesystem::permissions(
      folder.path(), std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  EXPECT_THAT(refusal().message, HasSubstr("cannot open the spool"));
  std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_all);
}

// A process that is killed at a random instant of its commits.
TEST_F(SpoolFileTest, WhatWasCommittedIsThereAfterSigkill) {
  for (int round = 0; round < 10; ++round) {
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe(pipe.data()), 0);
    const std::string file_path = folder / ("killed-" + std::to_string(round));
    const pid_t child = fork();
    if (child == 0) {
      SpoolFile file(file_path, "");
      if (!file.open()) _exit(1);
      for (std::uint64_t i = 1;; ++i) {
        if (!file.commit(one(i))) _exit(1);
        if (write(pipe[1], &i, sizeof i) != sizeof i) _exit(1);
      }
    }
    std::uint64_t last = 0;
    while (last < 3 + static_cast<std::uint64_t>(round))
      ASSERT_EQ(read(pipe[0], &last, sizeof last), static_cast<ssize_t>(sizeof last));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(pipe[1]);
    for (std::uint64_t more = 0; read(pipe[0], &more, sizeof more) > 0;) last = more;
    close(pipe[0]);
    SpoolFile file(file_path, "");
    const auto contents = file.open();
    ASSERT_TRUE(contents) << contents.error().message;
    EXPECT_GE(contents->chains.at(0).entries.size(), last);
    EXPECT_LE(contents->chains.at(0).entries.size(), last + 1);
  }
}

}  // namespace
}  // namespace spate::agent
