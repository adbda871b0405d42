#include "tests/sim/fake_crew.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/shares.h"
#include "tests/sim/fake_worker.h"

namespace spate::sim {

using namespace std::chrono_literals;

namespace {

// A worker's part of its agent's share: the connections of an epoch are divided among its threads.
ShareTimeline part_of(ShareTimeline timeline, std::size_t worker) {
  for (EpochShare& e : timeline.epochs) {
    const std::size_t threads = std::max<std::size_t>(1, e.parameters.threads);
    std::uint64_t& connections = e.parameters.load.connections;
    connections = worker < threads ? divide_equally(connections, threads)[worker] : 0;
  }
  return timeline;
}

std::size_t most_threads(const ShareTimeline& timeline) {
  std::size_t most = 1;
  for (const EpochShare& e : timeline.epochs)
    most = std::max<std::size_t>(most, e.parameters.threads);
  return most;
}

}  // namespace

FakeCrew::FakeCrew(Setting setting, agent::Prepare prepare, Client client)
    : setting_(std::move(setting)),
      prepare_(std::move(prepare)),
      client_(std::move(client)),
      merger_(most_threads(prepare_.timeline)) {}

FakeCrew::~FakeCrew() { release(); }

// In order, as asio::post() keeps it.
void FakeCrew::post(std::function<void()> what) {
  World& world = setting_.world;
  posted_until_ = std::max(posted_until_, world.now() + world.between(1us, 300us));
  world.at(posted_until_, [weak = weak_from_this(), what = std::move(what)]() mutable {
    const auto self = weak.lock();
    if (!self || self->is_released_) return;
    // It may have to wait there, and the crew be released meanwhile.
    self->setting_.in_control_thread([self, what = std::move(what)] {
      if (!self->is_released_) what();
    });
  });
}

// On a busy PC one hears of it late, when others have acted on it already.
void FakeCrew::order(std::size_t worker, std::function<void(FakeWorker&)> what) {
  World& world = setting_.world;
  const Duration takes = world.chance(0.02) ? world.between(0s, 60ms) : world.between(1us, 300us);
  ordered_until_.resize(workers_.size());
  Moment& at = ordered_until_[worker];
  at = std::max(at, world.now() + takes);
  world.at(at, [weak = weak_from_this(), worker, what = std::move(what)] {
    const auto self = weak.lock();
    if (!self || self->is_released_) return;
    const auto hear = [self, worker, what] {
      if (self->is_released_) return;
      what(*self->workers_[worker]);
      self->tell_load();
      self->wake_workers();
    };
    if (self->is_frozen_)
      self->unheard_.push_back(hear);
    else
      hear();
  });
}

void FakeCrew::add_worker(const ShareTimeline& timeline) {
  const std::size_t i = workers_.size();
  auto ring = agent::SlotRing::create(
      setting_.memory,
      {client_.run, client_.agent, client_.incarnation, static_cast<std::uint32_t>(i)});
  CHECK(ring.has_value(), ring.error().message);
  rings_.push_back(*std::move(ring));
  closed_.push_back(0);
  taken_.push_back(0);
  FakeWorker::Setting s{
      setting_.clock,
      setting_.world,
      setting_.target,
      client_,
      setting_.reaches_target,
      [this, i](Record r) { closed(i, std::move(r)); },
      [this, i] { drained(i); },
      [this](Instant at) { post([this, at] { setting_.report(agent::FirstRequest{at}); }); },
      [this, i](std::uint32_t, Instant at) { post([this, i, at] { changed_over(i, at); }); },
      rings_.back(),
      prepare_.interval,
      setting_.world.random()()};
  workers_.push_back(std::make_unique<FakeWorker>(std::move(s), part_of(timeline, i)));
}

void FakeCrew::open() {
  const std::size_t count = most_threads(prepare_.timeline);
  while (workers_.size() < count) add_worker(prepare_.timeline);
  listener_ = setting_.target.listen({[this] { settle(); },
                                      [this] {
                                        for (const auto& w : workers_) w->target_broke();
                                        tell_load();
                                      },
                                      [this] {
                                        for (const auto& w : workers_) w->target_is_back();
                                        tell_load();
                                      }});
  for (const auto& w : workers_) w->open();
  post([this] {
    agent::WorkersOpening opening;
    opening.requested = prepare_.timeline.epochs.front().parameters.load.connections;
    for (const auto& w : workers_) opening.established += w->established();
    opening.settled = true;
    setting_.report(std::move(opening));
  });
}

void FakeCrew::start_at(Instant t0, Instant begin, Duration drain) {
  t0_ = t0;
  drain_ = drain;
  for (const auto& w : workers_) w->start_at(t0, begin, drain);
  wake_workers();
}

// As agent/crew.cc does it.
void FakeCrew::change(const ShareTimeline& next, std::uint32_t epoch, Instant at) {
  for (Changing& c : changing_) c.at = std::min(c.at, at);
  changing_.push_back({epoch, at, {}});
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    changing_.back().missing.insert(i);
    merger_.join(i, at - t0_);
    order(i, [part = part_of(next, i), epoch, at](FakeWorker& w) { w.change(part, epoch, at); });
  }
  while (workers_.size() < most_threads(next)) {
    merger_.join(workers_.size(), at - t0_);
    add_worker(next);
    workers_.back()->start_at(t0_, at, drain_);
    workers_.back()->lease(lease_end_);
  }
  tell_load();
  wake_workers();
}

void FakeCrew::changed_over(std::size_t worker, Instant at) {
  for (Changing& c : changing_)
    if (c.at <= at) c.missing.erase(worker);
  while (!changing_.empty() && changing_.front().missing.empty()) {
    const std::uint32_t epoch = changing_.front().epoch;
    changing_.pop_front();
    setting_.report(agent::ChangedOver{epoch, at});
    if (is_released_) return;
  }
}

void FakeCrew::lease(Instant end) {
  lease_end_ = end;
  for (const auto& w : workers_) w->lease(end);
  tell_load();
  wake_workers();
}

void FakeCrew::stop(Instant at, Duration drain) {
  for (std::size_t i = 0; i < workers_.size(); ++i)
    order(i, [at, drain](FakeWorker& w) { w.stop(at, drain); });
}

void FakeCrew::release_intervals(const std::vector<std::uint64_t>& taken) {
  for (std::size_t i = 0; i < std::min(taken.size(), rings_.size()); ++i) {
    rings_[i]->release_through(taken[i]);
    taken_[i] = taken[i];
  }
}

bool FakeCrew::is_all_in_slots() const {
  for (std::size_t i = 0; i < rings_.size(); ++i)
    if (closed_[i] - taken_[i] + 1 > agent::SlotRing::kSlots) return false;
  return true;
}

void FakeCrew::settle() {
  if (is_frozen_ || is_released_) return;
  for (const auto& w : workers_) w->settle();
  tell_load();
  wake_workers();
}

// A timer at the next border of any worker; a little late, as timers are.
void FakeCrew::wake_workers() {
  Instant at = FakeWorker::kNever;
  for (const auto& w : workers_) at = std::min(at, w->wake_at());
  if (at == wake_at_ || is_frozen_ || is_released_) return;
  wake_at_ = at;
  if (at == FakeWorker::kNever) return;
  World& world = setting_.world;
  const Moment moment = setting_.clock.when(at, world.now()) + world.between(0us, 2ms);
  world.at(moment, [weak = weak_from_this(), at] {
    const auto self = weak.lock();
    if (!self || self->wake_at_ != at) return;
    self->wake_at_ = FakeWorker::kNever;
    self->settle();
  });
}

void FakeCrew::freeze() {
  settle();
  is_frozen_ = true;
  setting_.load({});
}

void FakeCrew::thaw() {
  is_frozen_ = false;
  wake_at_ = FakeWorker::kNever;
  for (const auto& w : workers_) w->slept();
  settle();
  for (const auto& hear : std::exchange(unheard_, {})) hear();
}

void FakeCrew::release() {
  if (is_released_) return;
  settle();
  is_released_ = true;
  setting_.target.forget(listener_);
  setting_.load({});
}

void FakeCrew::destroy() {
  release();
  workers_.clear();
  rings_.clear();
}

void FakeCrew::tell_load() {
  Load load;
  for (const auto& w : workers_) {
    load.leased += w->leased();
    load.calling += w->calling();
  }
  setting_.load(is_frozen_ ? Load{} : load);
}

void FakeCrew::closed(std::size_t worker, Record record) {
  ++closed_[worker];
  post([this, worker, record = std::move(record)]() mutable {
    merger_.add(worker, std::move(record));
    report_records();
  });
}

void FakeCrew::drained(std::size_t worker) {
  post([this, worker] {
    merger_.drained(worker);
    report_records();
    // The process may have died over what it was told.
    if (!is_released_ && merger_.all_drained()) setting_.report(agent::WorkersDrained{});
  });
}

void FakeCrew::report_records() {
  for (auto& [r, taken] : merger_.take()) {
    r.gauges.rss_bytes = 1 << 20;
    r.gauges.cpu_ns = 1'000'000;
    if (is_released_) return;
    const std::uint64_t sent = r.counters.sent;
    setting_.report(agent::IntervalClosed{std::move(r), std::move(taken)});
    handed_over_ += sent;
  }
}

}  // namespace spate::sim
