#include "controller/store_reader.h"

#include <SQLiteCpp/SQLiteCpp.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "common/patch_json.h"
#include "common/plan_json.h"
#include "controller/record_row.h"

namespace spate::controller {
namespace {

std::uint64_t count_at(SQLite::Statement& row, int column) {
  return static_cast<std::uint64_t>(row.getColumn(column).getInt64());
}

Error no_such_run(const std::string& id) {
  return {ErrorCode::not_found, "no run " + id + " in the store: `spate status` lists them"};
}

Result<RunState> state_of(const std::string& text) {
  for (const RunState s : {RunState::preparing, RunState::armed, RunState::running,
                           RunState::draining, RunState::finished}) {
    if (name(s) == text) return s;
  }
  return Error{ErrorCode::io, "unknown state " + text};
}

Result<RunEnd> end_of(const std::string& text) {
  for (const RunEnd e : {RunEnd::crashed, RunEnd::completed, RunEnd::stopped, RunEnd::failed}) {
    if (name(e) == text) return e;
  }
  return Error{ErrorCode::io, "unknown end " + text};
}

void load_agents(SQLite::Database& db, RunInfo& info) {
  SQLite::Statement row(
      db,
      "SELECT name, incarnation, connections_requested, connections_established, start_skew_ns,"
      " clock_bound_ns, last_seq, lost_reason, lost_at_ns, agent_id FROM agents WHERE run = ?"
      " ORDER BY position");
  row.bind(1, info.id);
  while (row.executeStep()) {
    RunAgent agent;
    agent.name = row.getColumn(0).getString();
    agent.incarnation = count_at(row, 1);
    agent.connections_requested = count_at(row, 2);
    agent.connections_established = count_at(row, 3);
    if (!row.getColumn(4).isNull()) agent.start_skew_ns = row.getColumn(4).getInt64();
    agent.clock_bound_ns = row.getColumn(5).getInt64();
    if (!row.getColumn(6).isNull()) agent.last_seq = count_at(row, 6);
    agent.lost_reason = row.getColumn(7).getString();
    if (!row.getColumn(8).isNull()) agent.lost_at_ns = row.getColumn(8).getInt64();
    agent.agent_id = row.getColumn(9).getString();
    info.agents.push_back(std::move(agent));
  }
}

void load_dead(SQLite::Database& db, RunInfo& info) {
  SQLite::Statement row(
      db,
      "SELECT agent, incarnation, last_seq, cause FROM dead_incarnations WHERE run = ?"
      " ORDER BY agent, incarnation");
  row.bind(1, info.id);
  while (row.executeStep()) {
    const std::string agent = row.getColumn(0).getString();
    DeadIncarnation dead{count_at(row, 1), {}, row.getColumn(3).getString()};
    if (!row.getColumn(2).isNull()) dead.last_seq = count_at(row, 2);
    for (RunAgent& a : info.agents)
      if (a.name == agent) a.dead.push_back(dead);
  }
}

Result<void> load_changes(SQLite::Database& db, RunInfo& info) {
  SQLite::Statement row(db,
                        "SELECT epoch, at_ns, who, reason, what, canary, wall_ms, parts, absent,"
                        " guard_ns FROM changes"
                        " WHERE run = ? ORDER BY epoch");
  row.bind(1, info.id);
  while (row.executeStep()) {
    Change change;
    change.epoch = static_cast<std::uint32_t>(count_at(row, 0));
    change.at = Duration(row.getColumn(1).getInt64());
    change.who = row.getColumn(2).getString();
    change.reason = row.getColumn(3).getString();
    change.what = row.getColumn(4).getString();
    change.canary = row.getColumn(5).getInt() != 0;
    change.wall_ms = row.getColumn(6).getInt64();
    for (const auto& part : nlohmann::json::parse(row.getColumn(7).getString())) {
      auto patch = patch_from_json(part.at("patch").dump());
      if (!patch)
        return patch.error().with_context("its change to epoch " + std::to_string(change.epoch));
      change.parts.push_back(
          {part.at("agents").get<std::vector<std::uint32_t>>(), *std::move(patch)});
    }
    if (!row.getColumn(8).isNull())
      change.absent =
          nlohmann::json::parse(row.getColumn(8).getString()).get<std::vector<std::uint32_t>>();
    change.guard = Duration(row.getColumn(9).getInt64());
    info.changes.push_back(std::move(change));
  }
  return {};
}

Result<RunInfo> load_info(SQLite::Database& db, const std::string& id) {
  SQLite::Statement row(
      db,
      "SELECT state, \"end\", end_reason, submitted_wall_ms, started_wall_ms, length_ns, text,"
      " overrides, resolved, start_boot_ns, boot_id FROM runs JOIN plans ON plans.run = runs.id "
      "WHERE id = ?");
  row.bind(1, id);
  if (!row.executeStep()) return no_such_run(id);
  RunInfo info;
  info.id = id;
  const auto state = state_of(row.getColumn(0).getString());
  const auto end = end_of(row.getColumn(1).getString());
  if (!state) return state.error();
  if (!end) return end.error();
  info.state = *state;
  info.end = *end;
  info.end_reason = row.getColumn(2).getString();
  info.submitted_wall_ms = row.getColumn(3).getInt64();
  info.started_wall_ms = row.getColumn(4).getInt64();
  info.length = Duration(row.getColumn(5).getInt64());
  info.plan_text = row.getColumn(6).getString();
  if (!row.getColumn(9).isNull()) info.start_boot_ns = row.getColumn(9).getInt64();
  info.boot_id = row.getColumn(10).getString();
  std::istringstream overrides(row.getColumn(7).getString());
  for (std::string line; std::getline(overrides, line);) info.overrides.push_back(line);
  PlanOrProblems plan = parse_plan(row.getColumn(8).getString());
  if (!plan.ok())
    return Error{ErrorCode::io,
                 "its plan cannot be read: " + plan.problems.front().to_string("plan")};
  info.plan = std::move(plan.plan);
  load_agents(db, info);
  load_dead(db, info);
  if (const auto changes = load_changes(db, info); !changes) return changes.error();
  return info;
}

Result<void> load_records(SQLite::Database& db, Aggregate& run,
                          const std::function<void(const Record&)>& each) {
  // One agent's process after the other, each in the order of its seq: an index gives this order,
  // and nothing is held but the record at hand.
  SQLite::Statement row(db,
                        "SELECT wire, agent, incarnation, seq FROM all_records WHERE run = ?"
                        " ORDER BY agent, incarnation, seq");
  row.bind(1, run.info().id);
  while (row.executeStep()) {
    const SQLite::Column wire = row.getColumn(0);
    const auto record = unpack_record(std::string_view(static_cast<const char*>(wire.getBlob()),
                                                       static_cast<std::size_t>(wire.getBytes())));
    if (!record) {
      return record.error().with_context("record " + std::to_string(count_at(row, 3)) +
                                         " of agent " + row.getColumn(1).getString());
    }
    run.add(*record);
    if (each) each(*record);
  }
  return {};
}

void load_samples(SQLite::Database& db, Aggregate& run) {
  SQLite::Statement row(
      db,
      "SELECT at_ns, boot_id, allocator, received, completed, refused, address_space_bytes,"
      " rss_bytes, cpu_ns, threads, open_connections, agents FROM target_samples WHERE run = ?"
      " ORDER BY id");
  row.bind(1, run.info().id);
  while (row.executeStep()) {
    TargetSample s;
    s.at_ns = row.getColumn(0).getInt64();
    s.boot_id = row.getColumn(1).getString();
    s.allocator = row.getColumn(2).getString();
    s.received = count_at(row, 3);
    s.completed = count_at(row, 4);
    s.refused = count_at(row, 5);
    s.address_space_bytes = count_at(row, 6);
    s.rss_bytes = count_at(row, 7);
    s.cpu_ns = count_at(row, 8);
    s.threads = static_cast<std::uint32_t>(count_at(row, 9));
    s.open_connections = count_at(row, 10);
    for (const auto& a : nlohmann::json::parse(row.getColumn(11).getString())) {
      s.agents.push_back({a.at(0).get<std::string>(), a.at(1).get<std::uint64_t>(),
                          a.at(2).get<std::uint64_t>(), a.at(3).get<std::uint64_t>(),
                          a.at(4).get<std::uint64_t>()});
    }
    run.add(s);
  }
}

void load_events(SQLite::Database& db, Aggregate& run) {
  SQLite::Statement row(db, "SELECT at_ns, severity, text FROM events WHERE run = ? ORDER BY id");
  row.bind(1, run.info().id);
  while (row.executeStep()) {
    RunEvent event;
    event.at_ns = row.getColumn(0).getInt64();
    const std::string severity = row.getColumn(1).getString();
    event.severity = severity == "error"     ? RunEvent::Severity::error
                     : severity == "warning" ? RunEvent::Severity::warning
                                             : RunEvent::Severity::info;
    event.text = row.getColumn(2).getString();
    run.add(event);
  }
}

}  // namespace

Result<std::vector<StoredRun>> list_runs(const std::string& path, const std::string& id) {
  try {
    SQLite::Database db(path, SQLite::OPEN_READONLY, 5000);
    SQLite::Statement row(
        db,
        "SELECT id, plan, state, \"end\", end_reason, verdict, submitted_wall_ms, started_wall_ms,"
        " length_ns, requests, (SELECT count(*) FROM agents WHERE run = id) FROM runs"
        " WHERE ?1 = '' OR id = ?1 ORDER BY submitted_wall_ms DESC, rowid DESC LIMIT ?2");
    row.bind(1, id);
    row.bind(2, kMaxListedRuns);
    std::vector<StoredRun> runs;
    while (row.executeStep()) {
      StoredRun run;
      run.id = row.getColumn(0).getString();
      run.plan = row.getColumn(1).getString();
      run.state = row.getColumn(2).getString();
      run.end = row.getColumn(3).getString();
      run.reason = row.getColumn(4).getString();
      run.verdict = row.getColumn(5).getString();
      run.submitted_wall_ms = row.getColumn(6).getInt64();
      run.started_wall_ms = row.getColumn(7).getInt64();
      run.length = Duration(row.getColumn(8).getInt64());
      run.requests = count_at(row, 9);
      run.agents = static_cast<std::uint32_t>(count_at(row, 10));
      runs.push_back(std::move(run));
    }
    if (!id.empty() && runs.empty()) return no_such_run(id);
    return runs;
  } catch (const std::exception& e) {
    return Error{ErrorCode::io, "cannot read the store " + path + ": " + e.what()};
  }
}

Result<RunInfo> load_run_info(const std::string& path, const std::string& id) {
  try {
    SQLite::Database db(path, SQLite::OPEN_READONLY, 5000);
    SQLite::Transaction view(db);
    return load_info(db, id);
  } catch (const std::exception& e) {
    return Error{ErrorCode::io,
                 "cannot read run " + id + " from the store " + path + ": " + e.what()};
  }
}

Result<std::unique_ptr<Aggregate>> load_run(const std::string& path, const std::string& id,
                                            const std::function<void(const Record&)>& each) {
  try {
    SQLite::Database db(path, SQLite::OPEN_READONLY, 5000);
    // One view of all tables.
    SQLite::Transaction view(db);
    auto info = load_info(db, id);
    if (!info) {
      return info.error().code == ErrorCode::not_found ? info.error()
                                                       : info.error().with_context("run " + id);
    }
    auto run = std::make_unique<Aggregate>(*info);
    if (auto records = load_records(db, *run, each); !records)
      return records.error().with_context("run " + id);
    load_samples(db, *run);
    load_events(db, *run);
    SQLite::Statement duplicates(db, "SELECT duplicates FROM runs WHERE id = ?");
    duplicates.bind(1, id);
    if (duplicates.executeStep()) run->add_duplicates(count_at(duplicates, 0));
    return run;
  } catch (const std::exception& e) {
    return Error{ErrorCode::io,
                 "cannot read run " + id + " from the store " + path + ": " + e.what()};
  }
}

}  // namespace spate::controller
