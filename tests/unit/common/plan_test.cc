#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "common/plan_json.h"
#include "common/random.h"
#include "common/threshold.h"
#include "common/timeline.h"

namespace spate {
namespace {

using namespace std::chrono_literals;

const std::filesystem::path kPlans = SPATE_PLANS_DIR;

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  EXPECT_FALSE(text.str().empty()) << path;
  return text.str();
}

std::string listed(const std::vector<PlanProblem>& problems) {
  std::string out;
  for (const PlanProblem& p : problems) out += p.to_string("plan") + "\n";
  return out;
}

Plan good_plan(std::string_view text, const std::vector<std::string>& overrides = {}) {
  const PlanOrProblems result = parse_plan(text, overrides);
  EXPECT_TRUE(result.ok()) << listed(result.problems);
  return result.plan;
}

// The one mistake in `text`.
PlanProblem mistake(std::string_view text, const std::vector<std::string>& overrides = {}) {
  const PlanOrProblems result = parse_plan(text, overrides);
  EXPECT_EQ(result.problems.size(), 1u) << text << "\n" << listed(result.problems);
  return result.problems.empty() ? PlanProblem() : result.problems[0];
}

// A small plan with more keys at its end.
std::string plan_with(const std::string& more) {
  return R"({"name": "n", "target": "local")" + more + "}";
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

TEST(Plan, HasDefaults) {
  const Plan plan = good_plan(plan_with(""));
  EXPECT_EQ(plan.name, "n");
  EXPECT_TRUE(plan.target.is_local());
  EXPECT_EQ(plan.call.method, "spate.target.v1.Calls/Call");
  EXPECT_EQ(plan.call.message_json, R"({"call":{"echo":1}})");
  EXPECT_EQ(plan.call.timeout, 10s);
  EXPECT_EQ(plan.agents, 1u);
  EXPECT_EQ(plan.threads, 1u);
  EXPECT_EQ(plan.interval, 1s);
  EXPECT_EQ(plan.drain, 5s);
  EXPECT_EQ(plan.phases, (std::vector<Phase>{{"flood", 30s, true, {1, 0, 0ns}}}));
}

TEST(Plan, IsReadWhole) {
  const Plan plan = good_plan(R"({
    "$schema": "plan.schema.json",   // for editors
    "name": "whole", "description": "all keys",
    "target": {"url": "grpcs://[fd00::1]:7000", "probe": "server:7001"},
    "call": {"method": "a.b.C/D", "message": {"z": 1, "a": ["{{seq}}", 1.5, null, true]}, "proto": "x.proto",
             "timeout": "2s", "metadata": {"x-key": "value", "b": ""}},
    "load": {"model": "closed", "connections": 100, "calls_per_loop": 50, "pause": "1s"},
    "agents": {"count": 13, "threads": 16},
    "interval": "500ms", "drain": "0s", "seed": 18446744073709551615,
    "phases": [{"name": "warm-up", "for": "10s", "measured": false},
               {"for": "1m", "load": {"connections": 7}},
               {"name": "no-pause", "for": "1h", "load": {"calls_per_loop": 0}}],
    "thresholds": {"errors": ["rate<0.1%"], "latency": ["p(99)<50ms", "max < 1s"], "requests": ["rate>1000/s"]}
  })");
  EXPECT_EQ(plan.target, (Target{"grpcs://[fd00::1]:7000", "server:7001"}));
  EXPECT_EQ(plan.call.message_json, R"({"z":1,"a":["{{seq}}",1.5,null,true]})") << "order is kept";
  EXPECT_EQ(plan.call.proto, "x.proto");
  EXPECT_EQ(plan.call.metadata,
            (std::vector<std::pair<std::string, std::string>>{{"x-key", "value"}, {"b", ""}}));
  EXPECT_EQ(plan.agents, 13u);
  EXPECT_EQ(plan.threads, 16u);
  EXPECT_EQ(plan.seed, ~std::uint64_t{0});
  ASSERT_EQ(plan.phases.size(), 3u);
  EXPECT_EQ(plan.phases[0], (Phase{"warm-up", 10s, false, {100, 50, 1s}}));
  EXPECT_EQ(plan.phases[1], (Phase{"phase-2", 60s, true, {7, 50, 1s}}));
  EXPECT_EQ(plan.phases[2].load, (Load{100, 0, 0s}));
  ASSERT_EQ(plan.thresholds.size(), 4u);
  EXPECT_EQ(plan.thresholds[0].text, "latency p(99)<50ms");
  EXPECT_EQ(plan.thresholds[1].text, "latency max<1s");
  EXPECT_DOUBLE_EQ(plan.thresholds[2].bound, 0.001);
  EXPECT_DOUBLE_EQ(plan.thresholds[3].bound, 1000);
}

TEST(Plan, TakesANumberForTheAgents) {
  EXPECT_EQ(good_plan(plan_with(R"(, "agents": 5)")).agents, 5u);
}

TEST(Plan, ComesBackFromItsJson) {
  std::vector<std::string> texts = {
      plan_with(""), read_file(kPlans / "r3-connections.jsonc"),
      plan_with(R"(, "call": {"metadata": {"a": "\"q\""}, "descriptor_set": "x.pb"},
                                              "load": {"calls_per_loop": 5}, "drain": "1.5s",
                                              "thresholds": {"send_lag": ["mean<1us"], "errors": ["rate<1%"]})")};
  for (const std::string& text : texts) {
    const Plan plan = good_plan(text);
    EXPECT_EQ(good_plan(to_json(plan)), plan) << to_json(plan);
  }
}

TEST(Plan, EveryShippedPlanIsGood) {
  int plans = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kPlans)) {
    if (entry.path().extension() != ".jsonc") continue;
    ++plans;
    const Plan plan = good_plan(read_file(entry.path()));
    EXPECT_EQ(plan.name, entry.path().stem().string());
  }
  EXPECT_GE(plans, 3);
}

TEST(Plan, ShippedPlansAreTheReferenceTests) {
  const Plan r1 = good_plan(read_file(kPlans / "r1-allocator-flood.jsonc"));
  EXPECT_EQ(r1.agents, 13u);
  EXPECT_EQ(r1.threads, 16u);
  EXPECT_EQ(r1.phases.back().load, (Load{3900, 50, 1s}));
  EXPECT_EQ(r1.measured_length(), 30min);
  const Plan r3 = good_plan(read_file(kPlans / "r3-connections.jsonc"));
  std::vector<std::uint64_t> steps;
  for (const Phase& p : r3.phases) {
    if (p.measured) steps.push_back(p.load.connections);
  }
  EXPECT_EQ(steps, (std::vector<std::uint64_t>{13, 130, 650, 1300, 3900}));
  EXPECT_EQ(planned_timeline(r3, 0)->epochs.size(), 5u) << "a step and its settling are one epoch";
  const Plan demo = good_plan(read_file(kPlans / "demo.jsonc"));
  EXPECT_EQ(demo.max_connections(), 1200u);
  EXPECT_EQ(demo.agents, 4u);
  EXPECT_EQ(demo.length(), 30s);
  const Plan r6 = good_plan(read_file(kPlans / "r6-soak.jsonc"));
  EXPECT_EQ(r6.agents, 10u);
  EXPECT_EQ(r6.length(), 1'261'336s);
  const Timeline soak = planned_timeline(r6, 0).value();
  EXPECT_EQ(soak.epochs.size(), 15u) << "one for each day begun";
  for (const Epoch& epoch : soak.epochs) {
    std::set<std::uint32_t> sets;
    for (const AgentShare& share : epoch.shares) {
      EXPECT_EQ(share.parameters.load.connections, 200u);
      sets.insert(share.set);
    }
    EXPECT_EQ(sets.size(), 10u) << "all in use at once";
  }
}

TEST(Plan, TellsAllMistakesAtOnceWithPathAndLine) {
  const PlanOrProblems result = parse_plan(R"({
  // a comment
  "name": "Bad Name",
  "target": {
    "url": "http://10.0.0.1:7000",  /* another
    comment */ "prob": "10.0.0.1:7001"
  },
  "call": {"method": "Call",
           "timeout": 30},
  "load": {"model": "open", "conections": 10,
           "pause": "1s"},
  "agents": {"count": 0},
  "interval": "1ms",
  "phases": [
    {"name": "a", "for": "10s"},
    {
      "name": "a",
      "for": 5
    },
    7,
    {"name": "b"}
  ],
  "thresholds": {"latency": [
    "p99<5ms",
    "p(99)<5ms",
    "p(101)<5ms"]},
  "phase": []
})");
  std::vector<std::pair<int, std::string>> found;
  for (const PlanProblem& p : result.problems) found.emplace_back(p.line, p.path);
  const std::vector<std::pair<int, std::string>> expected = {{3, "/name"},
                                                             {5, "/target/url"},
                                                             {6, "/target/prob"},
                                                             {8, "/call/method"},
                                                             {9, "/call/timeout"},
                                                             {10, "/load/conections"},
                                                             {10, "/load/model"},
                                                             {11, "/load/pause"},
                                                             {12, "/agents/count"},
                                                             {13, "/interval"},
                                                             {17, "/phases/1/name"},
                                                             {18, "/phases/1/for"},
                                                             {20, "/phases/2"},
                                                             {21, "/phases/3/for"},
                                                             {24, "/thresholds/latency/0"},
                                                             {26, "/thresholds/latency/2"},
                                                             {27, "/phase"}};
  EXPECT_EQ(found, expected) << listed(result.problems);
  EXPECT_TRUE(contains(listed(result.problems),
                       "plan:10: /load/conections: unknown key \"conections\"; did you mean "
                       "\"connections\"?"))
      << listed(result.problems);
  EXPECT_TRUE(contains(listed(result.problems), "not available yet; use \"closed\""));
}

TEST(Plan, NamesWhatIsMissing) {
  const PlanOrProblems result = parse_plan("{}");
  EXPECT_EQ(listed(result.problems),
            "plan: /name: missing; a plan needs a name, for example \"my-flood\"\n"
            "plan: /target: missing; write \"local\" for the bundled target, or {\"url\": "
            "\"grpc://HOST:PORT\"}\n");
  EXPECT_EQ(mistake(R"({"name": "n", "target": {"url": "grpc://h:1"}})").path, "/call");
  EXPECT_EQ(mistake(R"({"name": "n", "target": {"url": "grpc://h:1"}, "call": {}})").path,
            "/call/method");
  EXPECT_EQ(mistake(R"({"name": "n", "target": {}})").path, "/target/url");
}

struct Case {
  std::string more;  // after name and target
  std::string path;
  std::string part;  // of the text
};

TEST(Plan, ExplainsEachMistake) {
  const std::vector<Case> cases = {
      {R"(, "name": "m")", "/name", "twice"},
      {R"(, "call": {"message": {"a": {"b": 1, "b": 2}}})", "/call/message/a/b", "twice"},
      {R"(, "interval": 1)", "/interval", "write \"1s\""},
      {R"(, "interval": "1")", "/interval", "write \"1s\""},
      {R"(, "interval": true)", "/interval", "true or false"},
      {R"(, "interval": "2h")", "/interval", "from 100ms to 1h"},
      {R"(, "drain": "-1s")", "/drain", "negative"},
      {R"(, "drain": null)", "/drain", "null"},
      {R"(, "seed": -1)", "/seed", "-1"},
      {R"(, "seed": 1.5)", "/seed", "whole number"},
      {R"(, "description": 5)", "/description", "double quotes"},
      {R"(, "load": [])", "/load", "a list"},
      {R"(, "load": {"connections": "10"})", "/load/connections", "without quotes"},
      {R"(, "load": {"connections": 0})", "/load/connections", "from 1 to 10000000"},
      {R"(, "load": {"connections": 10000001})", "/load/connections", "10000001"},
      {R"(, "load": {"model": "half-open"})", "/load/model", "closed"},
      {R"(, "load": {"pause": "1s"})", "/load/pause", "needs calls_per_loop"},
      {R"(, "load": {"pause": "1s", "calls_per_loop": 0})", "/load/pause", "needs calls_per_loop"},
      {R"(, "phases": [{"for": "1s", "load": {"pause": "1s"}}])", "/phases/0/load/pause",
       "needs calls_per_loop"},
      {R"(, "phases": [{"for": "1s", "load": {"model": "closed"}}])", "/phases/0/load/model",
       "belongs to \"load\""},
      {R"(, "agents": {"threads": 257})", "/agents/threads", "from 1 to 256"},
      {R"(, "agents": 0)", "/agents", "from 1 to 1000"},
      {R"(, "agents": "4")", "/agents", "object"},
      {R"(, "connections": 5)", "/connections", "belongs to \"load\""},
      {R"(, "zzzzzzzz": 5)", "/zzzzzzzz", "known here: $schema name"},
      {R"(, "phases": [])", "/phases", "list of 1 to 1000"},
      {R"(, "phases": {})", "/phases", "list of 1 to 1000"},
      {R"(, "phases": [{"for": "1s", "measured": false}])", "/phases", "no phase is measured"},
      {R"(, "phases": [{"for": "1s", "measured": "no"}])", "/phases/0/measured", "true or false"},
      {R"(, "phases": [{"for": "0s"}])", "/phases/0/for", "from 10ms"},
      {R"(, "phases": [{"for": "300d"}, {"for": "300d"}])", "/phases", "400 days"},
      {R"(, "call": {"method": "/a.B/C"})", "/call/method", "package.Service/Method"},
      {R"(, "call": {"method": "a.B/C/D"})", "/call/method", "package.Service/Method"},
      {R"(, "call": {"method": "a..B/C"})", "/call/method", "package.Service/Method"},
      {R"(, "call": {"message": "text"})", "/call/message", "JSON object"},
      {R"(, "call": {"proto": "a", "descriptor_set": "b"})", "/call/descriptor_set", "keep one"},
      {R"(, "call": {"timeout": "0s"})", "/call/timeout", "from 1ms"},
      {R"(, "call": {"metadata": {"Upper": "x"}})", "/call/metadata/Upper", "lower-case"},
      {R"(, "call": {"metadata": {"grpc-timeout": "x"}})", "/call/metadata/grpc-timeout",
       "reserved"},
      {R"(, "call": {"metadata": {":path": "x"}})", "/call/metadata/:path", "reserved"},
      {R"(, "call": {"metadata": {"spate-run": "x"}})", "/call/metadata/spate-run", "reserved"},
      {R"(, "call": {"metadata": {"te": "x"}})", "/call/metadata/te", "reserved"},
      {R"(, "call": {"metadata": {"content-type": "x"}})", "/call/metadata/content-type",
       "reserved"},
      {R"(, "call": {"metadata": {"x-bin": "x"}})", "/call/metadata/x-bin", "not available yet"},
      {R"(, "call": {"metadata": {"x": "a\nb"}})", "/call/metadata/x", "printable"},
      {R"(, "call": {"metadata": {"x": 5}})", "/call/metadata/x", "double quotes"},
      {R"(, "call": {"metadata": []})", "/call/metadata", "object of texts"},
      {R"(, "thresholds": {"latency": "p(99)<5ms"})", "/thresholds/latency", "list"},
      {R"(, "thresholds": {"latency": ["p(99)=5ms"]})", "/thresholds/latency/0", "no < or >"},
      {R"(, "thresholds": {"latency": ["p(99)<=5ms"]})", "/thresholds/latency/0", "<= and >="},
      {R"(, "thresholds": {"latency": ["p(99)<5"]})", "/thresholds/latency/0", "no unit"},
      {R"(, "thresholds": {"latency": ["median<5ms"]})", "/thresholds/latency/0", "p(99)<50ms"},
      {R"(, "thresholds": {"errors": ["rate<5s"]})", "/thresholds/errors/0", "rate<0.1%"},
      {R"(, "thresholds": {"errors": ["max<5%"]})", "/thresholds/errors/0", "only rate"},
      {R"(, "thresholds": {"errors": ["rate<101%"]})", "/thresholds/errors/0", "100 %"},
      {R"(, "thresholds": {"requests": ["rate>5"]})", "/thresholds/requests/0", "\"5/s\""},
      {R"(, "thresholds": {"latencies": []})", "/thresholds/latencies", "\"latency\""},
  };
  for (const Case& c : cases) {
    const PlanProblem p = mistake(plan_with(c.more));
    EXPECT_EQ(p.path, c.path) << c.more << "\n" << p.text;
    EXPECT_TRUE(contains(p.text, c.part)) << c.more << "\n" << p.text;
    EXPECT_EQ(p.line, 1) << c.more;
  }
  EXPECT_TRUE(contains(mistake(R"({"name": "n", "target": "remote"})").text, "\"local\""));
  EXPECT_EQ(mistake(R"({"name": "n", "target": {"url": "local", "probe": "h:1"}})").path,
            "/target/probe");
  EXPECT_EQ(
      mistake(
          R"({"name": "n", "target": {"url": "grpc://h:1", "probe": "h"}, "call": {"method": "a/b"}})")
          .path,
      "/target/probe");
  EXPECT_EQ(mistake("[]").path, "/");
}

TEST(Plan, ExplainsWhatIsNotJson) {
  const std::vector<std::pair<std::string, std::pair<int, std::string>>> cases = {
      {"", {1, "closing bracket or quote missing"}},
      {"{\n\"name\": \"n\",\n}", {3, "comma too many"}},
      {"{\n\"name\": \"n\"\n\"target\": \"local\"}", {3, "comma missing"}},
      {"{\n\"name\": nothing}", {2, "double quotes"}},
      {"{\n\"phases\": [1, 2,\n]}", {3, "comma too many"}},
      {"{\"name\": \"n\"", {1, "closing bracket"}},
      {"{} {}", {1, "unexpected"}},
      {"{\"a\": 1e999}", {1, "number"}},
      {"{\"a\": \"\xff\"}", {1, "UTF-8"}},
      {"{\n/* open", {2, "comment"}},
      {"{\"a\": " + std::string(300, '[') + std::string(300, ']') + "}", {1, "nested deeper"}},
  };
  for (const auto& [text, expected] : cases) {
    const PlanProblem p = mistake(text);
    EXPECT_EQ(p.line, expected.first) << text << "\n" << p.text;
    EXPECT_TRUE(contains(p.text, expected.second)) << text << "\n" << p.text;
  }
  EXPECT_TRUE(contains(mistake("{\"name\": \"n\",,}").text, "column 14"));
}

TEST(Plan, CountsLinesRightAlsoAfterNumbersAndWithCarriageReturns) {
  const std::string unix_text =
      "{\"name\": \"n\",\n\"target\": \"local\",\n\"seed\": -1\n,\n\"load\": "
      "{\n\"connections\":\n0\n},\n\"phases\": [\n1\n,\n2]}";
  std::string dos_text;
  for (const char c : unix_text) dos_text += c == '\n' ? "\r\n" : std::string(1, c);
  for (const std::string& text : {unix_text, dos_text, "\xef\xbb\xbf" + unix_text}) {
    std::vector<int> lines;
    for (const PlanProblem& p : parse_plan(text).problems) lines.push_back(p.line);
    // seed, connections (the key's line), phases 0 and 1 (each no object, and without a length)
    EXPECT_EQ(lines, (std::vector<int>{3, 6, 10, 12})) << listed(parse_plan(text).problems);
  }
}

TEST(PlanOverride, ChangesValues) {
  const std::string text =
      R"({"name": "n", "target": "local", "agents": 2, "load": {"connections": 5},
                               "phases": [{"for": "1s"}, {"for": "2s"}]})";
  const Plan plan =
      good_plan(text, {"load.connections=400", "phases.1.for=20s", "agents.threads=3",
                       "interval=500ms", "target.url=grpc://127.0.0.1:7000", "call.method=a.B/C",
                       "call.message={\"x\": [1, \"{{seq}}\"]}", "call.metadata.x-a=b c",
                       "thresholds.latency=[\"max<1s\"]", "phases.0.measured=false"});
  EXPECT_EQ(plan.phases[1].load.connections, 400u);
  EXPECT_EQ(plan.phases[1].length, 20s);
  EXPECT_FALSE(plan.phases[0].measured);
  EXPECT_EQ(plan.agents, 2u);
  EXPECT_EQ(plan.threads, 3u);
  EXPECT_EQ(plan.interval, 500ms);
  EXPECT_EQ(plan.target.url, "grpc://127.0.0.1:7000");
  EXPECT_EQ(plan.call.message_json, R"({"x":[1,"{{seq}}"]})");
  EXPECT_EQ(plan.call.metadata[0].second, "b c");
  EXPECT_EQ(plan.thresholds.size(), 1u);
  EXPECT_EQ(
      good_plan(text, {"load.connections=4", "load.connections=6"}).phases[0].load.connections, 6u);
}

TEST(PlanOverride, IsNamedInItsMistake) {
  const std::string text = plan_with("");
  const std::vector<Case> cases = {
      {"load.conections=4", "--set load.conections", "did you mean \"connections\""},
      {"laod.connections=4", "--set laod.connections", "did you mean \"load\""},
      {"load.connections=four", "--set load.connections", "whole number"},
      {"interval=5", "--set interval", "\"5s\""},
      {"load=5", "--set load", "object"},
      {"load={\"x\": 1}", "--set load", "unknown key \"x\""},
      {"name.x=5", "--set name.x", "inside text"},
      {"phases.0.for=5s", "--set phases.0.for", "list"},
      {"load..pause=5s", "--set load..pause", "empty part"},
      {"load.connections", "--set load.connections", "path=value"},
      {"=5", "--set ", "path=value"},
  };
  for (const Case& c : cases) {
    const PlanProblem p = mistake(text, {c.more});
    EXPECT_EQ(p.path, c.path) << c.more;
    EXPECT_EQ(p.line, 0);
    EXPECT_TRUE(contains(p.text, c.part)) << c.more << "\n" << p.text;
    EXPECT_EQ(p.to_string("plan"), p.path + ": " + p.text);
  }
  const PlanProblem outside =
      mistake(plan_with(R"(, "phases": [{"for": "1s"}])"), {"phases.1.for=5s"});
  EXPECT_TRUE(contains(outside.text, "entries are 0 to 0")) << outside.text;
}

TEST(Plan, SurvivesMutatedText) {
  Random random(4);
  const std::string good = read_file(kPlans / "demo.jsonc");
  for (int round = 0; round < 3'000; ++round) {
    std::string text = good;
    for (std::int64_t i = random.between(1, 5); i > 0; --i) {
      const auto at =
          static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(text.size()) - 1));
      if (random.unit() < 0.5) {
        text[at] = "{}[]\",:/*0a\n\xff"[random.between(0, 12)];
      } else {
        text.erase(at, static_cast<std::size_t>(random.between(1, 20)));
      }
      if (text.empty()) text = " ";
    }
    const PlanOrProblems result = parse_plan(text);
    if (result.ok()) {
      EXPECT_EQ(good_plan(to_json(result.plan)), result.plan) << "round " << round;
    }
  }
}

TEST(Plan, ScalesItsMeasuredPhases) {
  Plan plan;
  plan.phases = {{"w", 10s, false, {}}, {"a", 20s, true, {}}, {"b", 40s, true, {}}};
  plan.set_measured_length(10s);
  EXPECT_EQ(plan.phases[0].length, 10s);
  EXPECT_EQ(plan.measured_length(), 10s);
  EXPECT_EQ(plan.phases[1].length, Duration(3'333'333'333));
  EXPECT_EQ(plan.length(), 20s);
}

TEST(Plan, HasAnEpochForEachChangeOfTheLoad) {
  Plan plan;
  plan.phases = {{"w", 1s, false, {5, 0, 0s}},
                 {"a", 1s, true, {5, 0, 0s}},
                 {"b", 1s, true, {6, 0, 0s}},
                 {"c", 1s, true, {5, 0, 0s}}};
  const Timeline t = planned_timeline(plan, 0).value();
  ASSERT_EQ(t.epochs.size(), 3u);
  EXPECT_EQ(t.epochs[2].number, 3u);
  EXPECT_EQ(t.epochs[1].connections(), 6u);
  ASSERT_EQ(t.segments.size(), 4u);
  EXPECT_EQ(t.segments[1].epoch, 1u);
  EXPECT_EQ(t.segments[3].epoch, 3u);
  EXPECT_EQ(plan.max_connections(), 6u);
}

TEST(Nearest, FindsTypingMistakes) {
  const std::vector<std::string> known = {"connections", "calls_per_loop", "pause", "for"};
  EXPECT_EQ(nearest("conections", known), "connections");
  EXPECT_EQ(nearest("cnonections", known), "connections");
  EXPECT_EQ(nearest("fro", known), "for");
  EXPECT_EQ(nearest("puase", known), "pause");
  EXPECT_EQ(nearest("xyz", known), "");
  EXPECT_EQ(nearest("", known), "");
}

TEST(Thresholds, AreReadWithTheirUnits) {
  const auto p = parse_threshold(Threshold::Metric::latency, " p(99.9) < 1.5ms ").value();
  EXPECT_DOUBLE_EQ(p.quantile, 0.999);
  EXPECT_DOUBLE_EQ(p.bound, 1.5e6);
  EXPECT_EQ(p.comparison, Threshold::Comparison::less);
  EXPECT_EQ(p.text, "latency p(99.9)<1.5ms");
  const auto r = parse_threshold(Threshold::Metric::requests, "rate>60/m").value();
  EXPECT_DOUBLE_EQ(r.bound, 1);
  EXPECT_EQ(r.comparison, Threshold::Comparison::greater);
  EXPECT_DOUBLE_EQ(parse_threshold(Threshold::Metric::errors, "rate<0.01")->bound, 0.01);
}

// Collects "load.connections", "phases[].name" … from a schema.
void collect_keys(const nlohmann::json& schema, const std::string& path,
                  std::set<std::string>& out) {
  for (const auto& alternative : schema.value("oneOf", nlohmann::json::array()))
    collect_keys(alternative, path, out);
  if (schema.contains("items")) collect_keys(schema["items"], path + "[]", out);
  const nlohmann::json properties = schema.value("properties", nlohmann::json::object());
  for (const auto& [key, child] : properties.items()) {
    const std::string child_path = path.empty() ? key : path + "." + key;
    out.insert(child_path);
    EXPECT_TRUE(child.contains("description")) << child_path;
    collect_keys(child, child_path, out);
  }
}

TEST(PlanSchema, HasExactlyTheKnownKeys) {
  const auto schema = nlohmann::json::parse(read_file(kPlans / "plan.schema.json"));
  std::set<std::string> in_schema;
  collect_keys(schema, "", in_schema);
  const std::vector<std::string> known = known_plan_keys();
  EXPECT_EQ(in_schema, std::set<std::string>(known.begin(), known.end()));
}

}  // namespace
TEST(PlanJson, CountsARotationsChangeOversByTheLengthThatIsAskedFor) {
  const std::string plan = R"({"name": "p", "target": "local", "interval": "1s",
    "phases": [{"name": "soak", "for": "14d"}],
    "rotate": {"every": "24s", "sets": [{"name": "a"}, {"name": "b"}]}})";
  EXPECT_FALSE(parse_plan(plan).ok());
  const PlanOrProblems short_one = parse_plan(plan, {}, 6min);
  ASSERT_TRUE(short_one.ok()) << short_one.problems.front().text;
  EXPECT_EQ(short_one.plan.length(), 6min);
}

}  // namespace spate
