#pragma once

// The live line of each interval: collects what the agents report of it and says when it is
// complete. Pure; on the control loop; one per live run. Intervals are counted from the run's
// common start.
//
// A line is due when every live agent has reported the interval to its end, or when it is
// kMaxLateness intervals old. Records that come later are in the totals, not in a line of their
// own. Keeps at most kMaxOpen intervals: an older one is given out as it is. The last bit of a
// drain, shorter than half an interval, gets no line: its rate would be one of milliseconds.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/record.h"

namespace spate::controller {

// What people see of one interval of the whole cluster.
struct ProgressLine {
  Duration elapsed{};
  Duration planned{};
  std::string phase;
  bool measured = false;
  std::uint32_t epoch = 0;
  std::uint32_t agents_reporting = 0;
  std::uint32_t agents = 0;
  std::uint64_t connections_requested = 0;
  std::uint64_t connections_established = 0;
  double rate_per_s = 0;
  std::uint64_t ok = 0;
  std::uint64_t failed = 0;
  std::int64_t latency_p50_ns = 0;
  std::int64_t latency_p99_ns = 0;
  std::int64_t latency_max_ns = 0;
  std::uint64_t target_address_space_bytes = 0;
  std::uint64_t target_rss_bytes = 0;
  double bytes_sent_per_s = 0;
  double bytes_received_per_s = 0;
  std::uint64_t requests_total = 0;
};

class Progress {
 public:
  static constexpr double kMaxLateness = 1.5;
  static constexpr std::size_t kMaxOpen = 64;

  Progress(Duration interval, Duration planned) : interval_(interval), planned_(planned) {}

  // Goes on after `elapsed` of a run with so many finished requests.
  void resume(Duration elapsed, std::uint64_t finished);
  void add(const Record& record);
  // Lines that are complete at `elapsed` since the start, oldest first; phase names and the
  // target's memory are left to the caller.
  struct Due {
    ProgressLine line;
    std::uint32_t phase = 0;
    bool drain = false;
  };
  std::vector<Due> take_due(Duration elapsed, std::size_t live_agents, bool is_over);

 private:
  struct Slot {
    std::map<std::string, Duration> reported_to;  // per agent, end of its last record in here
    std::map<std::string, Gauges> gauges;         // per agent, the last
    std::uint32_t phase = 0;
    std::uint32_t epoch = 0;
    bool drain = true;  // nothing but drain
    std::uint64_t ok = 0;
    std::uint64_t failed = 0;
    std::uint64_t bytes_sent = 0;
    std::uint64_t bytes_received = 0;
    Histogram latency;
  };
  Due line_of(std::int64_t number, const Slot& slot) const;

  Duration interval_;
  Duration planned_;
  std::int64_t next_ = 0;  // the oldest interval without a line
  std::uint64_t total_ = 0;
  std::map<std::int64_t, Slot> slots_;
};

}  // namespace spate::controller
