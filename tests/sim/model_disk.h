#pragma once

// An agent's spool on a model of a disk: whole transactions, durable when commit() returns. A power
// cut or a kill in the middle of a commit leaves all of it or nothing. The disk may refuse to write
// (full, I/O error, read-only), and an error may come although the transaction is on the disk: what
// the contract of agent/spool_disk.h allows, this disk does.
//
// The content outlives the process that has it open; the shelf lives in the machine's memory.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/spool_disk.h"
#include "tests/sim/world.h"

namespace spate::sim {

// Thrown out of a durable operation: the process ends here, in the middle of what it did.
struct ProcessDied {
  bool is_power_cut = false;
};

enum class DiskFault {
  none,
  full,       // ENOSPC: nothing is written
  io_error,   // EIO: written or not, nobody knows
  read_only,  // EROFS: nothing is written
};

struct DiskState {
  struct Chain {
    agent::SpoolAccount account;
    std::map<std::uint64_t, std::pair<agent::SpoolEntry, std::string>> records;  // by seq
  };
  std::vector<Chain> chains;
  std::string shelf;  // of the machine's memory
  DiskFault fault = DiskFault::none;
  Duration commit_takes{};  // of a slow disk
  // Of a slow disk, while its caller waits: what there was before the first commit that has not
  // returned. A power cut may leave that.
  std::optional<std::vector<Chain>> before;
  // Called before and after every commit; may throw ProcessDied, or change the fault.
  std::function<void(bool is_after)> at_commit;
};

class ModelDisk : public agent::SpoolDisk {
 public:
  ModelDisk(World& world, DiskState& state) : world_(world), state_(state) {}

  Result<agent::SpoolContents> open() override;
  Result<void> commit(const agent::SpoolChange& change) override;
  Result<std::string> read(const agent::AccountKey& account, std::uint64_t seq) override;
  bool shelve(const std::string& bytes) override;
  std::string place() const override { return "the model disk"; }

  // How long the commits since the last call kept their caller.
  Duration take_time_spent() { return std::exchange(spent_, {}); }

 private:
  void apply(const agent::SpoolChange& change);
  DiskState::Chain* find(const agent::AccountKey& key);

  World& world_;
  DiskState& state_;
  Duration spent_{};
  bool is_open_ = false;  // false after an error: open() must come first
};

}  // namespace spate::sim
