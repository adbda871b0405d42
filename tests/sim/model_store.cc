#include "tests/sim/model_store.h"

#include <algorithm>

namespace spate::sim {

using namespace std::chrono_literals;
namespace op = controller::store_op;

namespace {

// As the real one: controller/store.h.
constexpr Duration kCommitDelay = 50ms;
constexpr std::size_t kCommitEntries = 512;
constexpr Duration kRetry = 1s;

}  // namespace

ModelStore::ModelStore(World& world, StoreFile& file, StoreFaults& faults, Callbacks callbacks)
    : world_(world),
      file_(file),
      faults_(faults),
      callbacks_(std::move(callbacks)),
      term_(++file.term) {}

void ModelStore::put(controller::StoreOp one) {
  queue_.push_back({std::move(one)});
  schedule(queue_.size() >= kCommitEntries ? Duration::zero() : kCommitDelay);
}

void ModelStore::when_committed(std::function<void()> done) {
  queue_.push_back({std::move(done)});
  schedule(kCommitDelay);
}

void ModelStore::schedule(Duration delay) {
  if (is_scheduled_) return;
  is_scheduled_ = true;
  world_.after(delay, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self || self->is_dead_) return;
    self->is_scheduled_ = false;
    self->commit();
  });
}

void ModelStore::commit() {
  if (queue_.empty()) return;
  if (faults_.at_commit) faults_.at_commit(false);
  if (is_dead_) return;
  if (faults_.refuses) {
    if (!std::exchange(is_in_trouble_, true)) callbacks_.trouble("disk full");
    return schedule(kRetry);
  }
  if (file_.term != term_) {
    queue_.clear();
    return callbacks_.taken_over(file_.term);
  }
  std::vector<controller::Mark> marks;
  std::vector<std::function<void()>> barriers;
  for (std::size_t n = 0; n < kCommitEntries && !queue_.empty(); ++n) {
    Entry entry = std::move(queue_.front());
    queue_.pop_front();
    if (auto* done = std::get_if<std::function<void()>>(&entry.what)) {
      barriers.push_back(std::move(*done));
      continue;
    }
    auto& one = std::get<controller::StoreOp>(entry.what);
    if (const auto* record = std::get_if<op::PutRecord>(&one)) {
      const RecordKey& key = record->record.key;
      std::erase_if(marks, [&](const controller::Mark& m) {
        return m.run == key.run && m.agent == key.agent && m.incarnation == key.incarnation;
      });
      marks.push_back({key.run, key.agent, key.incarnation, key.seq});
    }
    apply(one);
  }
  if (faults_.at_commit) faults_.at_commit(true);
  if (is_dead_) return;
  if (std::exchange(is_in_trouble_, false)) callbacks_.recovered();
  report(std::move(marks), std::move(barriers));
  if (!queue_.empty()) schedule(Duration::zero());
}

void ModelStore::report(std::vector<controller::Mark> marks,
                        std::vector<std::function<void()>> barriers) {
  // COMMIT has happened; that it returned is known later, if the process lives.
  // In order: the writer is one thread.
  last_report_ =
      std::max(last_report_, world_.now() + faults_.commit_takes + world_.between(0ms, 1ms));
  world_.at(last_report_, [weak = weak_from_this(), marks = std::move(marks),
                           barriers = std::move(barriers)]() mutable {
    const auto self = weak.lock();
    if (!self || self->is_dead_) return;
    if (!marks.empty()) self->callbacks_.committed(std::move(marks));
    for (const auto& done : barriers) done();
  });
}

void ModelStore::apply(controller::StoreOp& one) {
  std::visit([this](auto& put) { apply_one(put); }, one);
}

void ModelStore::apply_one(op::PutRun& put) {
  const auto [it, is_new] = file_.runs.try_emplace(put.info.id);
  if (is_new) file_.order.push_back(put.info.id);
  // Changes are rows of their own: a row of the run that was written before one does not undo it.
  auto changes = std::move(it->second.info.changes);
  it->second.info = std::move(put.info);
  it->second.info.changes = std::move(changes);
  it->second.outcome = put.outcome;
}

void ModelStore::apply_one(op::PutRecord& put) {
  StoreFile::Run& run = file_.runs[put.record.key.run];
  const RecordKey key = put.record.key;
  std::uint64_t& mark = run.marks[{key.agent, key.incarnation}];
  if (key.seq <= mark)
    world_.violated("I2 no key twice", "seq " + std::to_string(key.seq) + " of " + key.agent + "/" +
                                           std::to_string(key.incarnation) +
                                           " committed again, mark " + std::to_string(mark));
  mark = key.seq;
  run.records.push_back(std::make_shared<const op::PutRecord>(std::move(put)));
}

void ModelStore::apply_one(op::PutDead& put) {
  for (controller::RunAgent& agent : file_.runs[put.run].info.agents)
    if (agent.name == put.agent) agent.dead.push_back(std::move(put.dead));
}

void ModelStore::apply_one(op::PutSample& put) {
  file_.runs[put.run].samples.push_back(std::move(put.sample));
}

void ModelStore::apply_one(op::PutDescriptors& put) {
  file_.runs[put.run].descriptor_set = std::move(put.descriptor_set);
}

void ModelStore::apply_one(op::PutAlive& put) { file_.alive_wall_ms = put.wall_ms; }

void ModelStore::apply_one(op::PutChange& put) {
  file_.runs[put.run].info.changes.push_back(std::move(put.change));
}

void ModelStore::apply_one(op::PutEpochs&) {}  // for people to read

void ModelStore::apply_one(op::PutEvent& put) {
  file_.runs[put.run].events.push_back(std::move(put.event));
}

}  // namespace spate::sim
