#include "controller/balance.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "common/units.h"

namespace spate::controller {
namespace {

std::uint64_t of(const BalanceFacts::Agent& a, Outcome o) { return a.outcomes[index(o)]; }

std::uint64_t answered(const BalanceFacts::Agent& a) {
  return of(a, Outcome::ok) + of(a, Outcome::application_error) + of(a, Outcome::bad_response);
}

// Requests that the target may or may not have counted.
struct Unsure {
  std::uint64_t total = 0;
  std::string text;  // "timed out 2, reset 3"

  void add(std::uint64_t count, std::string_view what) {
    if (count == 0) return;
    total += count;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", what, format_count(count));
  }
};

Unsure unsure(const BalanceFacts::Agent& a) {
  Unsure u;
  u.add(of(a, Outcome::timed_out), "timed out");
  u.add(of(a, Outcome::refused), "refused");
  u.add(of(a, Outcome::reset), "reset");
  u.add(of(a, Outcome::protocol_error), "protocol error");
  u.add(of(a, Outcome::cancelled), "cancelled");
  u.add(a.in_flight_end, a.died.empty() ? "still in flight" : "in flight when it died");
  return u;
}

struct Line {
  Balance balance = Balance::balanced;
  std::string text;
};

// One that died, and whoever came after it, have the same name.
std::string title(const BalanceFacts::Agent& a) {
  return a.died.empty() ? a.agent : fmt::format("{} (process {})", a.agent, a.incarnation);
}

// The records by themselves: everything sent has an outcome.
Line check_own(const BalanceFacts::Agent& a, const BalanceFacts& f) {
  std::uint64_t finished = 0;
  for (const auto n : a.outcomes) finished += n;
  auto text = fmt::format("{}: sent {}, finished {}", title(a), format_count(a.sent),
                          format_count(finished));
  const bool unknown = a.lost || a.records_missing;
  if (a.sent != finished + a.in_flight_end && !unknown)
    return {Balance::unbalanced,
            text + fmt::format(", in flight {}: {} requests without an outcome",
                               format_count(a.in_flight_end),
                               a.sent > finished + a.in_flight_end
                                   ? format_count(a.sent - finished - a.in_flight_end)
                                   : "fewer than no")};
  if (unknown)
    return {Balance::explained, text + (a.lost ? "; it was lost, its last records are missing"
                                               : "; records are missing")};
  if (a.in_flight_end > 0 && !a.died.empty())
    return {Balance::explained,
            text + fmt::format("; it died ({}): the outcome of {} in flight then is unknown",
                               a.died, format_count(a.in_flight_end))};
  if (a.in_flight_end > 0 && f.ended)
    return {Balance::explained, text + fmt::format("; {} were in flight when its records ended",
                                                   format_count(a.in_flight_end))};
  return {Balance::balanced, text};
}

// When the target counted what nobody saw.
std::string_view unseen_time(const BalanceFacts& f) {
  if (f.target_restarts > 0) return "after its last sample before it restarted";
  return f.tail_unseen ? "after its last sample" : "before its first sample";
}

Line check_against_target(const BalanceFacts::Agent& a, const BalanceFacts& f) {
  const auto u = unsure(a);
  auto text =
      fmt::format("{}: sent {}, answered {}, received by the target {}", title(a),
                  format_count(a.sent), format_count(answered(a)), format_count(a.received));

  if (a.received > a.sent) {
    const auto more = format_count(a.received - a.sent);
    if (a.lost)
      return {
          Balance::explained,
          text + fmt::format(
                     "; {} more than is stored: the agent was lost, its last records are missing",
                     more)};
    if (a.records_missing)
      return {
          Balance::explained,
          text + fmt::format("; {} more than is stored: records of this agent are missing", more)};
    if (!a.died.empty() && !a.last_interval_kept)
      return {Balance::explained,
              text + fmt::format("; {} more than is stored: it died ({}), and what it did in its "
                                 "last interval is unknown",
                                 more, a.died)};
    return {Balance::unbalanced, text + fmt::format("; {} more than were sent", more)};
  }
  if (a.received < answered(a)) {
    const auto unseen = format_count(answered(a) - a.received);
    if (f.has_blind_spots())
      return {Balance::explained,
              text + fmt::format("; {} were answered {}", unseen, unseen_time(f))};
    return {Balance::unbalanced,
            text + fmt::format("; {} were answered that the target never counted", unseen)};
  }
  const auto difference = a.sent - a.received;
  if (difference == 0) return {Balance::balanced, text};
  if (difference <= u.total)
    return {Balance::explained,
            text + fmt::format("; {} not received, at most {} explained by: {}",
                               format_count(difference), format_count(u.total), u.text)};
  if (f.has_blind_spots())
    return {Balance::explained,
            text + fmt::format("; {} not received: what the target counted {} is unknown{}{}",
                               format_count(difference), unseen_time(f),
                               u.text.empty() ? "" : "; also ", u.text)};
  if (a.lost || a.records_missing)
    return {Balance::explained,
            text + fmt::format("; {} not received: records of this agent are missing",
                               format_count(difference))};
  return {Balance::unbalanced,
          text + fmt::format(
                     "; {} not received, and only {} requests have an outcome that allows it{}{}",
                     format_count(difference), format_count(u.total), u.text.empty() ? "" : ": ",
                     u.text)};
}

class Ledger {
 public:
  void add(Line line, bool show = true) {
    if (line.balance > result_.balance) {
      result_.balance = line.balance;
      result_.worst_line = line.text;
    }
    if (show) result_.lines.push_back(std::move(line.text));
  }
  BalanceResult take() { return std::move(result_); }

 private:
  BalanceResult result_;
};

Line records_line(const BalanceFacts& f) {
  const auto text =
      fmt::format("records: {} stored, {} {}, {} {}", format_count(f.records), format_count(f.gaps),
                  f.gaps == 1 ? "gap" : "gaps", format_count(f.duplicates),
                  f.duplicates == 1 ? "duplicate" : "duplicates");
  if (f.broken_laws == 0)
    return {f.gaps == 0 ? Balance::balanced : Balance::explained,
            text + "; the laws hold in every record and from each to the next"};
  auto broken = text + fmt::format("; {} broken {}", format_count(f.broken_laws),
                                   f.broken_laws == 1 ? "law" : "laws");
  for (const auto& law : f.broken_law_texts) broken += "; " + law;
  return {Balance::unbalanced, std::move(broken)};
}

// An agent's own difference has no bound of its own then; the sum of all has.
Line blind_spots_line(const BalanceFacts& f) {
  std::uint64_t unexplained = 0;
  for (const auto& a : f.agents) {
    const auto allowed = a.received + unsure(a).total;
    if (a.sent > allowed) unexplained += a.sent - allowed;
  }
  std::string text = f.target_restarts == 1 ? "the target restarted once"
                     : f.target_restarts > 1
                         ? fmt::format("the target restarted {} times", f.target_restarts)
                     : f.tail_unseen ? "the target's last sample is older than the last records"
                                     : "the target was first seen after the run's start";
  text += fmt::format(
      "; {} requests have no trace in its counters, at most {} were sent while it was not seen",
      format_count(unexplained), format_count(f.sent_unseen_max));
  // Being seen late hides nothing if it is the boot that counted everything.
  const bool only_head = f.target_restarts == 0 && !f.tail_unseen;
  if (only_head && unexplained == 0) return {Balance::balanced, text};
  return {unexplained <= f.sent_unseen_max ? Balance::explained : Balance::unbalanced, text};
}

Line total_line(const BalanceFacts& f) {
  std::uint64_t sent = 0, answers = 0, received = 0;
  for (const auto& a : f.agents) {
    sent += a.sent;
    answers += answered(a);
    received += a.received;
  }
  auto text =
      fmt::format("all agents: sent {}, answered {}", format_count(sent), format_count(answers));
  if (f.target_known) text += fmt::format(", received by the target {}", format_count(received));
  return {Balance::balanced, std::move(text)};
}

}  // namespace

std::string_view name(Balance b) {
  switch (b) {
    case Balance::balanced:
      return "BALANCED";
    case Balance::explained:
      return "EXPLAINED";
    case Balance::unbalanced:
      return "UNBALANCED";
  }
  return "?";
}

BalanceResult check_balance(const BalanceFacts& facts) {
  Ledger ledger;
  ledger.add(records_line(facts));
  const bool show_all = facts.agents.size() <= kMaxBalancedLines;
  for (const auto& agent : facts.agents) {
    const auto own = check_own(agent, facts);
    // One line an agent: the worse of the two checks, the target's if equal.
    auto line = facts.target_known ? check_against_target(agent, facts) : own;
    if (own.balance > line.balance) line = own;
    ledger.add(line, show_all || line.balance != Balance::balanced);
  }
  if (facts.target_known && facts.has_blind_spots()) ledger.add(blind_spots_line(facts));
  ledger.add(total_line(facts));
  if (!facts.target_known && facts.probe_planned)
    ledger.add({Balance::explained,
                fmt::format("the statistics of target {} were never read: the agents' side only",
                            facts.target)});
  else if (!facts.target_known)
    ledger.add(
        {Balance::balanced,
         fmt::format("target {} has no counters to compare with (no probe): the agents' side only",
                     facts.target)});
  return ledger.take();
}

}  // namespace spate::controller
