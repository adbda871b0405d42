#include <gtest/gtest.h>

#include "common/patch_json.h"

namespace spate {
namespace {

using namespace std::chrono_literals;

std::string listed(const std::vector<PlanProblem>& problems) {
  std::string out;
  for (const PlanProblem& p : problems) out += p.to_string("") + "\n";
  return out;
}

ParameterPatch good_patch(const std::vector<std::string>& assignments) {
  const PatchOrProblems result = parse_patch(assignments);
  EXPECT_TRUE(result.ok()) << listed(result.problems);
  return result.patch;
}

std::string mistake(const std::vector<std::string>& assignments) {
  const PatchOrProblems result = parse_patch(assignments);
  EXPECT_EQ(result.problems.size(), 1u) << listed(result.problems);
  return result.problems.empty() ? "" : result.problems[0].to_string("");
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

ParameterPatch everything() {
  return good_patch({"target.url=grpcs://10.0.0.1:7443", "call.method=a.B/C",
                     R"(call.message={"x": {"y": [1, "{{seq}}"]}})", "call.timeout=2s",
                     "call.compress=true", R"(call.metadata={"x-key": "secret"})",
                     "load.connections=4000", "load.calls_per_loop=50", "load.pause=1s",
                     "agents.threads=4", "paused=false"});
}

TEST(Patch, ReadsEveryParameter) {
  const ParameterPatch p = everything();
  EXPECT_EQ(p.target_url, "grpcs://10.0.0.1:7443");
  EXPECT_EQ(p.method, "a.B/C");
  EXPECT_EQ(p.message_json, R"({"x":{"y":[1,"{{seq}}"]}})");
  EXPECT_EQ(p.timeout, Duration(2s));
  EXPECT_EQ(p.compress, true);
  EXPECT_EQ(p.metadata, (Metadata{{"x-key", "secret"}}));
  EXPECT_EQ(p.connections, 4000u);
  EXPECT_EQ(p.calls_per_loop, 50u);
  EXPECT_EQ(p.pause, Duration(1s));
  EXPECT_EQ(p.threads, 4u);
  EXPECT_EQ(p.paused, false);
}

TEST(Patch, LeavesTheRestAlone) {
  const ParameterPatch p = good_patch({"call.compress=true"});
  ParameterPatch only;
  only.compress = true;
  EXPECT_EQ(p, only);
}

TEST(Patch, OfNoLoopsHasNoPause) {
  EXPECT_EQ(good_patch({"load.calls_per_loop=0"}).pause, Duration::zero());
  EXPECT_EQ(good_patch({"load.pause=2s"}).pause, Duration(2s)) << "the loops may be there already";
  EXPECT_TRUE(contains(mistake({"load.pause=2s", "load.calls_per_loop=0"}),
                       "load.pause: a pause needs calls_per_loop"));
}

TEST(Patch, SaysWhatIsWrong) {
  const struct {
    std::vector<std::string> assignments;
    const char* says;
  } kCases[] = {
      {{}, "nothing to change: write path=value"},
      {{"load.connections"}, "\"load.connections\": write path=value"},
      {{"=5"}, "write path=value"},
      {{"load.conections=5"}, "load.conections: unknown; did you mean \"load.connections\"?"},
      {{"zebra=5"}, "zebra: unknown; what may: target.url call.method"},
      {{"load.connections=0"}, "must be a whole number from 1 to 10000000, not 0"},
      {{"load.connections=many"}, "load.connections: must be a whole number"},
      {{"load.connections=5", "load.connections=6"}, "load.connections: is given twice"},
      {{"call.timeout=10"}, "a duration needs a unit; for seconds write \"10s\""},
      {{"call.timeout=2h"}, "must be from 1ms to 1h, not 2h"},
      {{"call.compress=yes"}, "call.compress: must be true or false, not text"},
      {{"call.message=hello"}, "call.message: must be a JSON object"},
      {{"call.message={\"a\":1,\"a\":2}"}, "this key is there twice"},
      {{"call.message.a=1"}, "call.message.a: is a part of call.message, which is changed as a"},
      {{"call.metadata={\"TE\":\"x\"}"}, "metadata key \"TE\""},
      {{"call.method=Calls"}, "call.method: \"Calls\" is not a method"},
      {{"target.url=local"}, "target.url: "},
      {{"target.url=http://a:1"}, "target.url: "},
      {{"agents.threads=300"}, "from 1 to 256, not 300"},
      {{"paused=1"}, "paused: must be true or false, not a number"},
      {{"call=5"}, "call: is no parameter itself; write for example call.method"},
  };
  for (const auto& c : kCases) {
    const std::string text = mistake(c.assignments);
    EXPECT_TRUE(contains(text, c.says)) << text << "\nexpected: " << c.says;
  }
}

TEST(Patch, NamesWhatMayNotChangeDuringARun) {
  for (const char* assignment :
       {"interval=2s", "agents.count=5", "phases.0.for=10s", "phases=[]", "seed=4", "call.proto=x",
        "thresholds.latency=[]", "target.probe=a:1", "load.model=closed", "name=other"}) {
    const std::string text = mistake({assignment});
    EXPECT_TRUE(contains(text, "may not change during a run; what may: target.url")) << text;
    EXPECT_TRUE(contains(text, "load.connections")) << text;
  }
}

TEST(Patch, ListsAllMistakesAtOnce) {
  const PatchOrProblems result =
      parse_patch({"load.connections=0", "interval=1s", "call.compress=true", "x=1"});
  ASSERT_EQ(result.problems.size(), 3u) << listed(result.problems);
  EXPECT_EQ(result.problems[0].path, "load.connections");
  EXPECT_EQ(result.problems[2].path, "x");
}

TEST(Patch, IsShownWithoutSecretsAndInOneLine) {
  EXPECT_EQ(describe(good_patch({"load.connections=4000", "call.compress=true"})),
            "call.compress=true load.connections=4000");
  const std::string all = describe(everything());
  EXPECT_TRUE(contains(all, "call.metadata={x-key}")) << all;
  EXPECT_FALSE(contains(all, "secret")) << all;
  ParameterPatch big;
  big.message_json = "{\"x\":\"" + std::string(5'000, 'a') + "\"}";
  EXPECT_LT(describe(big).size(), 200u);
  EXPECT_TRUE(contains(describe(big), "(5,008 bytes)"));
}

TEST(Patch, ComesBackFromItsJson) {
  for (const ParameterPatch& p : {ParameterPatch(), everything(), good_patch({"paused=true"})})
    EXPECT_EQ(patch_from_json(to_json(p)).value(), p) << to_json(p);
  EXPECT_EQ(to_json(good_patch({"call.compress=true"})), R"({"call":{"compress":true}})");
  EXPECT_FALSE(patch_from_json("{").has_value());
  EXPECT_FALSE(patch_from_json(R"({"call":{"compress":3}})").has_value());
}

TEST(Parameters, ComeBackFromTheirJson) {
  Parameters p = patched(Parameters(), everything());
  p.call.proto = "a.proto";
  p.load.connections = 0;  // an agent's share may be empty
  EXPECT_EQ(parameters_from_json(to_json(p)).value(), p) << to_json(p);
  EXPECT_FALSE(parameters_from_json(R"({"call":{"compress":true}})").has_value());
}

}  // namespace
}  // namespace spate
