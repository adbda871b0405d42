#include "target-server/counters.h"

#include <functional>

namespace spate::target_server {
namespace {

constexpr std::size_t kSlots = std::size_t{1} << 15;
static_assert(kSlots >= 3 * kMaxKeys);

std::size_t hash_of(const CountKey& key) {
  constexpr std::size_t kMix = 0x9e3779b97f4a7c15ULL;
  const std::hash<std::string_view> hash;
  std::size_t h = hash(key.run);
  h = (h ^ hash(key.agent)) * kMix;
  h = (h ^ key.incarnation) * kMix;
  return h ^ (h >> 32);
}

}  // namespace

struct Counters::Node {
  std::string run;
  std::string agent;
  std::uint64_t incarnation;
  Counts counts;

  CountKey key() const { return {run, agent, incarnation}; }
};

Counts::Values Counts::read() const {
  // The ends before the beginning: a request that is received meanwhile may only add to what is in
  // flight.
  Values values;
  values.completed = completed_.load(std::memory_order_acquire);
  values.refused = refused_.load(std::memory_order_acquire);
  values.received = received_.load(std::memory_order_relaxed);
  return values;
}

Counters::Counters() : slots_(std::make_unique<std::atomic<Node*>[]>(kSlots)) {}
Counters::~Counters() = default;

Counts& Counters::of(const CountKey& key) {
  const std::size_t hash = hash_of(key);
  if (Node* node = find(key, hash)) return node->counts;
  return add(key, hash);
}

Counters::Node* Counters::find(const CountKey& key, std::size_t hash) const {
  for (std::size_t i = hash;; ++i) {
    Node* node = slots_[i % kSlots].load(std::memory_order_acquire);
    if (node == nullptr || node->key() == key) return node;
  }
}

Counts& Counters::add(const CountKey& key, std::size_t hash) {
  if (key.run.size() + key.agent.size() > kMaxKeyBytes) return other_;
  std::lock_guard lock(adding_);
  if (Node* node = find(key, hash)) return node->counts;  // another thread was faster
  if (nodes_.size() >= kMaxKeys) return other_;
  nodes_.push_back(std::unique_ptr<Node>(
      new Node{std::string(key.run), std::string(key.agent), key.incarnation, {}}));
  std::size_t i = hash;
  while (slots_[i % kSlots].load(std::memory_order_relaxed) != nullptr) ++i;
  slots_[i % kSlots].store(nodes_.back().get(), std::memory_order_release);
  return nodes_.back()->counts;
}

std::vector<Counters::Entry> Counters::entries(std::string_view run) const {
  std::vector<Entry> found;
  {
    std::lock_guard lock(adding_);
    for (const auto& node : nodes_) {
      if (node->run == run)
        found.push_back({node->run, node->agent, node->incarnation, node->counts.read()});
    }
  }
  const Counts::Values other = other_.read();
  if (other.received > 0) found.push_back({"", "other", 0, other});
  return found;
}

}  // namespace spate::target_server
