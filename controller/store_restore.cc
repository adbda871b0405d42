#include "controller/store_restore.h"

#include <algorithm>

#include "controller/store_reader.h"

namespace spate::controller {
namespace {

std::vector<Mark> load_marks(SQLite::Database& db, const std::string& run) {
  std::vector<Mark> marks;
  SQLite::Statement row(db, "SELECT agent, incarnation, seq FROM marks WHERE run = ?");
  row.bind(1, run);
  while (row.executeStep()) {
    marks.push_back({run, row.getColumn(0).getString(),
                     static_cast<std::uint64_t>(row.getColumn(1).getInt64()),
                     static_cast<std::uint64_t>(row.getColumn(2).getInt64())});
  }
  return marks;
}

}  // namespace

Result<Restored::Run> load_unfinished(const std::string& path, const std::string& id) {
  Restored::Run run;
  auto aggregate = load_run(path, id, [&run](const Record& record) {
    run.finished_requests += record.finished();
    if (record.drain) return;
    Duration& covered = run.covered_to[record.key.agent];
    covered = std::max(covered, record.start + record.length);
  });
  if (!aggregate) return aggregate.error();
  run.aggregate = std::move(*aggregate);
  run.info = run.aggregate->info();
  try {
    SQLite::Database db(path, SQLite::OPEN_READONLY, 5000);
    run.marks = load_marks(db, id);
    SQLite::Statement row(
        db,
        "SELECT duplicates, (SELECT bytes FROM descriptors WHERE run = id) FROM runs WHERE id = ?");
    row.bind(1, id);
    if (row.executeStep()) {
      run.duplicates = static_cast<std::uint64_t>(row.getColumn(0).getInt64());
      run.descriptor_set = row.getColumn(1).getString();
    }
    return run;
  } catch (const SQLite::Exception& e) {
    return Error{ErrorCode::io, e.what()};
  }
}

std::vector<Restored::Closed> load_closed(SQLite::Database& db, std::size_t most) {
  std::vector<Restored::Closed> closed;
  SQLite::Statement ids(
      db,
      "SELECT id FROM runs WHERE state = 'finished' AND EXISTS (SELECT 1 FROM "
      "agents WHERE run = id) ORDER BY submitted_wall_ms DESC, rowid DESC LIMIT ?");
  ids.bind(1, static_cast<std::int64_t>(most));
  while (ids.executeStep()) {
    Restored::Closed one;
    one.run = ids.getColumn(0).getString();
    SQLite::Statement agent(
        db,
        "SELECT name, agent_id, max(incarnation, coalesce((SELECT max(d.incarnation) FROM"
        " dead_incarnations d WHERE d.run = a.run AND d.agent = a.name), 0))"
        " FROM agents a WHERE run = ?");
    agent.bind(1, one.run);
    while (agent.executeStep()) {
      one.agents[agent.getColumn(0).getString()] = {
          agent.getColumn(1).getString(),
          static_cast<std::uint64_t>(agent.getColumn(2).getInt64())};
    }
    one.marks = load_marks(db, one.run);
    closed.push_back(std::move(one));
  }
  std::reverse(closed.begin(), closed.end());
  return closed;
}

}  // namespace spate::controller
