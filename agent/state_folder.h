#pragma once

// What an agent is, kept on its disk: who it is, how often it began, and which controllers it has
// heard. One folder, one process:
//
//   identity       agent_id, incarnation, highest term per cluster; replaced whole, fsynced
//   spool.sqlite   records that no controller has acknowledged (agent/spool_file.h)
//   lock           held while the process lives
//
// and, on tmpfs, memory_folder(): what outlives the process but not the machine. Folders there
// whose state folder is gone are removed at the next start.
//
// A folder in use by another process, damaged, or from a newer spate is refused with the next step,
// and left as it is. Control thread; throws nothing.

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "agent/term_book.h"
#include "common/result.h"

namespace spate::agent {

class StateFolder final : public TermBook {
 public:
  // Makes the folder if it is not there, takes its lock, and begins a new incarnation: durable
  // before this returns.
  static Result<std::unique_ptr<StateFolder>> open(const std::string& path);
  // Where it is when nobody says: $STATE_DIRECTORY (systemd), else spate/agents/NAME under
  // $XDG_STATE_HOME or ~/.local/state.
  static std::string default_path(const std::string& name);
  // default_path(), and if another process is using that, the first free one of NAME-2, NAME-3 …
  static Result<std::unique_ptr<StateFolder>> open_default(const std::string& name);

  ~StateFolder() override;
  StateFolder(const StateFolder&) = delete;
  StateFolder& operator=(const StateFolder&) = delete;

  const std::string& path() const { return path_; }
  const std::string& agent_id() const { return identity_.agent_id; }
  std::uint64_t incarnation() const { return identity_.incarnation; }
  // Why the incarnation before this one ended; empty: there was none.
  const std::string& cause_of_previous() const { return cause_; }
  std::string spool_path() const { return path_ + "/spool.sqlite"; }
  // Empty: there is no tmpfs that can be written to.
  const std::string& memory_folder() const { return memory_; }

  std::string last_cluster() const override { return identity_.last_cluster; }
  std::uint64_t highest(const std::string& cluster) const override;
  Result<void> keep(const std::string& cluster, std::uint64_t term) override;

  // The process is about to end, and has given up nothing that is not stored.
  Result<void> ends_well();

 private:
  struct Identity {
    std::string agent_id;
    std::uint64_t incarnation = 0;
    std::string boot;             // of the kernel under which it began
    std::uint64_t oom_kills = 0;  // of the cgroup then
    bool ended_well = false;
    std::string last_cluster;
    std::map<std::string, std::uint64_t> terms;
  };

  explicit StateFolder(std::string path) : path_(std::move(path)) {}
  Result<void> lock();
  Result<void> read();
  Result<void> write(const Identity& identity);
  Result<void> begin();
  void make_memory_folder();
  static std::string to_text(const Identity& identity);
  Result<Identity> parse(const std::string& text) const;
  Error damaged(const std::string& what) const;

  const std::string path_;
  int lock_ = -1;
  Identity identity_;
  std::string cause_;
  std::string memory_;
};

}  // namespace spate::agent
