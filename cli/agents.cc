#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/exit_code.h"
#include "cli/session.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "common/units.h"
#include "proto/operator.pb.h"

namespace spate::cli {
namespace {

struct Flags {
  SessionFlags session;
  std::string output = "table";
};

std::string table(const ops::v1::ListAgentsReply& reply) {
  Table out({"agent", "host", "state", "run", "version", ">cpus", ">descriptors", ">last seen",
             ">clock"});
  for (const auto& agent : reply.agents())
    out.add({agent.name(), agent.host(), agent.state(), agent.run().empty() ? "-" : agent.run(),
             agent.version(), std::to_string(agent.cpus()), format_count(agent.max_descriptors()),
             fmt::format("{:.1f}s ago", agent.last_seen_s()),
             agent.clock_bound_ns() > 0 ? "+-" + format_latency(agent.clock_bound_ns()) : "-"});
  std::string text = out.to_string();
  for (const auto& agent : reply.agents())
    if (!agent.note().empty()) text += agent.note() + "\n";
  return text;
}

std::string json(const ops::v1::ListAgentsReply& reply) {
  auto agents = nlohmann::ordered_json::array();
  for (const auto& agent : reply.agents())
    agents.push_back({{"agent", agent.name()},
                      {"host", agent.host()},
                      {"state", agent.state()},
                      {"run", agent.run()},
                      {"version", agent.version()},
                      {"cpus", agent.cpus()},
                      {"max_descriptors", agent.max_descriptors()},
                      {"note", agent.note()},
                      {"last_seen_s", agent.last_seen_s()},
                      {"clock_offset_ns", agent.clock_offset_ns()},
                      {"clock_bound_ns", agent.clock_bound_ns()}});
  return nlohmann::ordered_json{{"agents_version", 1}, {"agents", agents}}.dump(2) + "\n";
}

int list_agents(const Flags& flags) {
  auto session = Session::open(flags.session);
  if (!session) return fail(session.error());
  const auto reply = session->client().list_agents();
  if (!reply) return fail(reply.error());
  if (flags.output == "json") {
    std::fputs(json(*reply).c_str(), stdout);
  } else if (reply->agents().empty()) {
    std::fprintf(stderr, "no agents; start some with `spate-agent --controller HOST:PORT`\n");
  } else {
    std::fputs(table(*reply).c_str(), stdout);
  }
  return kPassed;
}

}  // namespace

void add_agents(CLI::App& app, int& exit_code) {
  CLI::App* verb =
      app.add_subcommand("agents", "The agents that the controller knows, and what they are doing");
  const auto flags = std::make_shared<Flags>();
  verb->add_option("-o,--output", flags->output, "table or json")
      ->check(CLI::IsMember({"table", "json"}));
  add_session_flags(*verb, flags->session);
  verb->callback([flags, &exit_code] { exit_code = list_agents(*flags); });
}

}  // namespace spate::cli
