#include "agent/crew.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <exception>
#include <utility>

#include "agent/process.h"

namespace spate::agent {

namespace asio = boost::asio;

namespace {

std::uint32_t most_threads(const Assignment& assignment) {
  std::uint32_t most = 0;
  for (const AssignedEpoch& e : assignment.epochs) most = std::max(most, e.parameters.threads);
  return most;
}

}  // namespace

Crew::Crew(asio::io_context& loop, std::shared_ptr<const Assignment> assignment, Report report,
           std::string memory)
    : loop_(loop),
      assignment_(std::move(assignment)),
      report_(std::move(report)),
      memory_(std::move(memory)),
      open_status_(assignment_->workers),
      merger_(assignment_->workers) {}

Crew::~Crew() = default;

WorkerCallbacks Crew::callbacks() {
  const std::weak_ptr<Crew> weak = weak_from_this();
  asio::io_context& loop = loop_;
  // From a worker's thread to the control thread, and there only to a crew that still listens.
  const auto posted = [weak, &loop](auto f) {
    return [weak, &loop, f](std::uint32_t worker, auto... arguments) {
      asio::post(loop, [weak, f, worker, ... a = std::move(arguments)]() mutable {
        const std::shared_ptr<Crew> crew = weak.lock();
        if (crew && crew->report_) f(*crew, worker, std::move(a)...);
      });
    };
  };
  WorkerCallbacks c;
  c.opening =
      posted([](Crew& crew, std::uint32_t w, OpenStatus s) { crew.opening(w, std::move(s)); });
  c.first_request =
      posted([](Crew& crew, std::uint32_t, Instant at) { crew.tell(FirstRequest{at}); });
  c.interval = posted([](Crew& crew, std::uint32_t w, Record r) { crew.closed(w, std::move(r)); });
  c.changed_over = posted(
      [](Crew& crew, std::uint32_t w, std::uint32_t, Instant at) { crew.changed_over(w, at); });
  c.drained = posted([](Crew& crew, std::uint32_t w) { crew.worker_drained(w); });
  return c;
}

// Of the worker that is made next.
std::shared_ptr<SlotRing> Crew::make_ring() {
  const auto worker = static_cast<std::uint32_t>(workers_.size());
  rings_.resize(workers_.size() + 1);
  if (memory_.empty()) return nullptr;
  auto ring = SlotRing::create(
      memory_, {assignment_->run, assignment_->agent, assignment_->incarnation, worker});
  if (ring)
    rings_.back() = *std::move(ring);
  else
    complaint_ = ring.error().message;
  return rings_.back();
}

Result<void> Crew::prepare(const Assignment& assignment) {
  const std::uint32_t count = most_threads(assignment);
  try {
    while (workers_.size() < count)
      workers_.push_back(std::make_unique<Worker>(static_cast<std::uint32_t>(workers_.size()),
                                                  assignment_, callbacks(), make_ring()));
  } catch (const std::exception& e) {
    return Error{ErrorCode::unavailable, "cannot start worker " +
                                             std::to_string(workers_.size() + 1) + " of " +
                                             std::to_string(count) + ": " + e.what() +
                                             "; use fewer threads, or raise this agent's limits"};
  }
  return {};
}

void Crew::open() {
  joined_ = assignment_->workers;
  for (std::uint32_t i = 0; i < joined_; ++i) workers_.at(i)->open();
}

void Crew::start_at(Instant t0, Instant begin, Duration drain) {
  cpu_ns_seen_ = cpu_ns();
  t0_ = t0;
  drain_ = drain;
  for (std::uint32_t i = 0; i < joined_; ++i) {
    workers_[i]->set_drain(drain);
    workers_[i]->start_at(t0, begin);
  }
}

void Crew::change(std::shared_ptr<const Assignment> next, std::uint32_t epoch, Instant at) {
  // What was to come at the same time or later is not going to be.
  for (Changing& c : changing_) c.at = std::min(c.at, at);
  changing_.push_back({epoch, at, {}});
  for (std::uint32_t i = 0; i < joined_; ++i) {
    changing_.back().missing.insert(i);
    merger_.join(i, at - t0_);
    workers_[i]->change(next, at);
  }
  for (const std::uint32_t most = most_threads(*next); joined_ < most; ++joined_) {
    Worker& worker = *workers_.at(joined_);
    merger_.join(joined_, at - t0_);
    worker.set_drain(drain_);
    worker.lease(lease_end_);
    worker.join(next, t0_, at);
  }
}

void Crew::lease(Instant end) {
  lease_end_ = end;
  for (std::uint32_t i = 0; i < joined_; ++i) workers_[i]->lease(end);
}

void Crew::stop(Instant at, Duration drain) {
  for (std::uint32_t i = 0; i < joined_; ++i) workers_[i]->stop(at, drain);
}

void Crew::release_intervals(const std::vector<std::uint64_t>& taken) {
  for (std::size_t i = 0; i < std::min(taken.size(), rings_.size()); ++i)
    if (rings_[i]) rings_[i]->release_through(taken[i]);
}

void Crew::release() {
  report_ = nullptr;
  workers_.clear();
}

void Crew::tell(Event event) {
  // A copy: what is told may release this crew, and with it the function that is running.
  if (const Report report = report_) report(std::move(event));
}

void Crew::opening(std::uint32_t worker, OpenStatus status) {
  open_status_[worker] = std::move(status);
  WorkersOpening all;
  all.settled = true;
  for (const OpenStatus& s : open_status_) {
    all.established += s.established;
    all.requested += s.requested;
    all.errors.merge(s.errors);
    all.settled = all.settled && s.settled;
  }
  tell(std::move(all));
}

void Crew::closed(std::uint32_t worker, Record record) {
  merger_.add(worker, std::move(record));
  report_records();
}

void Crew::changed_over(std::uint32_t worker, Instant at) {
  for (Changing& c : changing_)
    if (c.at <= at) c.missing.erase(worker);
  while (!changing_.empty() && changing_.front().missing.empty()) {
    const std::uint32_t epoch = changing_.front().epoch;
    changing_.pop_front();
    tell(ChangedOver{epoch, at});
  }
}

void Crew::worker_drained(std::uint32_t worker) {
  merger_.drained(worker);
  report_records();
  if (merger_.all_drained()) tell(WorkersDrained{});
}

void Crew::report_records() {
  for (auto& [r, taken] : merger_.take()) {
    r.gauges.max_rate_per_s = assignment_->max_rate_per_s;
    r.gauges.rss_bytes = rss_bytes();
    const std::uint64_t cpu = cpu_ns();
    r.gauges.cpu_ns = cpu - std::exchange(cpu_ns_seen_, cpu);
    tell(IntervalClosed{std::move(r), std::move(taken)});
  }
}

}  // namespace spate::agent
