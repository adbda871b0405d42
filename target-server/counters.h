#pragma once

// What the target has done, in total and per (run, agent, incarnation).
//
// Thread-safe. Counting takes no lock and allocates nothing once a key is known; a new key takes a
// mutex once. Memory is bounded: kMaxKeys keys of at most kMaxKeyBytes each; what comes later, or
// is longer, is counted together under one more entry whose agent is "other" and whose run is
// empty. Keys are never dropped while the process lives.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace spate::target_server {

inline constexpr std::size_t kMaxKeys = 10'000;
inline constexpr std::size_t kMaxKeyBytes = 512;  // run and agent together

// One set of counts. Call received() first, then exactly one of completed() and refused(), so that
// every read of the counts sees completed + refused <= received; the difference is in flight.
class Counts {
 public:
  struct Values {
    std::uint64_t received = 0;
    std::uint64_t completed = 0;
    std::uint64_t refused = 0;
  };

  void received() { received_.fetch_add(1, std::memory_order_relaxed); }
  // Both release: whoever reads the count also sees that the request was received. They return the
  // new count.
  std::uint64_t completed() { return completed_.fetch_add(1, std::memory_order_release) + 1; }
  std::uint64_t refused() { return refused_.fetch_add(1, std::memory_order_release) + 1; }
  Values read() const;

 private:
  // Apart from its neighbours: threads that count for different agents share no cache line.
  alignas(64) std::atomic<std::uint64_t> received_{0};
  std::atomic<std::uint64_t> completed_{0};
  std::atomic<std::uint64_t> refused_{0};
};

struct CountKey {
  std::string_view run;
  std::string_view agent;
  std::uint64_t incarnation = 0;

  bool operator==(const CountKey&) const = default;
};

class Counters {
 public:
  struct Entry {
    std::string run;
    std::string agent;
    std::uint64_t incarnation = 0;
    Counts::Values counts;
  };

  Counters();
  ~Counters();
  Counters(const Counters&) = delete;
  Counters& operator=(const Counters&) = delete;

  Counts& total() { return total_; }
  const Counts& total() const { return total_; }
  // The counts of one agent; valid as long as this object.
  Counts& of(const CountKey& key);
  // The run's agents, in order of their first request; then "other" if it has counted anything.
  std::vector<Entry> entries(std::string_view run) const;

 private:
  struct Node;
  Node* find(const CountKey& key, std::size_t hash) const;
  Counts& add(const CountKey& key, std::size_t hash);

  Counts total_;
  Counts other_;
  // Open addressing, at most 1/3 full; a slot is set once and never changes, so readers need no
  // lock.
  std::unique_ptr<std::atomic<Node*>[]> slots_;
  mutable std::mutex adding_;  // guards nodes_; slots_ are written under it too
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace spate::target_server
