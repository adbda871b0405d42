#pragma once

// Records as a month-long flood would leave them, made fast: instead of drawing every request, the
// number in each bucket is drawn. For bench/month.cc and the test of how much a month takes.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "common/record.h"
#include "controller/rollup_policy.h"

namespace spate::controller::test {

class Flood {
 public:
  explicit Flood(std::uint64_t seed) : engine_(seed) {
    // The target is slower at some hours than at others.
    for (std::size_t i = 0; i < service_.size(); ++i) {
      std::lognormal_distribution<double> body(std::log(1.5e6 + 2e5 * static_cast<double>(i)), 0.7);
      service_[i] = shape([&] {
        double ns = body(engine_);
        if (engine_() % 100 == 0) ns += 2e7;  // a slow disk
        if (engine_() % 5'000 == 0) ns += 2e6 * static_cast<double>(engine_() % 100);  // a pause
        return ns;
      });
    }
    std::lognormal_distribution<double> lag(std::log(2e4), 0.9);
    lag_ = shape([&] { return lag(engine_); });
  }

  // `requests` of them, all ok, nothing in flight at the borders.
  Record record(RecordKey key, std::uint64_t first_seq, Duration start, Duration length,
                std::uint64_t requests) {
    Record r;
    r.key = std::move(key);
    r.first_seq = first_seq == r.key.seq ? 0 : first_seq;
    r.phase = 1;
    r.start = start;
    r.length = length;
    const auto hour = static_cast<std::size_t>(start / std::chrono::hours(1));
    const auto& service = service_[hour % service_.size()];
    auto& ok = r.series[index(Outcome::ok)];
    ok.latency = draw(service, requests);
    ok.service_time = draw(service, requests);
    r.send_lag = draw(lag_, requests);
    r.counters.scheduled = r.counters.sent = requests;
    r.counters.bytes_sent = 120 * requests;
    r.counters.bytes_received = 60 * requests;
    r.gauges = {200, 200, std::uint64_t{40} << 20, 300'000'000};
    return r;
  }

 private:
  struct Bar {
    std::int64_t value = 0;
    double share = 0;
  };
  using Shape = std::vector<Bar>;

  template <class Draw>
  static Shape shape(Draw draw_one) {
    constexpr int kDraws = 1'000'000;
    Histogram h;
    for (int i = 0; i < kDraws; ++i) h.record(static_cast<std::int64_t>(draw_one()));
    Shape bars;
    for (const auto& b : h.buckets())
      bars.push_back({b.lower, static_cast<double>(b.count) / kDraws});
    return bars;
  }

  Histogram draw(const Shape& bars, std::uint64_t requests) {
    Histogram h;
    std::uint64_t left = requests;
    const Bar* highest = &bars.front();
    for (const Bar& bar : bars) {
      if (bar.share > highest->share) highest = &bar;
      std::poisson_distribution<std::uint64_t> count(static_cast<double>(requests) * bar.share);
      const auto n = std::min(left, count(engine_));
      if (n > 0) h.record(bar.value, n);
      left -= n;
    }
    if (left > 0) h.record(highest->value, left);
    return h;
  }

  std::mt19937_64 engine_;
  std::array<Shape, 8> service_;
  Shape lag_;
};

// How long, counted back from the newest record, each of the tables reaches, and in what steps.
struct Stretch {
  Duration from{};  // age
  Duration to{};
  Duration width{};
};
inline std::array<Stretch, kRollupSteps + 1> stretches(const RollupPolicy& policy, Duration length,
                                                       Duration interval) {
  std::array<Stretch, kRollupSteps + 1> all;
  Duration from{};
  for (std::size_t i = 0; i <= kRollupSteps; ++i) {
    const auto to = i < kRollupSteps ? policy.steps[i].older_than : length;
    all[i] = {from, std::min(to, length), i == 0 ? interval : policy.steps[i - 1].width};
    from = all[i].to;
  }
  return all;
}

}  // namespace spate::controller::test
