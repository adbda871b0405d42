#pragma once

// Runs for the tests of what is made of records: agents that keep the laws unless told otherwise.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/random.h"
#include "controller/aggregate.h"

namespace spate::controller::test {

inline constexpr Duration kSecond = std::chrono::seconds(1);

inline Phase phase(std::string name, Duration length, bool measured = true,
                   std::uint64_t connections = 10) {
  Phase p;
  p.name = std::move(name);
  p.length = length;
  p.measured = measured;
  p.load.connections = connections;
  return p;
}

inline RunInfo run_info(std::size_t agents, std::vector<Phase> phases) {
  RunInfo info;
  info.id = "demo-20261130-102619-x7q2";
  info.plan.name = "demo";
  info.plan.target.url = "grpc://127.0.0.1:7000";
  info.plan.agents = static_cast<std::uint32_t>(agents);
  info.plan.phases = std::move(phases);
  info.plan_text = "{\"name\": \"demo\"}";
  info.state = RunState::finished;
  info.end = RunEnd::completed;
  info.started_wall_ms = 1'796'034'379'000;
  for (const auto& p : info.plan.phases) info.length += p.length;
  for (std::size_t i = 0; i < agents; ++i) {
    RunAgent a;
    a.name = "pc-" + std::to_string(i + 1);
    a.incarnation = 100 + i;
    a.start_skew_ns = 0;
    a.last_seq = 0;
    info.agents.push_back(std::move(a));
  }
  return info;
}

// One agent's records, one after the other.
class FakeAgent {
 public:
  explicit FakeAgent(std::string name, std::uint64_t incarnation)
      : name_(std::move(name)), incarnation_(incarnation) {}

  // What the next record shall say; in flight stays 0 unless `sent` differs from the outcomes.
  struct Interval {
    Duration start{};
    Duration length = kSecond;
    std::uint32_t phase = 0;
    std::uint32_t epoch = 1;
    bool drain = false;
    std::vector<std::pair<Outcome, std::int64_t>> requests{};  // outcome, latency
    std::optional<std::uint64_t> sent{};
    std::uint64_t requested = 10;
    std::uint64_t established = 10;
    std::int64_t send_lag = 1'000;
    std::uint64_t cpu_ns = 100'000'000;
  };

  Record next(const Interval& interval) {
    Record r;
    r.key = {"demo-20261130-102619-x7q2", name_, incarnation_, ++seq_};
    r.epoch = interval.epoch;
    r.phase = interval.phase;
    r.drain = interval.drain;
    r.start = interval.start;
    r.length = interval.length;
    for (const auto& [outcome, latency] : interval.requests) {
      r.series[index(outcome)].latency.record(latency);
      r.series[index(outcome)].service_time.record(latency - interval.send_lag);
      if (outcome != Outcome::ok) r.errors.add(outcome, 7, "went wrong");
    }
    auto& c = r.counters;
    c.sent = interval.sent.value_or(interval.requests.size());
    c.scheduled = c.sent;
    c.in_flight_begin = in_flight_;
    c.in_flight_end = in_flight_ + c.sent - interval.requests.size();
    in_flight_ = c.in_flight_end;
    c.bytes_sent = 100 * c.sent;
    c.bytes_received = 50 * interval.requests.size();
    if (seq_ == 1) c.connections_opened = interval.established;
    if (c.sent > 0) r.send_lag.record(interval.send_lag, c.sent);
    r.gauges = {interval.requested, interval.established, 20 << 20, interval.cpu_ns};
    return r;
  }
  void skip(std::uint64_t records) { seq_ += records; }
  std::uint64_t seq() const { return seq_; }

 private:
  std::string name_;
  std::uint64_t incarnation_;
  std::uint64_t seq_ = 0;
  std::uint64_t in_flight_ = 0;
};

inline std::vector<std::pair<Outcome, std::int64_t>> ok_requests(std::size_t n,
                                                                 std::int64_t latency = 2'000'000) {
  return std::vector<std::pair<Outcome, std::int64_t>>(n, {Outcome::ok, latency});
}

inline TargetSample target_sample(std::int64_t at_ns, std::string boot = "boot-1") {
  TargetSample s;
  s.at_ns = at_ns;
  s.boot_id = std::move(boot);
  s.allocator = "glibc";
  s.address_space_bytes = 200 << 20;
  s.rss_bytes = 100 << 20;
  return s;
}

// Two agents, `seconds` seconds, 5 requests each a second, everything balanced with the target.
inline Aggregate good_run(int seconds = 10, RunInfo info = {}) {
  if (info.agents.empty()) info = run_info(2, {phase("hold", seconds * kSecond)});
  for (auto& a : info.agents) a.last_seq = static_cast<std::uint64_t>(seconds);
  Aggregate run(info);
  std::vector<FakeAgent> agents;
  for (const auto& a : info.agents) agents.emplace_back(a.name, a.incarnation);
  run.add(target_sample(0));
  for (int s = 0; s < seconds; ++s) {
    for (auto& agent : agents) {
      FakeAgent::Interval interval;
      interval.start = s * kSecond;
      interval.requests = ok_requests(5, 1'000'000 + s * 10'000);
      run.add(agent.next(interval));
    }
    auto sample = target_sample((s + 1) * kSecond.count() + 1'000'000);
    sample.received = sample.completed = 10 * static_cast<std::uint64_t>(s + 1);
    sample.cpu_ns = 1'000'000 * sample.completed;
    for (const auto& a : info.agents) {
      const auto n = 5 * static_cast<std::uint64_t>(s + 1);
      sample.agents.push_back({a.name, a.incarnation, n, n, 0});
    }
    run.add(sample);
  }
  return run;
}

}  // namespace spate::controller::test
