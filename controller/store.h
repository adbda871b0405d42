#pragma once

// Where runs are kept: one SQLite file, and its one writer. A thread of its own owns the only
// read-write connection; everything put here is queued to it and committed in groups, at most
// kCommitDelay after it came or kCommitRecords at a time. A record and its mark are in one
// transaction, and `committed` is called only after COMMIT has returned. Reading is store_reader.h,
// on connections of its own.
//
// Never a silent empty start: a file that is damaged, not ours, from a newer spate, or in use by
// another process is refused with the next step and left as it is.
//
// Opening raises the term and commits it. Every transaction checks that it is still the same one: a
// controller that was superseded (on a shared disk, say) writes nothing any more.
//
// When writing fails (disk full, I/O error) nothing is lost and nothing is acknowledged: what was
// queued stays queued, `trouble` is told once, and the writer tries again every kRetry. After
// anything but a full disk it opens the file anew and checks it first. The queue is bounded by the
// agents' windows (64 records each); past kMaxQueued, target samples and events are dropped and
// counted.
//
// Between the commits it merges what is old into coarser records, a little at a time (rollup.h).
//
// `put` and `when_committed` may be called from any one thread (the control loop) and never block.
// The callbacks come on the writer thread. The destructor writes what is queued, if it can, and
// joins.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/result.h"
#include "controller/restored.h"
#include "controller/rollup_policy.h"
#include "controller/store_op.h"
#include "controller/store_space.h"

namespace spate::controller {

inline constexpr Duration kCommitDelay = std::chrono::milliseconds(50);
inline constexpr std::size_t kCommitRecords = 512;
inline constexpr Duration kRollupPause = std::chrono::milliseconds(20);
inline constexpr Duration kRetry = std::chrono::seconds(1);
inline constexpr Duration kSpaceEvery = std::chrono::seconds(10);
inline constexpr std::size_t kMaxQueued = 100'000;

class Store {
 public:
  struct Callbacks {
    std::function<void(std::vector<Mark>)>
        committed;                             // the highest mark per (run, agent, incarnation)
    std::function<void(std::string)> trouble;  // nothing can be written, until `recovered`
    std::function<void()> recovered;
    // Another controller has raised the term: nothing is written any more.
    std::function<void(std::uint64_t term)> taken_over = {};
    // What else the user should know.
    std::function<void(RunEvent::Severity, std::string)> note = {};
    std::function<void(StoreSpace)> space = {};  // every kSpaceEvery
  };

  // `path`'s directories are made. Callbacks may be empty.
  static Result<std::unique_ptr<Store>> open(const std::string& path, Callbacks callbacks,
                                             const RollupPolicy& policy = kRollupPolicy);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  const std::string& path() const;
  // What an earlier process left. Once.
  Restored take_restored();

  void put(StoreOp op);
  // Called on the writer thread when it has time: it is not stuck in a write. From any thread.
  void probe(std::function<void()> alive);
  // Called on the writer thread when everything put before is committed.
  void when_committed(std::function<void()> done);

 private:
  class Writer;
  explicit Store(std::unique_ptr<Writer> writer);
  std::unique_ptr<Writer> writer_;
};

}  // namespace spate::controller
