#pragma once

// The controller's store as a model of one SQLite file and its writer thread: what is put is
// queued, committed in groups after a delay, and reported after another one; a crash loses what is
// queued, keeps what is committed, and may fall between a commit and its report. Writing may fail
// (disk full, I/O error): then it is tried again, and nothing is reported. Transactions are atomic
// and fenced: a writer whose term is not the file's commits nothing.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "controller/store_op.h"
#include "tests/sim/world.h"

namespace spate::sim {

// What is durable: survives processes and power cuts. A copy of it is a copied file.
struct StoreFile {
  struct Run {
    controller::RunInfo info;
    controller::RunOutcome outcome;
    std::vector<std::shared_ptr<const controller::store_op::PutRecord>> records;  // as committed
    std::map<std::pair<std::string, std::uint64_t>, std::uint64_t> marks;
    std::vector<controller::TargetSample> samples;
    std::vector<controller::RunEvent> events;
    std::string descriptor_set;
  };
  std::map<std::string, Run> runs;
  std::vector<std::string> order;  // of the runs' first rows
  std::string cluster;             // made with the file
  std::uint64_t term = 0;
  std::int64_t alive_wall_ms = 0;
};

struct StoreFaults {
  bool refuses = false;  // ENOSPC, EIO, read-only
  Duration commit_takes = std::chrono::milliseconds(2);
  // Called before and after every commit; may end the process, or make the disk refuse.
  std::function<void(bool is_after)> at_commit;
};

// One process's queue and writer.
class ModelStore : public std::enable_shared_from_this<ModelStore> {
 public:
  struct Callbacks {
    std::function<void(std::vector<controller::Mark>)> committed;
    std::function<void(std::string)> trouble;
    std::function<void()> recovered;
    std::function<void(std::uint64_t)> taken_over;
  };
  // Raises the file's term.
  ModelStore(World& world, StoreFile& file, StoreFaults& faults, Callbacks callbacks);

  void put(controller::StoreOp op);
  void when_committed(std::function<void()> done);
  // The process died: nothing is written or reported any more.
  void die() { is_dead_ = true; }
  bool is_idle() const { return queue_.empty(); }

 private:
  struct Entry {
    std::variant<controller::StoreOp, std::function<void()>> what;
  };
  void schedule(Duration delay);
  void commit();
  void apply(controller::StoreOp& op);
  void apply_one(controller::store_op::PutRun& put);
  void apply_one(controller::store_op::PutRecord& put);
  void apply_one(controller::store_op::PutDead& put);
  void apply_one(controller::store_op::PutSample& put);
  void apply_one(controller::store_op::PutEvent& put);
  void apply_one(controller::store_op::PutChange& put);
  static void apply_one(controller::store_op::PutEpochs& put);
  void apply_one(controller::store_op::PutDescriptors& put);
  void apply_one(controller::store_op::PutAlive& put);
  void report(std::vector<controller::Mark> marks, std::vector<std::function<void()>> barriers);

  World& world_;
  StoreFile& file_;
  StoreFaults& faults_;
  const Callbacks callbacks_;
  std::deque<Entry> queue_;
  Moment last_report_;
  const std::uint64_t term_;
  bool is_scheduled_ = false;
  bool is_in_trouble_ = false;
  bool is_dead_ = false;
};

}  // namespace spate::sim
