#pragma once

// The store's tables. kApplicationId marks the file as ours, user_version is the schema's version:
// a store of another program, or of a newer spate, is refused; one of an older spate is brought up
// to date when it is opened (kMigrations). 64-bit counts and incarnations are
// stored as SQLite's signed 64-bit integers, bit for bit; only an incarnation can show as negative.

#include <array>
#include <cstdint>

namespace spate::controller {

inline constexpr std::int32_t kApplicationId = 0x53504154;  // "SPAT"
inline constexpr int kSchemaVersion = 3;

// Of a new store. A merged record takes 2 to 3 KB: of pages of 4 KB a third would stay empty.
inline constexpr const char* kPageSize = "PRAGMA page_size = 16384";

inline constexpr const char* kPragmas = R"(
  PRAGMA journal_mode = WAL;
  PRAGMA synchronous = FULL;
  PRAGMA busy_timeout = 5000;
  PRAGMA foreign_keys = ON;
  PRAGMA trusted_schema = OFF;
  PRAGMA cell_size_check = ON;
  PRAGMA journal_size_limit = 67108864;
)";

// Records by resolution: as they came, and merged with age (rollup.h). All have the same columns.
inline constexpr std::array<const char*, 4> kRecordTables = {"records", "rollup_1", "rollup_2",
                                                             "rollup_3"};
inline constexpr const char* kRecordColumns = R"( (
  id INTEGER PRIMARY KEY,
  run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  agent TEXT NOT NULL,
  incarnation INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  phase INTEGER NOT NULL,
  drain INTEGER NOT NULL,
  start_ns INTEGER NOT NULL,
  length_ns INTEGER NOT NULL,
  scheduled INTEGER NOT NULL,
  sent INTEGER NOT NULL,
  ok INTEGER NOT NULL,
  failed INTEGER NOT NULL,
  in_flight_begin INTEGER NOT NULL,
  in_flight_end INTEGER NOT NULL,
  connections_established INTEGER NOT NULL,
  bytes_sent INTEGER NOT NULL,
  bytes_received INTEGER NOT NULL,
  wire BLOB NOT NULL,                    -- spate.record.v1.Record with its histograms, packed
  first_seq INTEGER NOT NULL DEFAULT 0,  -- covers first_seq to seq; 0: seq alone
  guard INTEGER NOT NULL DEFAULT 0,      -- in a guard band: not measured
  recovered INTEGER NOT NULL DEFAULT 0,  -- left by a process that died
  UNIQUE (run, agent, incarnation, seq)
) STRICT;
)";
// For reading: every record of a run, of whatever resolution.
inline constexpr const char* kAllRecords = R"(
CREATE VIEW IF NOT EXISTS all_records AS
  SELECT * FROM records UNION ALL SELECT * FROM rollup_1 UNION ALL SELECT * FROM rollup_2
  UNION ALL SELECT * FROM rollup_3;
)";

inline constexpr const char* kSchema = R"(
CREATE TABLE cluster (              -- one row
  id TEXT NOT NULL,                 -- made once, with the store
  term INTEGER NOT NULL,            -- raised by every controller that opens it
  alive_wall_ms INTEGER NOT NULL    -- when the last one was seen alive; 0: never
) STRICT;
INSERT INTO cluster (id, term, alive_wall_ms) VALUES (lower(hex(randomblob(16))), 0, 0);
CREATE TABLE runs (
  id TEXT PRIMARY KEY,
  plan TEXT NOT NULL,
  state TEXT NOT NULL,
  "end" TEXT NOT NULL,              -- crashed from the first moment; a good end replaces it
  end_reason TEXT NOT NULL,
  submitted_wall_ms INTEGER NOT NULL,
  started_wall_ms INTEGER NOT NULL, -- 0: never started
  length_ns INTEGER NOT NULL,
  duplicates INTEGER NOT NULL,
  verdict TEXT NOT NULL,            -- empty while live
  requests INTEGER NOT NULL,        -- finished, at the end of the run
  start_boot_ns INTEGER,            -- T by CLOCK_BOOTTIME of the boot below; null: not fixed
  boot_id TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE TABLE descriptors (
  run TEXT PRIMARY KEY REFERENCES runs(id) ON DELETE CASCADE,
  bytes BLOB NOT NULL               -- google.protobuf.FileDescriptorSet
) STRICT;
CREATE TABLE plans (
  run TEXT PRIMARY KEY REFERENCES runs(id) ON DELETE CASCADE,
  text TEXT NOT NULL,               -- as submitted
  overrides TEXT NOT NULL,          -- one per line
  resolved TEXT NOT NULL            -- as run: target and seed filled in, defaults written out
) STRICT;
CREATE TABLE epochs (
  run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  number INTEGER NOT NULL,
  connections INTEGER NOT NULL,
  calls_per_loop INTEGER NOT NULL,
  pause_ns INTEGER NOT NULL,
  PRIMARY KEY (run, number)
) STRICT;
CREATE TABLE changes (              -- of parameters during the run; kept for ever
  run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  epoch INTEGER NOT NULL,           -- the first one it made; in the order of acceptance
  at_ns INTEGER NOT NULL,           -- since T
  who TEXT NOT NULL,
  reason TEXT NOT NULL,
  what TEXT NOT NULL,               -- as ordered
  canary INTEGER NOT NULL,
  wall_ms INTEGER NOT NULL,         -- when it was accepted
  parts TEXT NOT NULL,              -- JSON: [{"agents": [position, …], "patch": {…}}, …]
  absent TEXT,                      -- JSON: positions whose connections are the others'
  guard_ns INTEGER NOT NULL DEFAULT 0,  -- of the guard band after it
  PRIMARY KEY (run, epoch)
) STRICT;
CREATE TABLE parameters (           -- of epoch_shares, each once
  id INTEGER PRIMARY KEY,
  run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  json TEXT NOT NULL,               -- its connections are in epoch_shares
  UNIQUE (run, json)
) STRICT;
CREATE TABLE epoch_shares (         -- for reading; what counts is the plan and its changes
  run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  epoch INTEGER NOT NULL,
  position INTEGER NOT NULL,        -- of the agent
  connections INTEGER NOT NULL,
  rotation_set INTEGER,             -- null: no rotation
  parameters INTEGER NOT NULL REFERENCES parameters(id) ON DELETE CASCADE,
  PRIMARY KEY (run, epoch, position)
) STRICT;
CREATE TABLE agents (
  run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  position INTEGER NOT NULL,        -- order of the shares
  name TEXT NOT NULL,
  incarnation INTEGER NOT NULL,
  connections_requested INTEGER NOT NULL,
  connections_established INTEGER NOT NULL,
  start_skew_ns INTEGER,
  clock_bound_ns INTEGER NOT NULL,
  last_seq INTEGER,                 -- null: it never finished
  lost_reason TEXT NOT NULL,
  lost_at_ns INTEGER,
  agent_id TEXT NOT NULL DEFAULT '', -- who it is; the name is a label
  PRIMARY KEY (run, position)
) STRICT;
CREATE TABLE dead_incarnations (    -- processes of agents that died in the run
  run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  agent TEXT NOT NULL,
  incarnation INTEGER NOT NULL,
  last_seq INTEGER,                 -- null: not known yet
  cause TEXT NOT NULL,
  PRIMARY KEY (run, agent, incarnation)
) STRICT;
CREATE TABLE marks (
  run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  agent TEXT NOT NULL,
  incarnation INTEGER NOT NULL,
  seq INTEGER NOT NULL,             -- everything up to it is in records
  PRIMARY KEY (run, agent, incarnation)
) STRICT;
CREATE TABLE target_samples (
  id INTEGER PRIMARY KEY,
  run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  at_ns INTEGER NOT NULL,
  boot_id TEXT NOT NULL,
  allocator TEXT NOT NULL,
  received INTEGER NOT NULL,
  completed INTEGER NOT NULL,
  refused INTEGER NOT NULL,
  address_space_bytes INTEGER NOT NULL,
  rss_bytes INTEGER NOT NULL,
  cpu_ns INTEGER NOT NULL,
  threads INTEGER NOT NULL,
  open_connections INTEGER NOT NULL,
  agents TEXT NOT NULL              -- JSON: [[agent, incarnation, received, completed, refused], …]
) STRICT;
CREATE INDEX target_samples_run ON target_samples(run);
CREATE TABLE events (
  id INTEGER PRIMARY KEY,
  run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  at_ns INTEGER NOT NULL,
  severity TEXT NOT NULL,
  text TEXT NOT NULL
) STRICT;
CREATE INDEX events_run ON events(run);
)";

// kMigrations[v - 1] makes a store of version v one of version v + 1, in one transaction.
inline constexpr std::array<const char*, kSchemaVersion - 1> kMigrations = {
    R"(
CREATE TABLE cluster (
  id TEXT NOT NULL,
  term INTEGER NOT NULL,
  alive_wall_ms INTEGER NOT NULL
) STRICT;
INSERT INTO cluster (id, term, alive_wall_ms) VALUES (lower(hex(randomblob(16))), 0, 0);
ALTER TABLE runs ADD COLUMN start_boot_ns INTEGER;
ALTER TABLE runs ADD COLUMN boot_id TEXT NOT NULL DEFAULT '';
CREATE TABLE descriptors (
  run TEXT PRIMARY KEY REFERENCES runs(id) ON DELETE CASCADE,
  bytes BLOB NOT NULL
) STRICT;
ALTER TABLE agents ADD COLUMN agent_id TEXT NOT NULL DEFAULT '';
ALTER TABLE records ADD COLUMN first_seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE records ADD COLUMN guard INTEGER NOT NULL DEFAULT 0;
ALTER TABLE records ADD COLUMN recovered INTEGER NOT NULL DEFAULT 0;
CREATE TABLE dead_incarnations (
  run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  agent TEXT NOT NULL,
  incarnation INTEGER NOT NULL,
  last_seq INTEGER,
  cause TEXT NOT NULL,
  PRIMARY KEY (run, agent, incarnation)
) STRICT;
CREATE TABLE changes (
  run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  epoch INTEGER NOT NULL,
  at_ns INTEGER NOT NULL,
  who TEXT NOT NULL,
  reason TEXT NOT NULL,
  what TEXT NOT NULL,
  canary INTEGER NOT NULL,
  wall_ms INTEGER NOT NULL,
  parts TEXT NOT NULL,
  absent TEXT,
  PRIMARY KEY (run, epoch)
) STRICT;
CREATE TABLE parameters (
  id INTEGER PRIMARY KEY,
  run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  json TEXT NOT NULL,
  UNIQUE (run, json)
) STRICT;
CREATE TABLE epoch_shares (
  run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  epoch INTEGER NOT NULL,
  position INTEGER NOT NULL,
  connections INTEGER NOT NULL,
  rotation_set INTEGER,
  parameters INTEGER NOT NULL REFERENCES parameters(id) ON DELETE CASCADE,
  PRIMARY KEY (run, epoch, position)
) STRICT;
)",
    // Guard bands after orders.
    R"(
ALTER TABLE changes ADD COLUMN guard_ns INTEGER NOT NULL DEFAULT 0;
)"};

}  // namespace spate::controller
