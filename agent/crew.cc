#include "agent/crew.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>

#include "agent/process.h"

namespace spate::agent {

namespace asio = boost::asio;

Crew::Crew(asio::io_context& loop, std::shared_ptr<const Assignment> assignment, Report report)
    : loop_(loop),
      assignment_(std::move(assignment)),
      report_(std::move(report)),
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
  c.drained = posted([](Crew& crew, std::uint32_t w) { crew.worker_drained(w); });
  return c;
}

void Crew::open() {
  for (std::uint32_t i = 0; i < assignment_->workers; ++i)
    workers_.push_back(std::make_unique<Worker>(i, assignment_, callbacks()));
  for (const auto& w : workers_) w->open();
}

void Crew::start_at(Instant t0, Duration drain) {
  cpu_ns_seen_ = cpu_ns();
  for (const auto& w : workers_) {
    w->set_drain(drain);
    w->start_at(t0);
  }
}

void Crew::stop(Instant at, Duration drain) {
  for (const auto& w : workers_) w->stop(at, drain);
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

void Crew::worker_drained(std::uint32_t worker) {
  merger_.drained(worker);
  report_records();
  if (merger_.all_drained()) tell(WorkersDrained{});
}

void Crew::report_records() {
  for (Record& r : merger_.take()) {
    r.gauges.rss_bytes = rss_bytes();
    const std::uint64_t cpu = cpu_ns();
    r.gauges.cpu_ns = cpu - std::exchange(cpu_ns_seen_, cpu);
    tell(IntervalClosed{std::move(r)});
  }
}

}  // namespace spate::agent
