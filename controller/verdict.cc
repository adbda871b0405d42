#include "controller/verdict.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <iterator>

#include "common/units.h"

namespace spate::controller {
namespace {

double share_of(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 1.0 : static_cast<double>(part) / static_cast<double>(whole);
}

// "98.97 %": cut, not rounded, so that 99.996 % is never shown as 100.
std::string percent(double share) {
  const auto hundredths = static_cast<std::int64_t>(share * 10'000);
  return fmt::format("{}.{:02} %", hundredths / 100, hundredths % 100);
}

std::string seconds(std::int64_t ns) {
  return fmt::format("{:.1f} s", static_cast<double>(ns) / 1e9);
}

class Reasons {
 public:
  void invalid(std::string text) { invalid_.push_back(std::move(text)); }
  void suspect(std::string text) { suspect_.push_back(std::move(text)); }

  // At most kMaxReasonsPerRule of a list, then how many more.
  template <class List, class Sentence>
  void invalid_each(const List& list, std::string_view what, Sentence sentence) {
    add_each(invalid_, list, what, sentence);
  }
  template <class List, class Sentence>
  void suspect_each(const List& list, std::string_view what, Sentence sentence) {
    add_each(suspect_, list, what, sentence);
  }

  Judgement take() {
    Judgement result;
    result.verdict = !invalid_.empty()   ? Verdict::invalid
                     : !suspect_.empty() ? Verdict::suspect
                                         : Verdict::valid;
    result.reasons = std::move(invalid_);
    for (auto& text : suspect_) result.reasons.push_back(std::move(text));
    return result;
  }

 private:
  template <class List, class Sentence>
  static void add_each(std::vector<std::string>& to, const List& list, std::string_view what,
                       Sentence sentence) {
    std::size_t shown = 0;
    for (const auto& item : list) {
      if (shown++ == kMaxReasonsPerRule) break;
      to.push_back(sentence(item));
    }
    if (list.size() > kMaxReasonsPerRule)
      to.push_back(fmt::format("{} more {}.", list.size() - kMaxReasonsPerRule, what));
  }

  std::vector<std::string> invalid_, suspect_;
};

void judge_end(const VerdictFacts& f, Reasons& out) {
  if (!f.ended) return;
  if (f.end == RunEnd::crashed)
    out.invalid(f.end_reason.empty() ? "The run has no proper end: its controller died."
                                     : fmt::format("The run has no proper end: {}.", f.end_reason));
  if (f.end == RunEnd::failed)
    out.invalid(f.end_reason.empty() ? "The run failed."
                                     : fmt::format("The run failed: {}.", f.end_reason));
  if (f.finished_requests == 0) out.invalid("No request finished.");
}

void judge_records(const VerdictFacts& f, Reasons& out) {
  out.invalid_each(f.lost, "agents were lost", [](const VerdictFacts::LostAgent& a) {
    return fmt::format("Agent {} was lost{}: {}.", a.agent,
                       a.at_known ? " at " + seconds(a.at_ns) : "", a.reason);
  });
  out.invalid_each(f.gaps, "gaps in the records", [](const Gap& g) {
    return fmt::format("Nothing is known of agent {} from {} to {}: {}.", g.agent,
                       seconds(g.from.count()), seconds(g.to.count()), g.cause);
  });
  out.suspect_each(f.absences, "absences of agents", [](const Absence& a) {
    return fmt::format("Agent {} was away from {} to {}: {}.", a.agent, seconds(a.from.count()),
                       seconds(a.to.count()), a.cause);
  });
  if (f.broken_laws > 0)
    out.invalid(fmt::format("{} broken {} in the stored records; the first: {}.",
                            format_count(f.broken_laws), f.broken_laws == 1 ? "law" : "laws",
                            f.first_broken_law));
  out.invalid_each(f.error_events, "errors during the run", [](const std::string& text) {
    return fmt::format("An error during the run: {}.", text);
  });
  if (f.balance == Balance::unbalanced)
    out.invalid(fmt::format("The agents' and the target's totals disagree: {}.", f.balance_line));
}

void judge_generator(const VerdictFacts& f, Reasons& out) {
  const auto& c = f.worst_connections;
  if (c.requested > 0 && c.established < c.requested) {
    const double share = share_of(c.established, c.requested);
    const auto text =
        fmt::format("Only {} of {} connections ({}) were established at {} in phase {}",
                    format_count(c.established), format_count(c.requested), percent(share),
                    seconds(c.at_ns), c.phase);
    if (share < kMinEstablishedShare)
      out.invalid(
          fmt::format("{}; at least {} must be. If they need longer to open, put a phase with "
                      "\"measured\": false before it.",
                      text, percent(kMinEstablishedShare)));
    else
      out.suspect(text + ".");
  }
  if (f.send_lag_p99_ns > kSendLagInvalidNs)
    out.invalid(
        fmt::format("Generator-limited: the send lag's p99 is {}, more than {}: requests left "
                    "late, the numbers show the agents rather than the target.",
                    format_latency(f.send_lag_p99_ns), format_latency(kSendLagInvalidNs)));
  else if (f.send_lag_p99_ns > kSendLagSuspectNs)
    out.suspect(
        fmt::format("Generator-limited: the send lag's p99 is {}, more than {}. Use more "
                    "agents, or a lower load.",
                    format_latency(f.send_lag_p99_ns), format_latency(kSendLagSuspectNs)));
  if (f.busiest_agent.share > kAgentCpuShareMax)
    out.suspect(fmt::format(
        "Agent {} used {} of the CPU that its {} {} can use, more than {}: its "
        "latencies contain its own waiting. Use more agents or threads.",
        f.busiest_agent.agent, percent(f.busiest_agent.share), f.busiest_agent.threads,
        f.busiest_agent.threads == 1 ? "thread" : "threads", percent(kAgentCpuShareMax)));
}

void judge_caps(const VerdictFacts& f, Reasons& out) {
  std::vector<VerdictFacts::CappedAgent> capped;
  std::copy_if(f.capped.begin(), f.capped.end(), std::back_inserter(capped),
               [](const auto& a) { return share_of(a.held, a.sent) > kHeldShareMax; });
  out.suspect_each(capped, "agents reached their owners' caps", [](const auto& a) {
    return fmt::format(
        "The owner of agent {} allows {}: {} of its {} requests were held back for that, {} on "
        "average. The load is lower than the plan's.",
        a.agent, format_rate(a.max_rate_per_s), format_count(a.held), format_count(a.sent),
        format_latency(a.held_ns_mean));
  });
}

void judge_time(const VerdictFacts& f, Reasons& out) {
  if (f.start_skew_ns > kStartSkewMaxNs + f.start_skew_bound_ns)
    out.suspect(
        fmt::format("The agents started {} apart (clocks known to {}); at most {} is usual.",
                    format_latency(f.start_skew_ns), format_latency(f.start_skew_bound_ns),
                    format_latency(kStartSkewMaxNs)));
  if (f.worst_clock.bound_ns > kClockBoundMaxNs)
    out.suspect(
        fmt::format("The clock of agent {} is known only to {}: its intervals may be shifted "
                    "against those of the others.",
                    f.worst_clock.agent, format_latency(f.worst_clock.bound_ns)));
  if (f.target_restarts > 0)
    out.suspect(fmt::format(
        "The target restarted {} during the run.",
        f.target_restarts == 1 ? std::string("once") : fmt::format("{} times", f.target_restarts)));
}

}  // namespace

std::string_view name(Verdict v) {
  switch (v) {
    case Verdict::valid:
      return "VALID";
    case Verdict::suspect:
      return "SUSPECT";
    case Verdict::invalid:
      return "INVALID";
  }
  return "?";
}

Judgement judge(const VerdictFacts& facts) {
  Reasons reasons;
  judge_end(facts, reasons);
  judge_records(facts, reasons);
  judge_generator(facts, reasons);
  judge_caps(facts, reasons);
  judge_time(facts, reasons);
  return reasons.take();
}

}  // namespace spate::controller
