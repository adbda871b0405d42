// From what an Aggregate holds to the summary: totals, verdict, thresholds, exit code.

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <map>

#include "common/units.h"
#include "controller/aggregate.h"
#include "controller/verdict.h"

namespace spate::controller {
namespace {

constexpr int kExitInvalid = 3;
constexpr int kExitThreshold = 99;
constexpr int kExitStopped = 105;

LatencySummary summarize(const Histogram& h) {
  return {h.mean(),         h.quantile(0.50),  h.quantile(0.90),
          h.quantile(0.99), h.quantile(0.999), h.max()};
}

double seconds(Duration d) { return static_cast<double>(d.count()) / 1e9; }

double per(std::uint64_t amount_ns, std::uint64_t requests) {
  return requests == 0 ? 0 : static_cast<double>(amount_ns) / 1e3 / static_cast<double>(requests);
}

std::uint64_t failed_of(const std::array<std::uint64_t, kOutcomeCount>& outcomes) {
  std::uint64_t n = 0;
  for (const auto o : kOutcomes)
    if (o != Outcome::ok && o != Outcome::timed_out && o != Outcome::cancelled)
      n += outcomes[index(o)];
  return n;
}

// All measured phases as one.
struct Measured {
  Histogram latency, service_time, send_lag;
  std::uint64_t finished = 0, ok = 0;
  Duration length{};

  double rate_per_s() const {
    return length.count() <= 0 ? 0 : static_cast<double>(finished) / seconds(length);
  }
};

double measure(const Threshold& t, const Measured& m) {
  const auto of = [&](const Histogram& h) {
    switch (t.statistic) {
      case Threshold::Statistic::quantile:
        return static_cast<double>(h.quantile(t.quantile));
      case Threshold::Statistic::mean:
        return h.mean();
      case Threshold::Statistic::max:
        return static_cast<double>(h.max());
      case Threshold::Statistic::rate:
        break;
    }
    return 0.0;
  };
  switch (t.metric) {
    case Threshold::Metric::latency:
      return of(m.latency);
    case Threshold::Metric::service_time:
      return of(m.service_time);
    case Threshold::Metric::send_lag:
      return of(m.send_lag);
    case Threshold::Metric::errors:
      return m.finished == 0
                 ? 0
                 : static_cast<double>(m.finished - m.ok) / static_cast<double>(m.finished);
    case Threshold::Metric::requests:
      return m.rate_per_s();
  }
  return 0;
}

std::string shown(const Threshold& t, double value) {
  if (t.metric == Threshold::Metric::errors) return fmt::format("{:.3g} %", value * 100);
  if (t.metric == Threshold::Metric::requests) return fmt::format("{:.1f}/s", value);
  return format_latency(static_cast<std::int64_t>(value));
}

void fill_thresholds(const Plan& plan, const Measured& m, Summary& summary) {
  for (const auto& t : plan.thresholds) {
    const double value = measure(t, m);
    // A distribution of nothing passes no limit.
    const bool known = t.metric == Threshold::Metric::requests || m.finished > 0;
    const bool passed =
        known && (t.comparison == Threshold::Comparison::less ? value < t.bound : value > t.bound);
    auto text = fmt::format("{} (was {})", t.text, known ? shown(t, value) : "no request");
    (passed ? summary.passed_thresholds : summary.failed_thresholds).push_back(std::move(text));
  }
}

struct Skew {
  std::int64_t spread_ns = 0;
  std::int64_t bound_ns = 0;  // of both ends
};

Skew start_skew(const RunInfo& info) {
  const RunAgent* first = nullptr;
  const RunAgent* last = nullptr;
  for (const auto& a : info.agents) {
    if (!a.start_skew_ns) continue;
    if (first == nullptr || *a.start_skew_ns < *first->start_skew_ns) first = &a;
    if (last == nullptr || *a.start_skew_ns > *last->start_skew_ns) last = &a;
  }
  if (first == nullptr || first == last) return {};
  return {*last->start_skew_ns - *first->start_skew_ns,
          first->clock_bound_ns + last->clock_bound_ns};
}

std::string phase_name(const RunInfo& info, std::uint32_t phase) {
  return phase < info.plan.phases.size() ? info.plan.phases[phase].name : fmt::format("{}", phase);
}

// Error texts come from the target; on a terminal a control character is a command.
std::string printable(std::string text) {
  for (auto& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  return text;
}

bool is_encrypted(const std::string& url) { return url.rfind("grpcs:", 0) == 0; }

void add_process(AgentTotals& into, const AgentTotals& a) {
  into.counters.sent += a.counters.sent;
  into.counters.bytes_sent += a.counters.bytes_sent;
  into.counters.bytes_received += a.counters.bytes_received;
  into.counters.held += a.counters.held;
  into.counters.held_ns += a.counters.held_ns;
  if (a.max_rate_per_s > 0) into.max_rate_per_s = a.max_rate_per_s;
  for (const auto o : kOutcomes) into.outcomes[index(o)] += a.outcomes[index(o)];
  into.latency.merge(a.latency);
  into.rss_bytes_max = std::max(into.rss_bytes_max, a.rss_bytes_max);
  into.covered += a.covered;
}

Summary::ShareRow row_of(const AgentTotals& a) {
  Summary::ShareRow row;
  std::uint64_t finished = 0;
  for (const auto o : kOutcomes)
    if (o != Outcome::cancelled) finished += a.outcomes[index(o)];
  const std::uint64_t answered = a.outcomes[index(Outcome::ok)] +
                                 a.outcomes[index(Outcome::application_error)] +
                                 a.outcomes[index(Outcome::bad_response)];
  const auto ratio = [](std::uint64_t n, std::uint64_t of) {
    return of == 0 ? 0 : static_cast<double>(n) / static_cast<double>(of);
  };
  row.requests = a.counters.sent;
  row.failed = finished - a.outcomes[index(Outcome::ok)];
  row.bytes_per_request = ratio(a.counters.bytes_sent, a.counters.sent);
  row.bytes_per_response = ratio(a.counters.bytes_received, answered);
  if (a.covered > Duration::zero()) {
    row.rate_per_s = static_cast<double>(finished) / seconds(a.covered);
    row.bytes_per_s =
        static_cast<double>(a.counters.bytes_sent + a.counters.bytes_received) / seconds(a.covered);
  }
  row.p50 = a.latency.quantile(0.5);
  row.p99 = a.latency.quantile(0.99);
  row.memory_bytes = a.rss_bytes_max;
  return row;
}

// Whether sets, agents and target add up.
std::string sum_text(const Summary& s, std::uint64_t of_sets, std::uint64_t of_agents) {
  std::string text = fmt::format("the sets' requests add up to {}", format_count(of_sets));
  text += of_sets == of_agents
              ? ", the agents' to the same"
              : fmt::format(", the agents' to {}: {} were of no planned epoch",
                            format_count(of_agents), format_count(of_agents - of_sets));
  if (!s.target.known) return text + "; the target was not asked";
  if (s.target.received == of_agents) return text + ", and the target received exactly these";
  const bool more = s.target.received > of_agents;
  return text +
         fmt::format(
             "; the target received {}, {} {}: {}", format_count(s.target.received),
             format_count(more ? s.target.received - of_agents : of_agents - s.target.received),
             more ? "more" : "fewer",
             s.balance_lines.empty() ? std::string(name(s.balance)) : s.balance_lines.front());
}

int exit_code(const RunInfo& info, const Summary& s) {
  if (info.end == RunEnd::stopped) return kExitStopped;
  if (s.verdict == Verdict::invalid) return kExitInvalid;
  if (!s.failed_thresholds.empty()) return kExitThreshold;
  return 0;
}

}  // namespace

void Aggregate::fill_measured(Summary& s) const {
  Measured all;
  for (const auto& p : phases()) {
    Summary::PhaseRow row;
    row.name = phase_name(info_, p.phase);
    row.measured = is_measured(p.phase);
    row.length_s = seconds(p.length);
    row.connections_requested = p.connections_requested;
    row.connections_established = p.connections_established;
    row.ok = p.outcomes[index(Outcome::ok)];
    row.failed = p.finished - row.ok - p.outcomes[index(Outcome::cancelled)];
    row.rate_per_s = p.rate_per_s();
    row.latency = summarize(p.latency);
    s.phases.push_back(std::move(row));
    if (!is_measured(p.phase)) continue;
    all.latency.merge(p.latency);
    all.service_time.merge(p.service_time);
    all.send_lag.merge(p.send_lag);
    all.finished += p.finished - p.outcomes[index(Outcome::cancelled)];
    all.ok += p.outcomes[index(Outcome::ok)];
    all.length += p.length;
  }
  s.rate_per_s = all.rate_per_s();
  s.latency = summarize(all.latency);
  s.service_time = summarize(all.service_time);
  s.send_lag = summarize(all.send_lag);
  fill_thresholds(info_.plan, all, s);
}

void Aggregate::fill_target(Summary& s) const {
  if (samples_.empty()) return;
  const auto& last = samples_.back();
  auto& t = s.target;
  t.known = true;
  t.allocator = last.allocator;
  for (const auto& [id, counts] : target_counts()) {
    t.received += counts.received;
    t.completed += counts.completed;
  }
  t.address_space_bytes = last.address_space_bytes;
  t.rss_bytes = last.rss_bytes;
  t.address_space_bytes_max = address_space_max_;
  t.rss_bytes_max = rss_max_;
  t.restarts = target_restarts();
  const auto grown = [](std::uint64_t now, std::uint64_t base) {
    return now > base ? now - base : 0;
  };
  t.cpu_us_per_request = per(closed_cpu_ns_ + grown(last.cpu_ns, boot_base_.cpu_ns),
                             closed_completed_ + grown(last.completed, boot_base_.completed));
}

std::map<std::string, AgentTotals> Aggregate::by_agent() const {
  std::map<std::string, AgentTotals> agents;
  for (const auto& a : agents_) add_process(agents[a.agent], a);
  return agents;
}

void Aggregate::fill_sets(Summary& s) const {
  const auto rows = sets();
  if (rows.size() < 2 && !info_.plan.rotation) return;
  std::uint64_t accounted = 0;
  for (const auto& row : rows) {
    const Parameters& p = row.parameters;
    accounted += row.sent;
    s.sets.push_back({row.name, p.load.connections, is_encrypted(p.target_url), p.call.compress,
                      row.sent, row.failed, row.bytes_per_request(), row.bytes_per_response(),
                      row.rate_per_s(), row.bytes_per_s(), row.latency.quantile(0.5),
                      row.latency.quantile(0.99), row.rss_bytes_max});
    s.server.encrypted = s.server.encrypted || s.sets.back().encrypted;
    s.server.compressed = s.server.compressed || s.sets.back().compressed;
  }
  for (const auto& [name, totals] : by_agent()) {
    Summary::ShareRow row = row_of(totals);
    row.name = name;
    for (const auto& a : info_.agents)
      if (a.name == name) row.connections = a.connections_requested;
    s.set_agents.push_back(std::move(row));
  }
  const double length = s.duration_s;
  s.server.name = "server";
  s.server.connections = s.connections.requested;
  s.server.requests = s.target.known ? s.target.received : totals_.sent;
  s.server.failed = s.requests.failed + s.requests.timed_out;
  s.server.memory_bytes = s.target.rss_bytes_max;
  if (length > 0) {
    s.server.rate_per_s = static_cast<double>(s.server.requests) / length;
    s.server.bytes_per_s =
        static_cast<double>(totals_.bytes_sent + totals_.bytes_received) / length;
  }
  s.sets_total = sum_text(s, accounted, totals_.sent);
}

void Aggregate::judge_run(Summary& s, const std::vector<Gap>& all_gaps) const {
  VerdictFacts f;
  f.ended = info_.state == RunState::finished;
  f.end = info_.end;
  f.end_reason = info_.end_reason;
  for (const auto o : kOutcomes)
    if (o != Outcome::cancelled) f.finished_requests += outcomes_[index(o)];
  for (const auto& a : info_.agents) {
    if (!a.lost_reason.empty())
      f.lost.push_back({a.name, a.lost_reason, a.lost_at_ns.value_or(0), a.lost_at_ns.has_value()});
    if (a.clock_bound_ns > f.worst_clock.bound_ns) f.worst_clock = {a.name, a.clock_bound_ns};
  }
  const auto was_lost = [&](const std::string& agent) {
    return std::any_of(f.lost.begin(), f.lost.end(),
                       [&](const auto& l) { return l.agent == agent; });
  };
  for (const auto& gap : all_gaps)
    if (!was_lost(gap.agent)) f.gaps.push_back(gap);
  f.absences = absences();
  f.broken_laws = broken_law_count_;
  if (!broken_law_texts_.empty()) f.first_broken_law = broken_law_texts_.front();
  for (const auto& e : events_) {
    // What a rule of its own already names is not said twice.
    if (e.severity != RunEvent::Severity::error) continue;
    if (e.text.starts_with("agent lost") || e.text.starts_with("records missing")) continue;
    // What it could not take stayed with the agents. If some of it never came, that is a gap.
    if (e.text.starts_with("cannot write the store")) continue;
    f.error_events.push_back(e.text);
  }
  f.balance = s.balance;
  if (!s.balance_lines.empty()) f.balance_line = s.balance_lines.front();

  double worst = 1;
  for (const auto& p : points_) {
    if (!is_measured(p.phase) || p.guard || p.connections_requested == 0) continue;
    const auto share = static_cast<double>(p.connections_established) /
                       static_cast<double>(p.connections_requested);
    if (share >= worst) continue;
    worst = share;
    f.worst_connections = {p.connections_requested, p.connections_established,
                           phase_name(info_, p.phase), (p.start + p.length).count()};
  }
  f.send_lag_p99_ns = s.send_lag.p99;
  const auto threads = std::max(1U, info_.plan.threads);
  for (std::size_t i = 0; i < agents_.size(); ++i) {
    if (states_[i].measured.count() <= 0) continue;
    const double share = static_cast<double>(states_[i].measured_cpu_ns) /
                         (static_cast<double>(states_[i].measured.count()) * threads);
    if (share > f.busiest_agent.share) f.busiest_agent = {agents_[i].agent, share, threads};
  }
  for (const auto& [agent, a] : by_agent())
    if (a.counters.held > 0)
      f.capped.push_back({agent, a.max_rate_per_s, a.counters.sent, a.counters.held,
                          static_cast<std::int64_t>(a.counters.held_ns / a.counters.held)});
  const auto skew = start_skew(info_);
  f.start_skew_ns = skew.spread_ns;
  f.start_skew_bound_ns = skew.bound_ns;
  f.target_restarts = target_restarts();

  auto judgement = judge(f);
  s.verdict = judgement.verdict;
  s.reasons = std::move(judgement.reasons);
}

Summary Aggregate::summary() const {
  Summary s;
  s.run = info_.id;
  s.plan = info_.plan.name;
  if (info_.started_wall_ms != 0) s.started_at = rfc3339(info_.started_wall_ms);
  s.duration_s = seconds(info_.length > Duration{} ? info_.length : end());
  s.agents = static_cast<std::uint32_t>(agent_count());
  s.epochs = last_epoch_;

  for (const auto& p : points_) {
    if (p.connections_requested < s.connections.requested) continue;
    if (p.connections_requested > s.connections.requested) s.connections.established = 0;
    s.connections.requested = p.connections_requested;
    s.connections.established = std::max(s.connections.established, p.connections_established);
  }
  if (points_.empty())
    for (const auto& a : info_.agents) {
      s.connections.requested += a.connections_requested;
      s.connections.established += a.connections_established;
    }
  s.connections.opened = totals_.connections_opened;
  s.connections.closed = totals_.connections_closed;

  s.requests.scheduled = totals_.scheduled;
  s.requests.sent = totals_.sent;
  s.requests.ok = outcomes_[index(Outcome::ok)];
  s.requests.failed = failed_of(outcomes_);
  s.requests.timed_out = outcomes_[index(Outcome::timed_out)];
  s.requests.cancelled = outcomes_[index(Outcome::cancelled)];
  s.requests.missed = totals_.missed();
  s.requests.held = totals_.held;
  s.requests.held_ns_mean =
      totals_.held == 0 ? 0
                        : static_cast<double>(totals_.held_ns) / static_cast<double>(totals_.held);
  for (const auto& e : errors_.classes())
    s.errors[fmt::format("{} {}{}{}", name(e.outcome), e.code, e.text.empty() ? "" : " ",
                         printable(e.text))] += e.count;
  s.bytes.sent = totals_.bytes_sent;
  s.bytes.received = totals_.bytes_received;
  s.start_skew_ns = start_skew(info_).spread_ns;

  std::uint64_t finished = 0;
  for (const auto n : outcomes_) finished += n;
  s.agent.cpu_us_per_request = per(agent_cpu_ns_, finished);
  for (const auto& a : agents_)
    s.agent.rss_bytes_max = std::max(s.agent.rss_bytes_max, a.rss_bytes_max);

  fill_measured(s);
  fill_target(s);
  const auto all_gaps = gaps();
  s.records.stored = records_;
  s.records.gaps = all_gaps.size();
  s.records.duplicates = duplicates_;
  s.balance = balance(s.balance_lines);
  fill_sets(s);
  judge_run(s, all_gaps);
  s.exit_code = exit_code(info_, s);
  return s;
}

}  // namespace spate::controller
