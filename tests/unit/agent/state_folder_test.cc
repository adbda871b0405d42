#include "agent/state_folder.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "tests/unit/temporary_directory.h"

namespace spate::agent {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

struct StateFolderTest : testing::Test {
  std::unique_ptr<StateFolder> open() {
    auto opened = StateFolder::open(path);
    expect_good(opened);
    return opened ? *std::move(opened) : nullptr;
  }
  static void expect_good(const Result<std::unique_ptr<StateFolder>>& r) {
    EXPECT_TRUE(r.has_value()) << (r ? "" : r.error().message);
  }
  Error refusal() {
    auto opened = StateFolder::open(path);
    EXPECT_FALSE(opened.has_value());
    return opened ? Error{} : opened.error();
  }
  std::string identity() const {
    std::ifstream file(path + "/identity");
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  void write_identity(const std::string& text) const { std::ofstream(path + "/identity") << text; }

  TemporaryDirectory folder;
  std::string path = folder / "deep/agent";
};

TEST_F(StateFolderTest, CountsItsLivesAndStaysWhoItIs) {
  std::string id;
  for (std::uint64_t life = 1; life <= 3; ++life) {
    const auto state = open();
    ASSERT_TRUE(state);
    EXPECT_EQ(state->incarnation(), life);
    EXPECT_EQ(state->agent_id().size(), 32U);
    if (life > 1) {
      EXPECT_EQ(state->agent_id(), id);
    }
    id = state->agent_id();
    EXPECT_EQ(state->cause_of_previous(), life == 1 ? "" : "killed");
  }
}

TEST_F(StateFolderTest, KnowsHowItEnded) {
  EXPECT_TRUE(open()->ends_well());
  EXPECT_EQ(open()->cause_of_previous(), "clean stop");
  EXPECT_EQ(open()->cause_of_previous(), "killed");
}

TEST_F(StateFolderTest, KeepsTermsOfEachCluster) {
  {
    const auto state = open();
    EXPECT_EQ(state->last_cluster(), "");
    EXPECT_EQ(state->highest("a"), 0U);
    EXPECT_TRUE(state->keep("a", 7));
    EXPECT_TRUE(state->keep("b", 3));
    EXPECT_FALSE(state->keep("two words", 3));
    EXPECT_FALSE(state->keep("", 3));
  }
  const auto state = open();
  EXPECT_EQ(state->highest("a"), 7U);
  EXPECT_EQ(state->highest("b"), 3U);
  EXPECT_EQ(state->last_cluster(), "b");
}

TEST_F(StateFolderTest, RefusesToShareItsFolder) {
  const auto first = open();
  EXPECT_THAT(refusal().message, HasSubstr("in use by another spate-agent"));
  EXPECT_THAT(refusal().message, HasSubstr("--state"));
}

TEST_F(StateFolderTest, RefusesADamagedIdentity) {
  open();
  const std::string good = identity();
  for (std::size_t cut = 0; cut < good.size(); cut += 7) {
    write_identity(good.substr(0, cut));
    EXPECT_THAT(refusal().message, HasSubstr("damaged")) << cut;
  }
  std::string flipped = good;
  flipped[good.find("incarnation ") + 12] = '9';
  write_identity(flipped);
  EXPECT_THAT(refusal().message, HasSubstr("checksum"));
  write_identity(good);
  EXPECT_EQ(open()->incarnation(), 2U);
}

TEST_F(StateFolderTest, RefusesANewerOne) {
  open();
  write_identity("spate agent identity 2\nwho knows\n");
  EXPECT_THAT(refusal().message, HasSubstr("newer spate (version 2"));
}

TEST_F(StateFolderTest, RefusesASpoolWithoutAnIdentity) {
  std::string spool;
  spool = open()->spool_path();
  std::ofstream(spool) << "x";
  fs::remove(path + "/identity");
  EXPECT_THAT(refusal().message, HasSubstr("a spool but no identity"));
}

TEST_F(StateFolderTest, AgentsOfOneNameFindAFolderEach) {
  setenv("XDG_STATE_HOME", folder.path().c_str(), 1);
  unsetenv("STATE_DIRECTORY");
  auto one = StateFolder::open_default("pc");
  auto two = StateFolder::open_default("pc");
  ASSERT_TRUE(one && two);
  EXPECT_EQ((*one)->path(), folder / "spate/agents/pc");
  EXPECT_EQ((*two)->path(), folder / "spate/agents/pc-2");
  EXPECT_NE((*one)->agent_id(), (*two)->agent_id());
  EXPECT_EQ(StateFolder::default_path("../x/y"), folder / "spate/agents/_.._x_y");
  unsetenv("XDG_STATE_HOME");
}

TEST_F(StateFolderTest, MemoryOfAnAgentWhoseFolderIsGoneIsRemoved) {
  std::string memory;
  memory = open()->memory_folder();
  if (memory.empty()) GTEST_SKIP() << "there is no tmpfs here";
  std::ofstream(memory + "/something") << "x";
  fs::remove_all(path);
  path = folder / "another";
  const auto state = open();
  EXPECT_FALSE(fs::exists(memory));
  EXPECT_TRUE(fs::exists(state->memory_folder()));
  fs::remove_all(state->memory_folder());
}

}  // namespace
}  // namespace spate::agent
