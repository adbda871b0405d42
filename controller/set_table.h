#pragma once

// What each set of parameters did: a run's records added up by the parameters that their agents had
// in their epochs, whoever held them and whenever. The rows of a rotation's table. Pure.
//
// Two shares are one set if everything but their connections is the same: a rotation's set, or a
// set as a change left it. Memory grows with the sets, not with requests or time.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/record.h"
#include "common/timeline.h"
#include "controller/run_info.h"

namespace spate::controller {

inline constexpr std::size_t kMaxSetRows = 1'000;  // further ones share the last row

class SetTable {
 public:
  struct Row {
    std::uint32_t set = kNoSet;          // of the rotation
    std::uint32_t first_epoch = 0;       // in which it was planned
    Parameters parameters;               // load.connections: most at once, all its agents together
    std::string name;                    // "large-gzip", "large-gzip from epoch 7", "epoch 3"
    std::uint64_t sent = 0, failed = 0;  // with guard bands, warm-up and drain
    // In measured phases without guard bands and drain:
    std::uint64_t measured_sent = 0, measured_finished = 0, measured_answered = 0;
    std::uint64_t measured_bytes_sent = 0, measured_bytes_received = 0;
    Duration measured{};  // how long somebody held it
    Histogram latency;
    std::uint64_t rss_bytes_max = 0;  // of an agent that held it

    double rate_per_s() const;
    double bytes_per_request() const;
    double bytes_per_response() const;
    double bytes_per_s() const;
  };

  explicit SetTable(const RunInfo& info) { update(info); }

  // Agents and changes may become more while a run is live.
  void update(const RunInfo& info);
  // `settled`: it is measured.
  void add(const Record& record, bool settled);
  // Those that were used up to `end`, in the order of their sets.
  std::vector<Row> rows(Duration end) const;

 private:
  std::size_t row_of(const AgentShare& share, std::uint32_t epoch);

  std::vector<Row> rows_;
  std::vector<std::vector<std::size_t>> by_set_;  // rows of each set; last: of no set
  // By epoch and the agent's position.
  std::map<std::uint32_t, std::vector<std::size_t>> row_of_share_;
  std::vector<Segment> segments_;
  std::vector<bool> phase_is_measured_;
  std::map<std::string, std::size_t> position_of_;
  std::vector<std::string> set_names_;
  std::size_t changes_ = 0;
  std::int64_t started_wall_ms_ = 0;
  bool is_known_ = false;  // the timeline
};

}  // namespace spate::controller
