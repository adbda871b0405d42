#pragma once

// The schema of version 1, as its spate made it: for the test of the migration.

namespace spate::controller::test {

inline constexpr const char* kSchemaV1 = R"(
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
  requests INTEGER NOT NULL         -- finished, at the end of the run
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
  PRIMARY KEY (run, position)
) STRICT;
CREATE TABLE records (
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
  wire BLOB NOT NULL,               -- spate.record.v1.Record as it came, with its histograms
  UNIQUE (run, agent, incarnation, seq)
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

}  // namespace spate::controller::test
