#pragma once

// The workers of one agent's process in one run, without sockets: they keep the contract of
// agent/worker.h (borders counted from T, epochs by the timeline, the interval cut at a stop, a
// drain with a deadline) with the real Recorder and IntervalMerger, and generate requests against
// the FakeTarget as a closed loop would: so many per connection and second, one outcome each.
//
// Requests are not events: they are made up when somebody looks (settle), between the last look and
// now. Whatever could tell the difference looks first: borders, stops, kills, target restarts.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "agent/interval_merger.h"
#include "agent/recorder.h"
#include "agent/session.h"
#include "tests/sim/fake_target.h"
#include "tests/sim/world.h"

namespace spate::sim {

class FakeWorker;

// Connections that may make calls, by the share and the lease; and those that do.
struct Load {
  std::uint64_t leased = 0;
  std::uint64_t calling = 0;
};

class FakeCrew : public std::enable_shared_from_this<FakeCrew> {
 public:
  struct Setting {
    World& world;
    MachineClock& clock;
    FakeTarget& target;
    // A folder of the machine's memory, for what outlives the process.
    std::string memory;
    // Of the machine: whether requests reach the target.
    std::function<bool()> reaches_target;
    // Runs it on the control thread: later, if the process is stopped now.
    std::function<void(std::function<void()>)> in_control_thread;
    // To the session, on the control thread; not called after release().
    std::function<void(agent::Event)> report;
    // What the workers do from now on, for the laws.
    std::function<void(const Load&)> load;
  };

  FakeCrew(Setting setting, agent::Prepare prepare, Client client);
  ~FakeCrew();

  void open();
  void start_at(Instant t0, Instant begin, Duration drain);
  void change(const ShareTimeline& next, std::uint32_t epoch, Instant at);
  void lease(Instant end);
  void stop(Instant at, Duration drain);
  void release_intervals(const std::vector<std::uint64_t>& taken);
  // Counts everything up to now.
  void settle();
  // SIGSTOP and SIGCONT of the process.
  void freeze();
  void thaw();
  void release();
  // The process is gone: its memory with it, although somebody may still be in one of its calls.
  void destroy();

  const Client& client() const { return client_; }
  // Sent requests in the records that were reported.
  std::uint64_t handed_over() const { return handed_over_; }
  // Whether everything that was counted is in slots that outlive the process: a worker has only so
  // many, and they are used again when the spool has their records.
  bool is_all_in_slots() const;

 private:
  friend class FakeWorker;
  // A change that not all workers have made yet.
  struct Changing {
    std::uint32_t epoch = 0;
    Instant at;
    std::set<std::size_t> missing;
  };

  void add_worker(const ShareTimeline& timeline);
  // From the control thread to a worker's, in order.
  void order(std::size_t worker, std::function<void(FakeWorker&)> what);
  void changed_over(std::size_t worker, Instant at);
  void post(std::function<void()> what);  // from a worker's thread to the control thread
  void closed(std::size_t worker, Record record);
  void drained(std::size_t worker);
  void report_records();
  void wake_workers();
  void tell_load();

  Setting setting_;
  agent::Prepare prepare_;
  const Client client_;
  agent::IntervalMerger merger_;
  std::vector<std::unique_ptr<FakeWorker>> workers_;
  std::vector<std::shared_ptr<agent::SlotRing>> rings_;  // of each worker
  std::vector<Moment> ordered_until_;                    // of each worker: its last order arrives
  std::vector<std::function<void()>> unheard_;           // orders that came while it was stopped
  std::vector<std::uint64_t> closed_;                    // intervals of each worker
  std::vector<std::uint64_t> taken_;                     // of those, in the spool
  std::deque<Changing> changing_;                        // ascending
  Instant t0_;
  Duration drain_{};
  Instant lease_end_ = Instant::max();
  std::uint64_t listener_ = 0;
  std::uint64_t handed_over_ = 0;
  Moment posted_until_;
  Instant wake_at_ = Instant::max();
  bool is_released_ = false;
  bool is_frozen_ = false;
};

}  // namespace spate::sim
