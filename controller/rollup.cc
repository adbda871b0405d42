#include "controller/rollup.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <set>

#include "common/record_sum.h"
#include "controller/record_row.h"
#include "controller/store_schema.h"

namespace spate::controller {
namespace {

// An interval may begin a little before its border by its agent's clock.
constexpr Duration kBorderTolerance = std::chrono::milliseconds(50);
constexpr std::size_t kJobsLookedAt = 50;  // of those without work, in one step
constexpr std::size_t kSamplesPerStep = 500;

std::int64_t slot_of(Duration at, Duration width) {
  const auto from = (at + kBorderTolerance).count();
  const auto slot = from / width.count();
  return from % width.count() < 0 ? slot - 1 : slot;
}

Duration end_of_slot(std::int64_t slot, Duration width) { return width * (slot + 1); }

bool belong_together(const Record& merged, const Record& next) {
  return mergeable_in_time(merged, next) && !merged.recovered && !next.recovered &&
         broken_chain(merged, next).empty() && broken_laws(next).empty();
}

Record merge(const Record& merged, const Record& next) {
  Record both = merge_in_time(merged, next);
  both.gauges.connections_requested =
      std::max(merged.gauges.connections_requested, next.gauges.connections_requested);
  both.gauges.connections_established =
      std::min(merged.gauges.connections_established, next.gauges.connections_established);
  return both;
}

Result<Record> record_at(SQLite::Statement& row, int column) {
  const SQLite::Column wire = row.getColumn(column);
  return unpack_record(
      {static_cast<const char*>(wire.getBlob()), static_cast<std::size_t>(wire.getBytes())});
}

// The samples of one slot while they are read.
class SampleSlot {
 public:
  struct Sample {
    std::int64_t id = 0;
    std::int64_t rss = 0;
    std::int64_t address_space = 0;
    bool is_first_of_boot = false;
  };
  void add(const Sample& sample) { samples_.push_back(sample); }

  // Of those, what is not kept; and an empty slot after that.
  void take_rest(std::vector<std::int64_t>& ids) {
    if (samples_.size() > 1) {
      const auto by = [this](auto field) {
        return std::max_element(
                   samples_.begin(), samples_.end(),
                   [&](const Sample& a, const Sample& b) { return a.*field < b.*field; })
            ->id;
      };
      const std::set<std::int64_t> kept{samples_.back().id, by(&Sample::rss),
                                        by(&Sample::address_space)};
      for (const auto& s : samples_)
        if (!s.is_first_of_boot && !kept.contains(s.id)) ids.push_back(s.id);
    }
    samples_.clear();
  }

 private:
  std::vector<Sample> samples_;
};

}  // namespace

// One agent's process in one run, in the table of each resolution.
struct Rollup::Tables {
  explicit Tables(SQLite::Database& db) {
    for (std::size_t i = 0; i < kRecordTables.size(); ++i) {
      const std::string name = kRecordTables[i];
      const std::string chain = " WHERE run = ? AND agent = ? AND incarnation = ?";
      select[i].emplace(db,
                        "SELECT start_ns, length_ns, wire FROM " + name + chain + " ORDER BY seq");
      remove[i].emplace(db, "DELETE FROM " + name + chain + " AND seq BETWEEN ? AND ?");
      insert[i].emplace(db, name);
    }
  }
  std::array<std::optional<SQLite::Statement>, kRecordTables.size()> select;
  std::array<std::optional<SQLite::Statement>, kRecordTables.size()> remove;
  std::array<std::optional<RecordInsert>, kRecordTables.size()> insert;
};

Rollup::Rollup(SQLite::Database& db, const RollupPolicy& policy)
    : db_(db), policy_(policy), tables_(std::make_unique<Tables>(db)) {}
Rollup::~Rollup() = default;

bool Rollup::step() {
  if (runs_.empty() && jobs_.empty()) find_runs();
  for (std::size_t looked = 0; looked < kJobsLookedAt; ++looked) {
    if (jobs_.empty()) {
      if (runs_.empty()) return false;
      add_jobs(runs_.front());
      runs_.pop_front();
      continue;
    }
    if (work_on(jobs_.front())) return true;
    jobs_.pop_front();
  }
  return true;
}

// Age counts within a run: only one with new records can have work.
void Rollup::find_runs() {
  std::int64_t highest = 0;
  {
    SQLite::Statement last(db_, "SELECT coalesce(max(id), 0) FROM records");
    if (last.executeStep()) highest = last.getColumn(0).getInt64();
  }
  SQLite::Statement run(db_, seen_record_ < 0 ? "SELECT id FROM runs WHERE ?1 < 0"
                                              : "SELECT DISTINCT run FROM records WHERE id > ?1");
  run.bind(1, seen_record_);
  while (run.executeStep()) runs_.push_back(run.getColumn(0).getString());
  seen_record_ = highest;
}

void Rollup::add_jobs(const std::string& run) {
  std::vector<Job> jobs;
  Duration newest{std::numeric_limits<std::int64_t>::min()};
  SQLite::Statement chain(db_, "SELECT agent, incarnation FROM marks WHERE run = ?");
  SQLite::Statement last(db_,
                         "SELECT start_ns + length_ns FROM records WHERE run = ? AND agent = ?"
                         " AND incarnation = ? ORDER BY seq DESC LIMIT 1");
  chain.bind(1, run);
  while (chain.executeStep()) {
    Job job{run, {}, chain.getColumn(0).getString(), chain.getColumn(1).getInt64()};
    last.tryReset();
    last.bind(1, run);
    last.bind(2, job.agent);
    last.bind(3, job.incarnation);
    if (last.executeStep()) newest = std::max(newest, Duration(last.getColumn(0).getInt64()));
    jobs.push_back(std::move(job));
  }
  if (newest.count() < policy_.steps[0].older_than.count()) return;
  jobs.push_back({run, {}, "", 0});
  for (Job& job : jobs) {
    job.newest = newest;
    jobs_.push_back(std::move(job));
  }
}

bool Rollup::work_on(const Job& job) {
  if (job.agent.empty()) {
    thin_events(job);
    return thin_samples(job);
  }
  std::size_t records = 0;
  for (std::size_t step = 0; step < kRollupSteps; ++step) {
    while (records < kRecordsPerRollup && merge_slot(job, step, records)) {
    }
  }
  return records > 0;
}

// Merges the oldest slot of the chain, if all of it is old enough.
bool Rollup::merge_slot(const Job& job, std::size_t step, std::size_t& records) {
  const auto& [older_than, width] = policy_.steps[step];
  auto& select = *tables_->select[step];
  select.tryReset();
  select.bind(1, job.run);
  select.bind(2, job.agent);
  select.bind(3, job.incarnation);
  std::optional<Record> merged;
  std::int64_t slot = 0;
  std::uint64_t first_seq = 0;
  while (select.executeStep()) {
    const std::int64_t slot_here = slot_of(Duration(select.getColumn(0).getInt64()), width);
    const Duration end{select.getColumn(0).getInt64() + select.getColumn(1).getInt64()};
    if (merged && slot_here != slot) break;
    if (std::max(end, end_of_slot(slot_here, width)) > job.newest - older_than) break;
    auto record = record_at(select, 2);
    if (!record) break;  // the report names it
    if (!merged) {
      merged = std::move(*record);
      slot = slot_here;
      first_seq = merged->key.seq;
      ++records;
      if (!broken_laws(*merged).empty()) break;  // it stays to be found
      continue;
    }
    if (!belong_together(*merged, *record)) break;
    merged = merge(*merged, *record);
    ++records;
  }
  select.tryReset();
  if (!merged) return false;

  auto& remove = *tables_->remove[step];
  remove.tryReset();
  remove.bind(1, job.run);
  remove.bind(2, job.agent);
  remove.bind(3, job.incarnation);
  remove.bind(4, static_cast<std::int64_t>(first_seq));
  remove.bind(5, static_cast<std::int64_t>(merged->key.seq));
  remove.exec();
  remove.tryReset();
  tables_->insert[step + 1]->put(*merged);
  return true;
}

// Reads from the first sample on, as far as is needed to find kSamplesPerStep to drop.
bool Rollup::thin_samples(const Job& job) {
  if (const auto done = thinned_.find(job.run);
      done != thinned_.end() && job.newest - done->second < policy_.steps[0].older_than / 4)
    return false;
  SQLite::Statement row(db_,
                        "SELECT id, at_ns, boot_id, rss_bytes, address_space_bytes FROM"
                        " target_samples WHERE run = ? ORDER BY id");
  row.bind(1, job.run);
  std::vector<std::int64_t> dropped;
  SampleSlot samples;
  std::string boot;
  std::pair<std::size_t, std::int64_t> slot{};
  while (dropped.size() < kSamplesPerStep && row.executeStep()) {
    const Duration at{row.getColumn(1).getInt64()};
    std::pair<std::size_t, std::int64_t> here{kRollupSteps, 0};
    for (std::size_t step = kRollupSteps; step-- > 0;) {
      const auto& [older_than, width] = policy_.steps[step];
      here = {step, slot_of(at, width)};
      if (end_of_slot(here.second, width) <= job.newest - older_than) break;
      here.first = kRollupSteps;
    }
    if (here.first == kRollupSteps) break;  // this one and all after it are young
    const std::string boot_here = row.getColumn(2).getString();
    const bool is_first_of_boot = boot_here != boot;
    if (is_first_of_boot || here != slot) samples.take_rest(dropped);
    boot = boot_here;
    slot = here;
    samples.add({row.getColumn(0).getInt64(), row.getColumn(3).getInt64(),
                 row.getColumn(4).getInt64(), is_first_of_boot});
  }
  samples.take_rest(dropped);
  row.tryReset();
  SQLite::Statement remove(db_, "DELETE FROM target_samples WHERE id = ?");
  for (const std::int64_t id : dropped) {
    remove.tryReset();
    remove.bind(1, id);
    remove.exec();
  }
  if (dropped.empty()) {
    if (thinned_.size() >= kRememberedRuns) thinned_.clear();
    thinned_[job.run] = job.newest;
  }
  return !dropped.empty();
}

void Rollup::thin_events(const Job& job) {
  SQLite::Statement count(db_, "SELECT count(*) FROM events WHERE run = ?");
  count.bind(1, job.run);
  if (!count.executeStep()) return;
  const std::int64_t all = count.getColumn(0).getInt64();
  if (all <= static_cast<std::int64_t>(kMaxStoredEvents)) return;
  // A tenth more than must be, so that it is not to be done again at once.
  SQLite::Statement remove(
      db_,
      "DELETE FROM events WHERE id IN (SELECT id FROM (SELECT id, severity FROM events WHERE run ="
      " ?1 ORDER BY id LIMIT -1 OFFSET ?2) ORDER BY CASE severity WHEN 'info' THEN 0 WHEN"
      " 'warning' THEN 1 ELSE 2 END, id LIMIT ?3)");
  remove.bind(1, job.run);
  remove.bind(2, static_cast<std::int64_t>(kKeptFirstEvents));
  remove.bind(3, all - static_cast<std::int64_t>(kMaxStoredEvents) +
                     static_cast<std::int64_t>(kMaxStoredEvents / 10));
  remove.exec();
}

}  // namespace spate::controller
