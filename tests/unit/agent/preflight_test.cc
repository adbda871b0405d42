#include "agent/preflight.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include "agent/process.h"

namespace spate::agent {
namespace {

using namespace std::chrono_literals;

IpAddress ip(const char* text) { return *IpAddress::parse(text); }

// A world in which all is well, with numbers to change.
struct World {
  std::uint64_t descriptors = 20'000;
  PortRange ports{32768, 60999};
  Result<std::vector<IpAddress>> addresses = std::vector<IpAddress>{ip("127.0.0.1")};
  std::vector<IpAddress> silent;
  std::vector<IpAddress> probed;
  int resolved = 0;
  std::optional<Error> compile_error;
  std::optional<Error> probe_error;
  PreflightRules rules;
  PreflightRequest request;

  World() {
    Prepare& p = request.prepare;
    p.run = "run-1";
    Parameters first;
    first.target_url = "grpc://target:7000";
    first.call.method = "a.B/C";
    first.call.metadata = {{"x-mine", "1"}};
    first.call.timeout = 10s;
    first.threads = 4;
    first.load.connections = 100;
    Parameters second = first;
    second.load.connections = 300;
    p.timeline.epochs = {{1, first}, {2, second}};
    p.timeline.segments = {{0s, 5s, 0, 1, false}, {5s, 5s, 1, 2, false}};
    p.interval = 1s;
    request.agent = "pc-1";
    request.incarnation = 77;
  }

  PreflightResult check() { return agent::check(request, rules, world()); }
  PreflightResult check(const PreflightResult& run, const Parameters& parameters) {
    ChangeRequest change;
    change.run = request;
    change.assignments = {run.assignment};
    change.change = {"run-1", 3, 7s, {{{3, parameters}}, {{7s, 3s, 1, 3, false}}}};
    return agent::check(change, rules, world());
  }

  PreflightWorld world() {
    PreflightWorld w;
    w.descriptors = [this] { return descriptors; };
    w.local_ports = [this] { return ports; };
    w.resolve = [this](const std::string&) {
      ++resolved;
      return addresses;
    };
    w.compile = [this](const std::string&, const std::string&,
                       const std::string&) -> Result<std::shared_ptr<const MessageTemplate>> {
      if (compile_error) return *compile_error;
      return std::shared_ptr<const MessageTemplate>();
    };
    w.tls = [](const Endpoint&) -> Result<std::shared_ptr<const TlsContext>> {
      return invalid("no files");
    };
    w.probe = [this](const PreparedCall& call, Duration) -> Result<void> {
      const IpAddress address = call.route->address;
      probed.push_back(address);
      if (std::find(silent.begin(), silent.end(), address) != silent.end())
        return Error{ErrorCode::unavailable, address.to_string() + ": connection refused"};
      if (probe_error) return *probe_error;
      return {};
    };
    return w;
  }

  Problem only_problem() {
    const PreflightResult r = check();
    EXPECT_EQ(r.problems.size(), 1U);
    EXPECT_FALSE(r.assignment);
    return r.problems.empty() ? Problem{} : r.problems[0];
  }
};

TEST(Preflight, GivesTheWorkersTheirAssignment) {
  World w;
  const PreflightResult r = w.check();
  ASSERT_TRUE(r.problems.empty()) << r.problems[0].text;
  const Assignment& a = *r.assignment;
  EXPECT_EQ(a.run, "run-1");
  const PreparedCall& call = *a.epochs.at(0).call;
  EXPECT_EQ(call.method_path, "/a.B/C");
  EXPECT_EQ(call.route->address, ip("127.0.0.1"));
  EXPECT_EQ(call.route->target, (Endpoint{"target", 7000}));
  EXPECT_EQ(a.workers, 4U);
  const std::vector<std::pair<std::string, std::string>> metadata = {{"x-mine", "1"},
                                                                     {"spate-run", "run-1"},
                                                                     {"spate-agent", "pc-1"},
                                                                     {"spate-incarnation", "77"}};
  EXPECT_EQ(call.metadata, metadata);
  EXPECT_EQ(a.epochs.at(1).call, a.epochs.at(0).call) << "the same calls";
}

TEST(Preflight, NeedsDescriptorsForTheLargestEpoch) {
  World w;
  EXPECT_EQ(descriptors_needed(w.request.prepare), 300U + 4 * 8 + 64);
  w.descriptors = 395;
  const Problem p = w.only_problem();
  EXPECT_EQ(p.what, "descriptors");
  EXPECT_EQ(p.needed, 396U);
  EXPECT_EQ(p.available, 395U);
  EXPECT_TRUE(w.probed.empty()) << "a target is not touched for a run that cannot be";
  w.descriptors = 396;
  EXPECT_TRUE(w.check().problems.empty());
}

TEST(Preflight, NeedsALocalPortForEachConnection) {
  World w;
  w.ports = {40000, 40298};
  const Problem p = w.only_problem();
  EXPECT_EQ(p.what, "ports");
  EXPECT_EQ(p.needed, 300U);
  EXPECT_EQ(p.available, 299U);
  w.ports = {40000, 40299};
  EXPECT_TRUE(w.check().problems.empty());
}

TEST(Preflight, KeepsTheOwnersCap) {
  World w;
  w.rules.max_connections = 299;
  EXPECT_EQ(w.only_problem().what, "connections");
  w.rules.max_connections = 300;
  EXPECT_TRUE(w.check().problems.empty());
}

TEST(Preflight, HandsTheOwnersCapOnRequestsToTheWorkers) {
  World w;
  EXPECT_EQ(w.check().assignment->max_rate_per_s, 0);
  w.rules.max_rate_per_s = 500;
  EXPECT_EQ(w.check().assignment->max_rate_per_s, 500);
}

TEST(Preflight, RefusesATargetThatIsNotOnTheListAndNamesTheFlag) {
  World w;
  w.addresses = std::vector<IpAddress>{ip("10.0.0.100")};
  const Problem p = w.only_problem();
  EXPECT_EQ(p.what, "allow");
  EXPECT_NE(p.text.find("10.0.0.100"), std::string::npos);
  EXPECT_NE(p.text.find("127.0.0.0/8"), std::string::npos) << p.text;
  EXPECT_NE(p.text.find("--allow 10.0.0.100:7000"), std::string::npos) << p.text;
  EXPECT_TRUE(w.probed.empty());
  w.rules.allow = *AllowList::parse({"10.0.0.0/24:7000"});
  EXPECT_TRUE(w.check().problems.empty());
}

TEST(Preflight, NeverTakesALinkLocalTargetWhateverTheListSays) {
  World w;
  w.rules.allow = *AllowList::parse({"0.0.0.0/0:*"});
  w.addresses = std::vector<IpAddress>{ip("169.254.169.254")};
  const Problem p = w.only_problem();
  EXPECT_EQ(p.what, "allow");
  EXPECT_NE(p.text.find("never a target"), std::string::npos);
}

TEST(Preflight, UsesTheFirstAddressThatIsAllowedAndAnswers) {
  World w;
  w.addresses =
      std::vector<IpAddress>{ip("10.0.0.100"), ip("127.0.0.2"), ip("127.0.0.3"), ip("127.0.0.4")};
  w.silent = {ip("127.0.0.2")};
  const PreflightResult r = w.check();
  ASSERT_TRUE(r.assignment);
  EXPECT_EQ(r.assignment->epochs.at(0).call->route->address, ip("127.0.0.3"));
  EXPECT_EQ(w.probed, (std::vector<IpAddress>{ip("127.0.0.2"), ip("127.0.0.3")}));
}

TEST(Preflight, NamesEveryAddressThatDidNotAnswer) {
  World w;
  w.addresses = std::vector<IpAddress>{ip("127.0.0.2"), ip("127.0.0.3")};
  w.silent = *w.addresses;
  const Problem p = w.only_problem();
  EXPECT_EQ(p.what, "target");
  EXPECT_NE(p.text.find("127.0.0.2: connection refused; 127.0.0.3: connection refused"),
            std::string::npos)
      << p.text;
}

TEST(Preflight, TellsAnUnknownMethodFromASilentTarget) {
  World w;
  w.probe_error = Error{ErrorCode::not_found, "UNIMPLEMENTED"};
  EXPECT_EQ(w.only_problem().what, "method");
}

TEST(Preflight, SaysWhatIsWrongWithTheMessage) {
  World w;
  w.compile_error = Error{ErrorCode::invalid, "/call: unknown field"};
  EXPECT_EQ(w.only_problem().what, "message");
  w.compile_error = Error{ErrorCode::not_found, "no such method"};
  EXPECT_EQ(w.only_problem().what, "method");
}

TEST(Preflight, SaysThatANameIsUnknown) {
  World w;
  w.addresses = Error{ErrorCode::not_found, "Name or service not known"};
  const Problem p = w.only_problem();
  EXPECT_EQ(p.what, "target");
  EXPECT_NE(p.text.find("target: Name or service"), std::string::npos);
}

TEST(Preflight, ListsEverythingAtOnce) {
  World w;
  w.descriptors = 10;
  w.ports = {1, 2};
  w.addresses = std::vector<IpAddress>{ip("10.0.0.100")};
  w.compile_error = Error{ErrorCode::invalid, "no"};
  w.request.prepare.timeline.epochs[0].parameters.target_url = "grpcs://target:7000";
  EXPECT_EQ(w.check().problems.size(), 5U);
}

TEST(Preflight, RefusesAShareThatMakesNoSense) {
  const std::vector<std::function<void(Prepare&)>> mistakes = {
      [](Prepare& p) { p.timeline.epochs[0].parameters.threads = 0; },
      [](Prepare& p) { p.interval = 0s; },
      [](Prepare& p) { p.timeline.epochs[1].parameters.call.timeout = -1s; },
      [](Prepare& p) { p.timeline.epochs.clear(); },
      [](Prepare& p) { p.timeline.segments.clear(); },
      [](Prepare& p) { p.timeline.segments[1].offset = 6s; },
      [](Prepare& p) { p.timeline.segments[1].epoch = 9; },
      [](Prepare& p) { p.drain = -1s; }};
  for (const auto& make : mistakes) {
    World w;
    make(w.request.prepare);
    EXPECT_EQ(w.only_problem().what, "plan");
  }
}

TEST(Preflight, PreparesEachTargetAndMethodOfAPlanOnce) {
  World w;
  Prepare& p = w.request.prepare;
  Parameters other = p.timeline.epochs[0].parameters;
  other.call.compress = true;
  other.call.message_json = "{}";
  p.timeline.epochs.push_back({3, other});
  other.call.method = "a.B/D";
  other.threads = 6;
  p.timeline.epochs.push_back({4, other});
  other.target_url = "grpc://target:7001";
  p.timeline.epochs.push_back({5, other});
  const PreflightResult r = w.check();
  ASSERT_TRUE(r.assignment) << r.problems[0].text;
  const auto& e = r.assignment->epochs;
  EXPECT_EQ(e[0].call, e[1].call);
  EXPECT_NE(e[2].call, e[0].call);
  EXPECT_EQ(e[2].call->route, e[0].call->route) << "connections stay";
  EXPECT_EQ(e[3].call->route, e[0].call->route);
  EXPECT_NE(e[4].call->route, e[0].call->route);
  EXPECT_EQ(w.probed.size(), 3U) << "C, D, and D of the other port";
  EXPECT_EQ(w.resolved, 2);
  EXPECT_EQ(r.assignment->workers, 6U);
  EXPECT_EQ(r.assignment->numbered_connections, 300U);
  EXPECT_EQ(descriptors_needed(p), 300U + 6 * 8 + 64);
}

TEST(Preflight, SharesWithTheRunWhatAChangeLeaves) {
  World w;
  const PreflightResult run = w.check();
  Parameters p = w.request.prepare.timeline.epochs[0].parameters;
  p.load.connections = 200;
  p.threads = 5;
  w.probed.clear();
  w.resolved = 0;
  const PreflightResult load = w.check(run, p);
  ASSERT_TRUE(load.assignment) << load.problems[0].text;
  EXPECT_EQ(load.assignment->epochs.at(0).call, run.assignment->epochs.at(0).call);
  EXPECT_EQ(load.assignment->segments.front().offset, 7s);
  EXPECT_EQ(load.assignment->workers, 4U) << "numbers go on as they began";
  EXPECT_TRUE(w.probed.empty());

  p.call.timeout = 3s;
  const PreflightResult timeout = w.check(run, p);
  ASSERT_TRUE(timeout.assignment);
  EXPECT_EQ(timeout.assignment->epochs.at(0).call->timeout, 3s);
  EXPECT_EQ(timeout.assignment->epochs.at(0).call->route, run.assignment->epochs.at(0).call->route);
  EXPECT_EQ(w.resolved, 0) << "the address that was chosen stays";
}

TEST(Preflight, ChecksAChangeAsItChecksARun) {
  World w;
  const PreflightResult run = w.check();
  const Parameters good = w.request.prepare.timeline.epochs[0].parameters;
  const auto what = [&](auto change) {
    Parameters p = good;
    change(p);
    const PreflightResult r = w.check(run, p);
    return r.problems.size() == 1 ? r.problems[0].what : "?";
  };
  w.rules.max_connections = 400;
  w.ports = {40000, 40449};
  EXPECT_EQ(what([](Parameters& p) { p.load.connections = 401; }), "connections");
  w.rules.max_connections.reset();
  EXPECT_EQ(what([](Parameters& p) { p.load.connections = 451; }), "ports");
  w.descriptors = 400;
  EXPECT_EQ(what([](Parameters& p) { p.load.connections = 390; }), "descriptors");
  w.descriptors = 20'000;
  EXPECT_EQ(what([](Parameters& p) { p.threads = 0; }), "plan");
  EXPECT_EQ(what([](Parameters& p) { p.target_url = "http://x:1"; }), "target");
  w.addresses = std::vector<IpAddress>{ip("10.0.0.7")};
  EXPECT_EQ(what([](Parameters& p) { p.target_url = "grpc://elsewhere:7000"; }), "allow");
  w.compile_error = Error{ErrorCode::invalid, "/call: unknown field"};
  EXPECT_EQ(what([](Parameters& p) { p.call.message_json = "{\"x\":1}"; }), "message");
  w.compile_error.reset();
  w.probe_error = Error{ErrorCode::not_found, "UNIMPLEMENTED"};
  EXPECT_EQ(what([](Parameters& p) { p.call.method = "a.B/X"; }), "method");

  ChangeRequest late;
  late.run = w.request;
  late.assignments = {run.assignment};
  late.change = {"run-1", 3, 7s, {{{3, good}}, {{8s, 2s, 1, 3, false}}}};
  EXPECT_EQ(agent::check(late, w.rules, w.world()).problems.at(0).what, "plan");
}

TEST(Process, ReadsPlausibleNumbers) {
  EXPECT_GE(raise_descriptor_limit(), 64U);
  EXPECT_GT(local_port_range().size(), 0U);
  EXPECT_FALSE(host_name().empty());
  EXPECT_GE(cpu_count(), 1U);
  EXPECT_GT(rss_bytes(), 100'000U);
  EXPECT_FALSE(boot_id().empty());
  EXPECT_NE(new_nonce(), 0U);
  EXPECT_NE(new_nonce(), new_nonce());
}

TEST(Process, ResolvesLiteralsAndLocalhostWithoutAskingAnybody) {
  EXPECT_EQ(*resolve("127.0.0.9"), std::vector<IpAddress>{ip("127.0.0.9")});
  EXPECT_EQ(resolve("localhost")->front(), ip("127.0.0.1"));
  EXPECT_FALSE(resolve("no-such-host.invalid"));
}

}  // namespace
}  // namespace spate::agent
