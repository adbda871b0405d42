#include "controller/aggregate.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

#include "common/record_sum.h"

namespace spate::controller {
namespace {

// An agent's interval may begin a little before its border by its own clock.
constexpr std::int64_t kBorderTolerance = 20;  // of an interval: one part in
constexpr std::size_t kMaxLawTexts = 5;
constexpr std::uint32_t kMaxLevel = 40;  // far beyond any run's length in intervals
constexpr std::size_t kNowhere = std::numeric_limits<std::size_t>::max();

void add_outcomes(std::array<std::uint64_t, kOutcomeCount>& into, const Record& record) {
  for (const auto o : kOutcomes) into[index(o)] += record.count(o);
}

// total - before + after, where a merge of points may have lost part of `before`.
std::uint64_t replaced(std::uint64_t total, std::uint64_t before, std::uint64_t after) {
  total += after;
  return total >= before ? total - before : 0;
}

Duration end_of(const Point& p) { return p.start + p.length; }

void widen(Point& p, Duration start, Duration end) {
  const auto last = std::max(end_of(p), end);
  p.start = std::min(p.start, start);
  p.length = last - p.start;
}

// `next` follows `p` in time. Of the states, those of the point that more agents reported count;
// with equally many, the later in-flight count and the fewer connections.
void merge_next(Point& p, std::uint32_t& contributors, const Point& next,
                std::uint32_t next_contributors) {
  const auto in_flight_begin = p.counters.in_flight_begin;
  widen(p, next.start, end_of(next));
  add_flows(p.counters, next.counters);
  for (std::size_t i = 0; i < kOutcomeCount; ++i) p.outcomes[i] += next.outcomes[i];
  p.latency.merge(next.latency);
  p.agent_cpu_ns += next.agent_cpu_ns;
  if (next_contributors == contributors) {
    p.connections_requested = std::max(p.connections_requested, next.connections_requested);
    p.connections_established = std::min(p.connections_established, next.connections_established);
    p.counters.in_flight_end = next.counters.in_flight_end;
  } else if (next_contributors > contributors) {
    p.connections_requested = next.connections_requested;
    p.connections_established = next.connections_established;
    p.counters.in_flight_end = next.counters.in_flight_end;
    contributors = next_contributors;
  }
  p.counters.in_flight_begin = in_flight_begin;
}

void add_gap(std::vector<Gap>& gaps, Gap gap) {
  if (gaps.size() < kMaxGapsPerAgent)
    gaps.push_back(std::move(gap));
  else
    gaps.back().to = gap.to;
}

}  // namespace

bool counts_for_latency(Outcome o) {
  return o == Outcome::ok || o == Outcome::application_error || o == Outcome::bad_response ||
         o == Outcome::timed_out;
}

std::uint64_t Point::failed() const {
  std::uint64_t n = 0;
  for (const auto o : kOutcomes)
    if (o != Outcome::ok && o != Outcome::cancelled) n += outcomes[index(o)];
  return n;
}

double Point::rate_per_s() const {
  return length.count() <= 0
             ? 0
             : static_cast<double>(ok() + failed()) / (static_cast<double>(length.count()) / 1e9);
}

double Aggregate::PhaseTotals::rate_per_s() const {
  return length.count() <= 0 ? 0
                             : static_cast<double>(finished - outcomes[index(Outcome::cancelled)]) /
                                   (static_cast<double>(length.count()) / 1e9);
}

Aggregate::Aggregate(const RunInfo& info) : info_(info), sets_(info) {}

bool Aggregate::is_measured(std::uint32_t phase) const {
  return phase >= info_.plan.phases.size() || info_.plan.phases[phase].measured;
}

std::size_t Aggregate::agent_index(const Record& record) {
  AgentId id{record.key.agent, record.key.incarnation};
  if (agents_.size() >= kMaxAccounts && !agent_of_.contains(id)) {
    const auto other = agent_of_.lower_bound({id.first, 0});
    if (other != agent_of_.end() && other->first.first == id.first) id.second = 0;
  }
  const auto [place, is_new] = agent_of_.try_emplace(id, agents_.size());
  if (is_new) {
    AgentTotals totals;
    totals.agent = id.first;
    totals.incarnation = id.second;
    agents_.push_back(std::move(totals));
    states_.emplace_back();
  }
  return place->second;
}

void Aggregate::check_laws(const Record& record, AgentState& state, bool is_one_chain) {
  auto broken = broken_laws(record);
  const auto expected = state.previous.key.seq + 1;
  if (!is_one_chain) {
    // Several processes share the account.
  } else if (record.first() > expected) {
    const auto last = record.first() - 1;
    add_gap(state.gaps,
            {record.key.agent, state.covered_to, record.start,
             last == expected ? fmt::format("record {} never came", last)
                              : fmt::format("records {} to {} never came", expected, last),
             record.key.incarnation});
  } else if (state.previous.key.seq > 0) {
    const auto chain = broken_chain(state.previous, record);
    broken.insert(broken.end(), chain.begin(), chain.end());
  }
  broken_law_count_ += broken.size();
  for (auto& text : broken) {
    if (broken_law_texts_.size() >= kMaxLawTexts) break;
    broken_law_texts_.push_back(
        fmt::format("agent {} record {}: {}", record.key.agent, record.key.seq, text));
  }
  state.previous.key = record.key;
  state.previous.counters = record.counters;
  state.previous.start = record.start;
  state.previous.length = record.length;
  state.previous.recovered = record.recovered;
}

void Aggregate::add(const Record& record) {
  const auto i = agent_index(record);
  auto& agent = agents_[i];
  const bool is_one_chain = agent.incarnation == record.key.incarnation;
  check_laws(record, states_[i], is_one_chain);

  const auto records = record.key.seq - record.first() + 1;
  if (agent.records == 0) agent.counters.in_flight_begin = record.counters.in_flight_begin;
  // Of several processes, each left what it left.
  agent.counters.in_flight_end =
      record.counters.in_flight_end +
      (is_one_chain ? 0 : agent.counters.in_flight_end - record.counters.in_flight_begin);
  agent.records += records;
  agent.last_seq = record.key.seq;
  add_flows(agent.counters, record.counters);
  add_outcomes(agent.outcomes, record);
  agent.cpu_ns += record.gauges.cpu_ns;
  agent.rss_bytes_max = std::max(agent.rss_bytes_max, record.gauges.rss_bytes);
  if (record.gauges.max_rate_per_s > 0) agent.max_rate_per_s = record.gauges.max_rate_per_s;

  records_ += records;
  agent_cpu_ns_ += record.gauges.cpu_ns;
  add_flows(totals_, record.counters);
  add_outcomes(outcomes_, record);
  errors_.merge(record.errors);

  place(record, i);
}

std::size_t Aggregate::slot_after(std::uint64_t bin, const Group& group) const {
  const auto place = std::upper_bound(slots_.begin(), slots_.end(), std::tie(bin, group),
                                      [](const auto& wanted, const PointSlot& s) {
                                        return wanted < std::tie(s.bins.first, s.group);
                                      });
  return static_cast<std::size_t>(place - slots_.begin());
}

std::size_t Aggregate::point_at(std::uint64_t bin, const Group& group) const {
  const auto shared = together(group);
  for (auto at = slot_after(bin, shared); at-- > 0;) {
    const auto& slot = slots_[at];
    if (slot.group == shared) return slot.bins.last >= bin ? at : kNowhere;
    if (bin - slot.bins.first >= longest_) break;
  }
  return kNowhere;
}

std::size_t Aggregate::point_for(Duration start, Duration length, const Group& group) {
  auto bins = bins_of(start, length);
  auto at = point_at(bins.first, group);
  while (at == kNowhere && points_.size() >= kMaxPoints && make_room()) {
    bins = bins_of(start, length);
    at = point_at(bins.first, group);
  }
  if (at == kNowhere) at = insert_point(bins, group, start);
  join_points(at, bins.last);
  return at;
}

std::size_t Aggregate::insert_point(const Bins& bins, const Group& group, Duration start) {
  const auto shared = together(group);
  const auto at = slot_after(bins.first, shared);
  Point fresh;
  fresh.start = start;
  fresh.phase = group.phase;
  fresh.epoch = group.epoch;
  fresh.guard = !group.settled;
  points_.insert(points_.begin() + static_cast<std::ptrdiff_t>(at), std::move(fresh));
  slots_.insert(slots_.begin() + static_cast<std::ptrdiff_t>(at),
                PointSlot{{bins.first, bins.first}, shared, 0});
  return at;
}

// Makes the point cover up to `last_bin`: those of its group in between become part of it.
void Aggregate::join_points(std::size_t into, std::uint64_t last_bin) {
  auto& slot = slots_[into];
  if (slot.bins.last >= last_bin) return;
  slot.bins.last = last_bin;
  for (auto next = into + 1; next < slots_.size() && slots_[next].bins.first <= slot.bins.last;) {
    if (slots_[next].group != slot.group) {
      ++next;
      continue;
    }
    merge_next(points_[into], slot.contributors, points_[next], slots_[next].contributors);
    slot.bins.last = std::max(slot.bins.last, slots_[next].bins.last);
    points_.erase(points_.begin() + static_cast<std::ptrdiff_t>(next));
    slots_.erase(slots_.begin() + static_cast<std::ptrdiff_t>(next));
  }
  longest_ = std::max(longest_, slot.bins.last - slot.bins.first + 1);
}

void Aggregate::place(const Record& record, std::size_t i) {
  auto& state = states_[i];
  // Answers of the drain belong to what their agent did last.
  const bool to_last = record.drain && state.placed;
  const auto& very_last = state.last[state.was_settled ? 1 : 0];
  const auto group = to_last
                         ? very_last.group
                         : Group{std::min(record.phase, static_cast<std::uint32_t>(kMaxPhases) - 1),
                                 record.epoch, !record.guard};
  const auto at = to_last ? point_for(very_last.start, Duration{}, group)
                          : point_for(record.start, record.length, group);
  stale_from_ = std::min(stale_from_, at);

  auto& point = points_[at];
  add_flows(point.counters, record.counters);
  add_outcomes(point.outcomes, record);
  point.agent_cpu_ns += record.gauges.cpu_ns;
  for (const auto o : kOutcomes) {
    if (!counts_for_latency(o)) continue;
    point.latency.merge(record.series[index(o)].latency);
    if (is_measured(group)) agents_[i].latency.merge(record.series[index(o)].latency);
  }
  // A guard band's requests are in the totals, and in no row of what was measured.
  if (group.settled) add_to_phase(record, group.phase);
  sets_.add(record, is_measured(group) && !record.drain);

  auto& mine = state.last[group.settled ? 1 : 0];
  const bool same_point = is_last_point(mine, at);
  if (!same_point) ++slots_[at].contributors;
  const bool same_share =
      !same_point && !state.placed && takes_over(agents_[i], mine, at, group.settled);
  place_states(record, mine, point, same_point, same_share);
  if (record.drain) return;

  widen(point, record.start, record.start + record.length);
  if (!state.placed) state.covered_from = record.start;
  state.placed = true;
  state.covered_to = std::max(state.covered_to, record.start + record.length);
  mine.is_set = true;
  mine.start = record.start;
  mine.group = group;
  state.was_settled = group.settled;
  agents_[i].covered += record.length;
  last_epoch_ = std::max(last_epoch_, record.epoch);
  if (!is_measured(group)) return;
  state.measured_cpu_ns += record.gauges.cpu_ns;
  state.measured += record.length;
}

// Whether the agent's process before this one has given the point its connections: they are the
// same share's.
bool Aggregate::takes_over(const AgentTotals& agent, AgentState::Last& last, std::size_t point,
                           bool settled) const {
  const auto here = agent_of_.find({agent.agent, agent.incarnation});
  if (here == agent_of_.begin() || std::prev(here)->first.first != agent.agent) return false;
  const auto& before = states_[std::prev(here)->second].last[settled ? 1 : 0];
  if (!is_last_point(before, point)) return false;
  last.gauges = before.gauges;
  return true;
}

bool Aggregate::is_last_point(const AgentState::Last& last, std::size_t point) const {
  return last.is_set && point_at(bins_of(last.start, Duration{}).first, last.group) == point;
}

// What is a state and not a sum: an agent's later record in the same point replaces what its
// earlier one gave, except that the fewest connections stay.
void Aggregate::place_states(const Record& record, AgentState::Last& last, Point& point,
                             bool same_point, bool same_share) {
  if (!same_point) {
    point.counters.in_flight_begin += record.counters.in_flight_begin;
    last.in_flight = 0;
  }
  if (!same_point && !same_share) {
    last.gauges = record.gauges;
    if (!record.drain) {
      point.connections_requested += record.gauges.connections_requested;
      point.connections_established += record.gauges.connections_established;
    }
  } else if (!record.drain) {
    auto& mine = last.gauges;
    const auto requested =
        std::max(mine.connections_requested, record.gauges.connections_requested);
    const auto established =
        std::min(mine.connections_established, record.gauges.connections_established);
    point.connections_requested =
        replaced(point.connections_requested, mine.connections_requested, requested);
    point.connections_established =
        replaced(point.connections_established, mine.connections_established, established);
    mine.connections_requested = requested;
    mine.connections_established = established;
  }
  point.counters.in_flight_end =
      replaced(point.counters.in_flight_end, last.in_flight, record.counters.in_flight_end);
  last.in_flight = record.counters.in_flight_end;
}

void Aggregate::add_to_phase(const Record& record, std::uint32_t phase) {
  if (phase >= phases_.size()) {
    const auto old = phases_.size();
    phases_.resize(phase + 1);
    for (auto i = old; i < phases_.size(); ++i) phases_[i].phase = static_cast<std::uint32_t>(i);
  }
  auto& totals = phases_[phase];
  add_flows(totals.counters, record.counters);
  add_outcomes(totals.outcomes, record);
  totals.finished += record.finished();
  for (const auto o : kOutcomes) {
    if (!counts_for_latency(o)) continue;
    totals.latency.merge(record.series[index(o)].latency);
    totals.service_time.merge(record.series[index(o)].service_time);
  }
  totals.send_lag.merge(record.send_lag);
  if (record.drain) return;
  const auto end = record.start + record.length;
  if (totals.length == Duration{}) {
    totals.start = record.start;
    totals.length = record.length;
  } else {
    const auto last = std::max(totals.start + totals.length, end);
    totals.start = std::min(totals.start, record.start);
    totals.length = last - totals.start;
  }
}

Aggregate::Bins Aggregate::bins_of(Duration start, Duration length) const {
  const auto interval = std::max<std::int64_t>(1, info_.plan.interval.count());
  const auto tolerance = interval / kBorderTolerance;
  const auto from = std::max<std::int64_t>(0, start.count() + tolerance);
  const auto to = std::max(from, (start + length).count() - tolerance);
  return {static_cast<std::uint64_t>(from / interval) >> level_,
          static_cast<std::uint64_t>(to / interval) >> level_};
}

// Doubles the width of a bin, or how many epochs share points where it is they that are many.
// False: a point per phase is left, and no more can be done.
bool Aggregate::make_room() {
  std::set<Group> groups;
  for (const auto& slot : slots_) groups.insert(slot.group);
  if (groups.size() > kMaxPoints / 2 && groups.rbegin()->epoch > 0) {
    ++epoch_level_;
    for (auto& slot : slots_) slot.group.epoch >>= 1;
  } else if (level_ <= kMaxLevel) {
    ++level_;
    longest_ = longest_ / 2 + 1;
    for (auto& slot : slots_) {
      slot.bins.first >>= 1;
      slot.bins.last >>= 1;
    }
  } else {
    return false;
  }
  merge_neighbours();
  return true;
}

// After a change of what bins and groups are: points of one group that now share a bin become one.
void Aggregate::merge_neighbours() {
  std::vector<Point> points;
  std::vector<PointSlot> slots;
  std::map<Group, std::size_t> latest;  // of each group
  for (std::size_t i = 0; i < points_.size(); ++i) {
    const auto slot = slots_[i];
    const auto [of_group, is_first] = latest.try_emplace(slot.group, slots.size());
    auto& before = of_group->second;
    if (!is_first && slots[before].bins.last >= slot.bins.first) {
      merge_next(points[before], slots[before].contributors, points_[i], slot.contributors);
      slots[before].bins.last = std::max(slots[before].bins.last, slot.bins.last);
    } else {
      before = slots.size();
      points.push_back(std::move(points_[i]));
      slots.push_back(slot);
    }
  }
  points_ = std::move(points);
  slots_ = std::move(slots);
  // Groups that shared no bin may do so now, or be another's neighbour.
  std::vector<std::size_t> order(slots_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto is_before = [this](std::size_t a, std::size_t b) {
    return std::tie(slots_[a].bins.first, slots_[a].group) <
           std::tie(slots_[b].bins.first, slots_[b].group);
  };
  if (!std::is_sorted(order.begin(), order.end(), is_before)) {
    std::stable_sort(order.begin(), order.end(), is_before);
    std::vector<Point> sorted_points;
    std::vector<PointSlot> sorted_slots;
    for (const auto i : order) {
      sorted_points.push_back(std::move(points_[i]));
      sorted_slots.push_back(slots_[i]);
    }
    points_ = std::move(sorted_points);
    slots_ = std::move(sorted_slots);
  }
  stale_from_ = 0;
}

const std::vector<Point>& Aggregate::points() const {
  const auto covers = [this](const AgentState& s, const Point& p) {
    const auto slack = std::min<Duration>(info_.plan.interval / 5, p.length / 2);
    const auto from = p.start + slack;
    const auto to = end_of(p) - slack;
    if (!s.placed || s.covered_from > from || s.covered_to < to) return false;
    return std::none_of(s.gaps.begin(), s.gaps.end(),
                        [&](const Gap& g) { return g.from < to && g.to > from; });
  };
  for (; stale_from_ < points_.size(); ++stale_from_) {
    auto& point = points_[stale_from_];
    point.agents_reporting = static_cast<std::uint32_t>(std::count_if(
        states_.begin(), states_.end(), [&](const AgentState& s) { return covers(s, point); }));
  }
  return points_;
}

std::vector<Aggregate::PhaseTotals> Aggregate::phases() const {
  std::vector<PhaseTotals> result;
  for (const auto& totals : phases_)
    if (totals.finished > 0 || totals.length > Duration{} || totals.counters.scheduled > 0)
      result.push_back(totals);
  std::map<std::uint32_t, PhaseTotals*> row_of;
  std::map<std::uint32_t, Duration> guarded;
  for (auto& row : result) row_of[row.phase] = &row;
  for (const auto& p : points_) {
    const auto found = row_of.find(p.phase);
    if (found == row_of.end()) continue;
    auto& row = *found->second;
    if (p.guard) {
      // Between two stretches that were measured: none of the time that they took.
      const auto from = std::max(p.start, row.start);
      const auto to = std::min(end_of(p), row.start + row.length + guarded[p.phase]);
      if (to <= from) continue;
      row.length -= to - from;
      guarded[p.phase] += to - from;
      continue;
    }
    // With fewer requested, an agent's record is missing: that is a gap, not a lost connection.
    if (p.connections_requested < row.connections_requested) continue;
    const bool first = p.connections_requested > row.connections_requested;
    row.connections_requested = p.connections_requested;
    row.connections_established =
        first ? p.connections_established
              : std::min(row.connections_established, p.connections_established);
  }
  return result;
}

Duration Aggregate::end() const {
  Duration last = info_.length;
  for (const auto& p : points_) last = std::max(last, end_of(p));
  return last;
}

const DeadIncarnation* Aggregate::dead(const std::string& agent, std::uint64_t incarnation) const {
  for (const auto& a : info_.agents) {
    if (a.name != agent) continue;
    for (const auto& d : a.dead)
      if (d.incarnation == incarnation) return &d;
  }
  return nullptr;
}

std::size_t Aggregate::agent_count() const {
  std::set<std::string_view> names;
  for (const auto& a : info_.agents) names.insert(a.name);
  for (const auto& a : agents_) names.insert(a.agent);
  return names.size();
}

// What is missing at the end of what each process of an agent sent.
void Aggregate::end_gaps(const RunAgent& a, std::vector<Gap>& gaps) const {
  const bool ended = info_.state == RunState::finished;
  const bool started = info_.started_wall_ms != 0 || !points_.empty();
  const auto last = end();
  const auto state_of = [&](std::uint64_t incarnation) {
    const auto found = agent_of_.find({a.name, incarnation});
    return found == agent_of_.end() ? nullptr : &states_[found->second];
  };
  const auto* state = state_of(a.incarnation);
  const auto* next = state;
  for (auto d = a.dead.rbegin(); d != a.dead.rend(); ++d) {
    const auto* dead = state_of(d->incarnation);
    const auto seq = dead == nullptr ? 0 : dead->previous.key.seq;
    const auto from = dead == nullptr ? Duration{} : dead->covered_to;
    const auto to = next == nullptr || !next->placed ? last : next->covered_from;
    if (dead != nullptr) next = dead;
    if (d->last_seq && *d->last_seq > seq)
      gaps.push_back({a.name, from, std::max(from, to),
                      fmt::format("its process died ({}); its last record was {}, the last that "
                                  "came {}",
                                  d->cause, *d->last_seq, seq),
                      d->incarnation});
    else if (ended && !d->last_seq)
      gaps.push_back({a.name, from, std::max(from, to),
                      fmt::format("its process died ({}) and nobody has said how many records it "
                                  "had",
                                  d->cause),
                      d->incarnation});
  }
  const auto from = state == nullptr ? Duration{} : state->covered_to;
  const auto seq = state == nullptr ? 0 : state->previous.key.seq;
  const auto add = [&](std::string cause) {
    gaps.push_back({a.name, from, std::max(from, last), std::move(cause), a.incarnation});
  };
  if (!a.lost_reason.empty() && !a.last_seq)
    add("agent lost: " + a.lost_reason);
  else if (a.last_seq && *a.last_seq > seq)
    add(fmt::format("its last record was {}, the last that came {}", *a.last_seq, seq));
  else if (ended && started && !a.last_seq)
    add(seq == 0 ? "no record ever came" : "it never said that it had finished");
}

std::vector<Gap> Aggregate::gaps() const {
  std::vector<Gap> result;
  for (const auto& state : states_)
    result.insert(result.end(), state.gaps.begin(), state.gaps.end());
  for (const auto& a : info_.agents) end_gaps(a, result);
  std::stable_sort(result.begin(), result.end(),
                   [](const Gap& a, const Gap& b) { return a.from < b.from; });
  return result;
}

std::vector<Absence> Aggregate::absences() const {
  std::vector<Absence> result;
  for (auto one = agent_of_.begin(); one != agent_of_.end(); ++one) {
    const auto next = std::next(one);
    if (next == agent_of_.end() || next->first.first != one->first.first) continue;
    const auto& before = states_[one->second];
    const auto& after = states_[next->second];
    if (!before.placed || !after.placed || after.covered_from <= before.covered_to) continue;
    const auto* died = dead(one->first.first, one->first.second);
    result.push_back({one->first.first, before.covered_to, after.covered_from,
                      died == nullptr || died->cause.empty() ? "its process ended" : died->cause});
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const Absence& a, const Absence& b) { return a.from < b.from; });
  return result;
}

}  // namespace spate::controller
