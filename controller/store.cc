#include "controller/store.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <sqlite3.h>
#include <sys/statvfs.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <tuple>

#include "common/patch_json.h"
#include "common/plan_json.h"
#include "common/timeline.h"
#include "controller/closed_runs.h"
#include "controller/record_row.h"
#include "controller/rollup.h"
#include "controller/store_file.h"
#include "controller/store_restore.h"
#include "controller/store_schema.h"

// Orientation: `Rows` is the connection with its prepared statements, one function per table.
// `Writer` owns the thread, the queue and the commits. `Store` is the thin outside.

namespace spate::controller {
namespace {

namespace asio = boost::asio;

std::int64_t to_sql(std::uint64_t value) { return static_cast<std::int64_t>(value); }

std::string_view severity_name(RunEvent::Severity s) {
  return s == RunEvent::Severity::info      ? "info"
         : s == RunEvent::Severity::warning ? "warning"
                                            : "error";
}

// Binds its arguments in order, runs, and leaves the statement ready for the next time.
void bind(SQLite::Statement& statement, int index, std::nullptr_t) { statement.bind(index); }
template <class Value>
void bind(SQLite::Statement& statement, int index, const Value& value) {
  statement.bind(index, value);
}
template <class... Values>
void run(SQLite::Statement& statement, const Values&... values) {
  statement.tryReset();
  int index = 0;
  (bind(statement, ++index, values), ...);
  statement.exec();
  statement.tryReset();
}

class Rows {
 public:
  explicit Rows(SQLite::Database& db)
      : run_(
            db,
            "INSERT INTO runs (id, plan, state, \"end\", end_reason, submitted_wall_ms, "
            "started_wall_ms, length_ns,"
            " duplicates, verdict, requests, start_boot_ns, boot_id)"
            " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT (id) DO "
            "UPDATE SET"
            " state = excluded.state, \"end\" = excluded.\"end\", end_reason = excluded.end_reason,"
            " started_wall_ms = excluded.started_wall_ms, length_ns = excluded.length_ns,"
            " duplicates = excluded.duplicates, verdict = excluded.verdict, requests = "
            "excluded.requests, start_boot_ns = excluded.start_boot_ns, boot_id = "
            "excluded.boot_id"),
        plan_(db, "INSERT OR IGNORE INTO plans (run, text, overrides, resolved) VALUES (?,?,?,?)"),
        epoch_(db,
               "INSERT OR IGNORE INTO epochs (run, number, connections, calls_per_loop, pause_ns)"
               " VALUES (?,?,?,?,?)"),
        agent_(db,
               "INSERT OR REPLACE INTO agents (run, position, name, incarnation, "
               "connections_requested,"
               " connections_established, start_skew_ns, clock_bound_ns, last_seq, lost_reason, "
               "lost_at_ns, agent_id)"
               " VALUES (?,?,?,?,?,?,?,?,?,?,?,?)"),
        dead_(db,
              "INSERT OR REPLACE INTO dead_incarnations (run, agent, incarnation, last_seq, cause)"
              " VALUES (?,?,?,?,?)"),
        record_(db, kRecordTables.front()),
        mark_(db,
              "INSERT INTO marks (run, agent, incarnation, seq) VALUES (?,?,?,?)"
              " ON CONFLICT (run, agent, incarnation) DO UPDATE SET seq = excluded.seq"),
        sample_(db,
                "INSERT INTO target_samples (run, at_ns, boot_id, allocator, received, completed, "
                "refused,"
                " address_space_bytes, rss_bytes, cpu_ns, threads, open_connections, agents)"
                " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)"),
        event_(db, "INSERT INTO events (run, at_ns, severity, text) VALUES (?,?,?,?)"),
        change_(db,
                "INSERT OR REPLACE INTO changes (run, epoch, at_ns, who, reason, what, canary,"
                " wall_ms, parts, guard_ns, absent) VALUES (?,?,?,?,?,?,?,?,?,?,?)"),
        parameters_(db, "INSERT OR IGNORE INTO parameters (run, json) VALUES (?,?)"),
        share_(db,
               "INSERT OR IGNORE INTO epoch_shares (run, epoch, position, connections,"
               " rotation_set, parameters) SELECT ?1, ?2, ?3, ?4, ?5, id FROM parameters"
               " WHERE run = ?1 AND json = ?6"),
        descriptors_(db, "INSERT OR IGNORE INTO descriptors (run, bytes) VALUES (?,?)"),
        alive_(db, "UPDATE cluster SET alive_wall_ms = ?"),
        late_(db, "UPDATE runs SET requests = requests + ? WHERE id = ?"),
        term_(db, "SELECT term FROM cluster") {}

  std::uint64_t term() {
    term_.tryReset();
    term_.executeStep();
    const auto term = static_cast<std::uint64_t>(term_.getColumn(0).getInt64());
    term_.tryReset();
    return term;
  }

  void put(const store_op::PutRun& op) {
    const auto& [info, outcome] = op;
    if (info.start_boot_ns) {
      put_run(info, outcome, *info.start_boot_ns);
    } else {
      put_run(info, outcome, nullptr);
    }
    std::string overrides;
    for (const std::string& o : info.overrides) overrides += o + "\n";
    run(plan_, info.id, info.plan_text, overrides, to_json(info.plan));
    put_planned_epochs(info);
    for (std::size_t i = 0; i < info.agents.size(); ++i) put_agent(info.id, i, info.agents[i]);
  }

  void put(const store_op::PutRecord& op) {
    const Record& r = op.record;
    record_.put(r);
    run(mark_, r.key.run, r.key.agent, to_sql(r.key.incarnation), to_sql(r.key.seq));
    if (op.is_late) run(late_, to_sql(r.finished()), r.key.run);
  }

  void put(const store_op::PutDead& op) { put_dead(op.run, op.agent, op.dead); }

  void put(const store_op::PutSample& op) {
    const TargetSample& s = op.sample;
    nlohmann::json agents = nlohmann::json::array();
    for (const auto& a : s.agents)
      agents.push_back({a.agent, a.incarnation, a.received, a.completed, a.refused});
    run(sample_, op.run, s.at_ns, s.boot_id, s.allocator, to_sql(s.received), to_sql(s.completed),
        to_sql(s.refused), to_sql(s.address_space_bytes), to_sql(s.rss_bytes), to_sql(s.cpu_ns),
        static_cast<std::int64_t>(s.threads), to_sql(s.open_connections), agents.dump());
  }

  void put(const store_op::PutEvent& op) {
    const RunEvent& e = op.event;
    run(event_, op.run, e.at_ns, std::string(severity_name(e.severity)), e.text);
  }

  void put(const store_op::PutChange& op) {
    const Change& c = op.change;
    nlohmann::json parts = nlohmann::json::array();
    for (const Change::Part& part : c.parts) {
      parts.push_back(
          {{"agents", part.agents}, {"patch", nlohmann::json::parse(to_json(part.patch))}});
    }
    const auto put_with = [&](const auto& absent) {
      run(change_, op.run, std::int64_t{c.epoch}, std::int64_t{c.at.count()}, c.who, c.reason,
          c.what, std::int64_t{c.canary}, c.wall_ms, parts.dump(), std::int64_t{c.guard.count()},
          absent);
    };
    if (c.absent) {
      put_with(nlohmann::json(*c.absent).dump());
    } else {
      put_with(nullptr);
    }
  }

  void put(const store_op::PutEpochs& op) {
    for (const Epoch& epoch : op.timeline.epochs) {
      put_epoch(op.run, epoch);
      for (std::size_t i = 0; i < epoch.shares.size(); ++i) put_share(op.run, epoch, i);
    }
  }

  void put(const store_op::PutDescriptors& op) {
    descriptors_.tryReset();
    descriptors_.bind(1, op.run);
    descriptors_.bind(2, static_cast<const void*>(op.descriptor_set.data()),
                      static_cast<int>(op.descriptor_set.size()));
    descriptors_.exec();
    descriptors_.tryReset();
  }

  void put(const store_op::PutAlive& op) { run(alive_, op.wall_ms); }

 private:
  void put_planned_epochs(const RunInfo& info) {
    const auto timeline = planned_timeline_of(info);
    if (!timeline) return;  // the run is refused for it
    for (const Epoch& epoch : timeline->epochs) put_epoch(info.id, epoch);
  }

  // The first agent's loops stand for all; the rest is in epoch_shares.
  void put_epoch(const std::string& run_id, const Epoch& epoch) {
    const Load& load = epoch.shares.front().parameters.load;
    run(epoch_, run_id, static_cast<std::int64_t>(epoch.number), to_sql(epoch.connections()),
        to_sql(load.calls_per_loop), std::int64_t{load.pause.count()});
  }

  void put_share(const std::string& run_id, const Epoch& epoch, std::size_t position) {
    const AgentShare& share = epoch.shares[position];
    Parameters parameters = share.parameters;
    parameters.load.connections = 1;
    const std::string json = to_json(parameters);
    const auto put_with = [&](const auto& set) {
      run(share_, run_id, std::int64_t{epoch.number}, static_cast<std::int64_t>(position),
          to_sql(share.parameters.load.connections), set, json);
    };
    run(parameters_, run_id, json);
    if (share.set == kNoSet) {
      put_with(nullptr);
    } else {
      put_with(std::int64_t{share.set});
    }
  }

  template <class Start>
  void put_run(const RunInfo& info, const RunOutcome& outcome, Start start) {
    run(run_, info.id, info.plan.name, std::string(name(info.state)), std::string(name(info.end)),
        info.end_reason, info.submitted_wall_ms, info.started_wall_ms,
        std::int64_t{info.length.count()}, to_sql(outcome.duplicates), outcome.verdict,
        to_sql(outcome.requests), start, info.boot_id);
  }

  void put_agent(const std::string& run_id, std::size_t position, const RunAgent& a) {
    const auto bind_optional = [&](int index, bool is_set, std::int64_t value) {
      if (is_set) {
        agent_.bind(index, value);
      } else {
        agent_.bind(index);
      }
    };
    for (const DeadIncarnation& d : a.dead) put_dead(run_id, a.name, d);
    agent_.tryReset();
    agent_.bind(1, run_id);
    agent_.bind(2, static_cast<std::int64_t>(position));
    agent_.bind(3, a.name);
    agent_.bind(4, to_sql(a.incarnation));
    agent_.bind(5, to_sql(a.connections_requested));
    agent_.bind(6, to_sql(a.connections_established));
    bind_optional(7, a.start_skew_ns.has_value(), a.start_skew_ns.value_or(0));
    agent_.bind(8, a.clock_bound_ns);
    bind_optional(9, a.last_seq.has_value(), to_sql(a.last_seq.value_or(0)));
    agent_.bind(10, a.lost_reason);
    bind_optional(11, a.lost_at_ns.has_value(), a.lost_at_ns.value_or(0));
    agent_.bind(12, a.agent_id);
    agent_.exec();
    agent_.tryReset();
  }

  void put_dead(const std::string& run_id, const std::string& agent, const DeadIncarnation& d) {
    dead_.tryReset();
    dead_.bind(1, run_id);
    dead_.bind(2, agent);
    dead_.bind(3, to_sql(d.incarnation));
    if (d.last_seq) {
      dead_.bind(4, to_sql(*d.last_seq));
    } else {
      dead_.bind(4);
    }
    dead_.bind(5, d.cause);
    dead_.exec();
    dead_.tryReset();
  }

  SQLite::Statement run_, plan_, epoch_, agent_, dead_;
  RecordInsert record_;
  SQLite::Statement mark_, sample_, event_, change_, parameters_, share_, descriptors_, alive_,
      late_, term_;
};

// What the system call said, of which SQLite says only that it failed: " (Input/output error)".
std::string system_error(SQLite::Database& db, const SQLite::Exception& e) {
  if (e.getErrorCode() != SQLITE_IOERR && e.getErrorCode() != SQLITE_CANTOPEN) return "";
  const int error = sqlite3_system_errno(db.getHandle());
  return error == 0 ? "" : " (" + std::string(std::strerror(error)) + ")";
}

// A run that cannot be taken over must not keep the others from it.
void close_unreadable(SQLite::Database& db, const std::string& id, const std::string& why) {
  SQLite::Statement close(
      db,
      "UPDATE runs SET state = 'finished', \"end\" = 'crashed', verdict = 'INVALID',"
      " end_reason = ? WHERE id = ?");
  close.bind(1, "the controller restarted and could not take it over: " + why);
  close.bind(2, id);
  close.exec();
}

}  // namespace

class Store::Writer {
 public:
  Writer(std::string path, Callbacks callbacks, const RollupPolicy& policy,
         std::unique_ptr<StoreLock> lock, std::unique_ptr<SQLite::Database> db)
      : path_(std::move(path)),
        policy_(policy),
        callbacks_(std::move(callbacks)),
        lock_(std::move(lock)),
        db_(std::move(db)),
        rows_(std::make_unique<Rows>(*db_)),
        rollup_(std::make_unique<Rollup>(*db_, policy_)),
        timer_(loop_),
        rollup_timer_(loop_),
        space_timer_(loop_),
        guard_(loop_.get_executor()) {
    raise_term();
    restore();
    roll_up_in(policy_.every);
    measure_in(Duration{});
    thread_ = std::thread([this] { loop_.run(); });
  }

  ~Writer() {
    asio::post(loop_, [this] {
      is_closing_ = true;
      timer_.cancel();
      rollup_timer_.cancel();
      space_timer_.cancel();
      flush();
      guard_.reset();
    });
    thread_.join();
    rollup_.reset();
    rows_.reset();
    db_.reset();
  }

  struct Entry {
    std::optional<StoreOp> op;  // empty: a barrier
    std::function<void()> done;

    bool may_be_dropped() const {
      return op && (std::holds_alternative<store_op::PutSample>(*op) ||
                    std::holds_alternative<store_op::PutEvent>(*op));
    }
  };

  void put(Entry entry) {
    asio::post(loop_, [this, entry = std::move(entry)]() mutable { enqueue(std::move(entry)); });
  }

  void probe(std::function<void()> alive) { asio::post(loop_, std::move(alive)); }

  const std::string path_;
  const RollupPolicy policy_;
  Restored restored_;
  std::uint64_t term_ = 0;

 private:
  void raise_term() {
    db_->exec("UPDATE cluster SET term = term + 1");
    SQLite::Statement row(*db_, "SELECT id, term, alive_wall_ms FROM cluster");
    row.executeStep();
    restored_.cluster = row.getColumn(0).getString();
    restored_.term = term_ = static_cast<std::uint64_t>(row.getColumn(1).getInt64());
    restored_.alive_wall_ms = row.getColumn(2).getInt64();
  }

  void restore() {
    std::vector<std::string> unfinished;
    {
      SQLite::Statement row(
          *db_, "SELECT id FROM runs WHERE state <> 'finished' ORDER BY submitted_wall_ms");
      while (row.executeStep()) unfinished.push_back(row.getColumn(0).getString());
    }
    for (const std::string& id : unfinished) {
      if (auto run = load_unfinished(path_, id)) {
        restored_.runs.push_back(std::move(*run));
      } else {
        close_unreadable(*db_, id, run.error().message);
      }
    }
    restored_.closed = load_closed(*db_, kMaxClosedRuns);
  }

  // Nothing more is written, and nothing that waits is reported as committed.
  bool was_taken_over() {
    const std::uint64_t term = rows_->term();
    if (term == term_) return false;
    is_taken_over_ = true;
    queue_.clear();
    if (callbacks_.taken_over) callbacks_.taken_over(term);
    return true;
  }

  void enqueue(Entry entry) {
    if (is_taken_over_) return;
    if (entry.may_be_dropped() && queue_.size() >= kMaxQueued) {
      ++dropped_;
      return;
    }
    queue_.push_back(std::move(entry));
    if (queue_.size() >= kCommitRecords && !is_in_trouble_) {
      timer_.cancel();
      is_timer_set_ = false;
      flush();
    } else {
      flush_in(kCommitDelay);
    }
  }

  void flush_in(Duration delay) {
    if (is_timer_set_ || is_closing_) return;
    is_timer_set_ = true;
    timer_.expires_after(delay);
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (error) return;
      is_timer_set_ = false;
      flush();
    });
  }

  void flush() {
    if (queue_.empty()) return;
    std::string why;
    if (!db_ && !reopen(why)) {
      in_trouble(why);
      return;
    }
    try {
      write_all();
    } catch (const SQLite::Exception& e) {
      why = "cannot write the store " + path_ + ": " + e.what() + system_error(*db_, e);
      // A full or busy disk may be tried again. Anything else may have left the file in any state:
      // what the system call said is not asked twice, the file is opened anew and checked.
      if (e.getErrorCode() != SQLITE_FULL && e.getErrorCode() != SQLITE_BUSY) close_file();
      in_trouble(why);
      return;
    }
    if (is_taken_over_) return;
    if (is_in_trouble_) {
      is_in_trouble_ = false;
      if (callbacks_.recovered) callbacks_.recovered();
    }
    report_committed();
  }

  void write_all() {
    db_->exec("BEGIN IMMEDIATE");
    try {
      if (was_taken_over()) {
        db_->exec("ROLLBACK");
        return;
      }
      for (const Entry& entry : queue_) {
        if (!entry.op) continue;
        try {
          std::visit([this](const auto& op) { rows_->put(op); }, *entry.op);
        } catch (const SQLite::Exception& e) {
          // Only this row is wrong; it must not keep the others out for ever.
          if (e.getErrorCode() != SQLITE_CONSTRAINT) throw;
          rejected_.push_back(e.what());
        }
      }
      db_->exec("COMMIT");
    } catch (const SQLite::Exception&) {
      rejected_.clear();
      db_->tryExec("ROLLBACK");
      throw;
    }
  }

  void report_committed() {
    std::vector<Entry> written = std::exchange(queue_, {});
    std::map<std::tuple<std::string, std::string, std::uint64_t>, std::uint64_t> highest;
    for (const Entry& entry : written) {
      if (!entry.op) continue;
      if (const auto* put = std::get_if<store_op::PutRecord>(&*entry.op)) {
        const RecordKey& key = put->record.key;
        highest[{key.run, key.agent, key.incarnation}] = key.seq;
      }
    }
    std::vector<Mark> marks;
    for (const auto& [key, seq] : highest) {
      marks.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), seq});
    }
    if (!marks.empty() && callbacks_.committed) callbacks_.committed(std::move(marks));
    for (const std::string& why : std::exchange(rejected_, {})) {
      note(RunEvent::Severity::error, "the store " + path_ + " refused a row: " + why);
    }
    if (dropped_ > 0) {
      note(RunEvent::Severity::warning,
           std::to_string(std::exchange(dropped_, 0)) +
               " samples and events were dropped while the store could not be written");
    }
    for (const Entry& entry : written) {
      if (entry.done) entry.done();
    }
  }

  // Old records, a little at a time: what comes meanwhile waits for one small transaction at most.
  void roll_up_in(Duration delay) {
    if (is_closing_) return;
    rollup_timer_.expires_after(delay);
    rollup_timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) roll_up_in(roll_up() ? kRollupPause : policy_.every);
    });
  }

  bool roll_up() {
    if (!db_ || is_in_trouble_ || is_taken_over_) return false;
    try {
      db_->exec("BEGIN IMMEDIATE");
      const bool has_worked = !was_taken_over() && rollup_->step();
      db_->exec("COMMIT");
      is_rollup_failing_ = false;
      return has_worked;
    } catch (const SQLite::Exception& e) {
      db_->tryExec("ROLLBACK");
      rollup_ = std::make_unique<Rollup>(*db_, policy_);
      // Nothing is lost, the file only stays larger. What is wrong with it stops the next commit.
      if (!std::exchange(is_rollup_failing_, true)) {
        note(RunEvent::Severity::warning,
             "cannot merge old records in the store " + path_ + ": " + e.what());
      }
      return false;
    }
  }

  void measure_in(Duration delay) {
    if (is_closing_) return;
    space_timer_.expires_after(delay);
    space_timer_.async_wait([this](const boost::system::error_code& error) {
      if (error) return;
      measure();
      measure_in(kSpaceEvery);
    });
  }

  void measure() {
    if (!db_ || !callbacks_.space) return;
    try {
      const auto pages = pragma("PRAGMA page_count");
      const auto free_pages = pragma("PRAGMA freelist_count");
      const auto page_bytes = pragma("PRAGMA page_size");
      struct statvfs disk {};
      if (statvfs(path_.c_str(), &disk) != 0) return;
      callbacks_.space({(pages - free_pages) * page_bytes,
                        free_pages * page_bytes + std::uint64_t{disk.f_bavail} * disk.f_frsize});
    } catch (const SQLite::Exception&) {
      // What is wrong is said when it is written to.
    }
  }

  std::uint64_t pragma(const char* text) {
    SQLite::Statement row(*db_, text);
    row.executeStep();
    return static_cast<std::uint64_t>(row.getColumn(0).getInt64());
  }

  void note(RunEvent::Severity severity, std::string text) {
    if (callbacks_.note) callbacks_.note(severity, std::move(text));
  }

  void in_trouble(const std::string& why) {
    if (!is_in_trouble_ && callbacks_.trouble) {
      callbacks_.trouble(
          why +
          "; records are not acknowledged, agents keep theirs; free some space or repair the disk");
    }
    if (!std::exchange(is_in_trouble_, true)) measure();
    flush_in(kRetry);
  }

  bool reopen(std::string& why) {
    auto db = open_store_file(path_, true);
    if (!db) {
      why = db.error().message;
      return false;
    }
    try {
      db_ = std::move(*db);
      rows_ = std::make_unique<Rows>(*db_);
      rollup_ = std::make_unique<Rollup>(*db_, policy_);
      return true;
    } catch (const SQLite::Exception& e) {
      why = std::string("cannot use the store: ") + e.what();
      close_file();
      return false;
    }
  }

  void close_file() {
    rollup_.reset();
    rows_.reset();
    db_.reset();
  }

  Callbacks callbacks_;
  std::unique_ptr<StoreLock> lock_;
  std::unique_ptr<SQLite::Database> db_;  // null while it must be opened anew
  std::unique_ptr<Rows> rows_;
  std::unique_ptr<Rollup> rollup_;  // with rows_
  std::vector<Entry> queue_;
  std::vector<std::string> rejected_;
  std::uint64_t dropped_ = 0;
  bool is_in_trouble_ = false;
  bool is_timer_set_ = false;
  bool is_closing_ = false;
  bool is_rollup_failing_ = false;
  bool is_taken_over_ = false;
  asio::io_context loop_{1};
  asio::steady_timer timer_;
  asio::steady_timer rollup_timer_;
  asio::steady_timer space_timer_;
  asio::executor_work_guard<asio::io_context::executor_type> guard_;
  std::thread thread_;
};

Result<std::unique_ptr<Store>> Store::open(const std::string& path, Callbacks callbacks,
                                           const RollupPolicy& policy) {
  auto lock = StoreLock::take(path);
  if (!lock) return lock.error();
  auto db = open_store_file(path, false);
  if (!db) return db.error();
  try {
    auto writer = std::make_unique<Writer>(path, std::move(callbacks), policy, std::move(*lock),
                                           std::move(*db));
    return std::unique_ptr<Store>(new Store(std::move(writer)));
  } catch (const SQLite::Exception& e) {
    return Error{ErrorCode::io, "cannot use the store " + path + ": " + e.what() +
                                    "; move it away to start with an empty one"};
  }
}

Store::Store(std::unique_ptr<Writer> writer) : writer_(std::move(writer)) {}
Store::~Store() = default;

const std::string& Store::path() const { return writer_->path_; }
Restored Store::take_restored() { return std::move(writer_->restored_); }

void Store::put(StoreOp op) { writer_->put({std::move(op), {}}); }

void Store::probe(std::function<void()> alive) { writer_->probe(std::move(alive)); }

void Store::when_committed(std::function<void()> done) {
  writer_->put({std::nullopt, std::move(done)});
}

}  // namespace spate::controller
