// The HTML report: one page, nothing loaded from anywhere, whole without its script. Written as XML
// that is HTML too, so that a strict parser can check it.

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "common/units.h"
#include "common/version.h"
#include "controller/report_assets.h"
#include "controller/report_chart.h"
#include "controller/report_formats.h"

namespace spate::controller::report {
namespace {

constexpr std::size_t kMaxPlanBytes = 200 * 1024;
constexpr std::size_t kMaxShownEvents = 300;
constexpr std::size_t kMaxShownGaps = 300;
constexpr std::size_t kMaxShownLines = 1'200;

std::string latency_cell(std::int64_t ns) { return short_value(static_cast<double>(ns), Unit::ns); }

std::string rate_text(double per_s) {
  return per_s >= 100 ? format_count(static_cast<std::uint64_t>(per_s + 0.5))
                      : fmt::format("{:.1f}", per_s);
}

std::string percent(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return "0 %";
  const double share = 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  return part == 0 ? "0 %" : share < 0.01 ? "below 0.01 %" : fmt::format("{:.3g} %", share);
}

std::string plural(std::uint64_t n, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", format_count(n), n == 1 ? one : many);
}

std::string length_text(double seconds) {
  return seconds < 60
             ? fmt::format("{:.1f} s", seconds)
             : elapsed_label(static_cast<double>(static_cast<std::int64_t>(seconds + 0.5)));
}

// "2026-11-30 10:26:19 UTC"
std::string utc_text(std::string rfc3339_text) {
  std::replace(rfc3339_text.begin(), rfc3339_text.end(), 'T', ' ');
  if (rfc3339_text.ends_with('Z')) rfc3339_text.replace(rfc3339_text.size() - 1, 1, " UTC");
  return rfc3339_text;
}

class Table {
 public:
  // A head that starts with '<' is left-aligned.
  explicit Table(std::initializer_list<std::string_view> head) {
    html_ = "<div class=\"wide\"><table><thead><tr>";
    for (auto text : head) {
      const bool left = text.starts_with('<');
      if (left) text.remove_prefix(1);
      html_ += fmt::format("<th{}>{}</th>", left ? " class=\"left\"" : "", escape(text));
    }
    html_ += "</tr></thead><tbody>\n";
  }
  void begin_row() { html_ += "<tr>"; }
  void cell(std::string_view text, std::string_view look = "") {
    html_ += fmt::format("<td{}>{}</td>", look.empty() ? "" : fmt::format(" class=\"{}\"", look),
                         escape(text));
  }
  void end_row() { html_ += "</tr>\n"; }
  std::string take() { return html_ + "</tbody></table></div>\n"; }

 private:
  std::string html_;
};

std::string section(std::string_view title, const std::string& body) {
  return body.empty() ? "" : fmt::format("<h2>{}</h2>\n", escape(title)) + body;
}

std::string card(const std::string& body) {
  return "<section class=\"card\">\n" + body + "</section>\n";
}

std::string list(const std::vector<std::string>& lines, std::string_view look) {
  std::string html = fmt::format("<ul class=\"{}\">\n", look);
  for (std::size_t i = 0; i < std::min(lines.size(), kMaxShownLines); ++i)
    html += "<li>" + escape(lines[i]) + "</li>\n";
  if (lines.size() > kMaxShownLines)
    html += fmt::format("<li>and {} more</li>\n", lines.size() - kMaxShownLines);
  return html + "</ul>\n";
}

std::string verdict(const Summary& s) {
  const auto* look = s.verdict == Verdict::valid     ? "valid"
                     : s.verdict == Verdict::suspect ? "suspect"
                                                     : "invalid";
  const auto* mark = s.verdict == Verdict::valid     ? "&#10003;"
                     : s.verdict == Verdict::suspect ? "!"
                                                     : "&#10007;";
  auto html = fmt::format("<div class=\"verdict {}\"><b>{} {}</b>", look, mark, name(s.verdict));
  if (s.reasons.empty())
    html += fmt::format(
        " <span>The generator kept pace, no record is missing, and the totals are {}.</span>",
        s.balance == Balance::balanced ? "balanced" : "explained");
  else
    html += list(s.reasons, "reasons");
  return html + "</div>\n";
}

std::string header(const Aggregate& run, const Summary& s) {
  const auto& info = run.info();
  std::string html = "<header>\n<div class=\"brand\">spate report</div>\n";
  html += fmt::format("<h1>{}</h1>\n<div class=\"mono\">{}</div>\n", escape(info.plan.name),
                      escape(info.id));
  if (!info.plan.description.empty())
    html += fmt::format("<p>{}</p>\n", escape(info.plan.description));
  html +=
      fmt::format("<div class=\"quiet\">{}{}, {}, {}, against {}{}</div>\n",
                  s.started_at.empty() ? "" : utc_text(s.started_at) + ", ",
                  length_text(s.duration_s), plural(s.agents, "agent", "agents"),
                  plural(s.epochs, "epoch", "epochs"), escape(info.plan.target.url),
                  s.target.allocator.empty() ? "" : ", allocator " + escape(s.target.allocator));
  if (info.end == RunEnd::stopped)
    html += fmt::format("<div class=\"quiet\">Stopped before its end{}{}.</div>\n",
                        info.end_reason.empty() ? "" : ": ", escape(info.end_reason));
  return html + verdict(s) + "</header>\n";
}

std::string tile(std::string_view label, const std::string& value, const std::string& below) {
  return fmt::format("<div class=\"tile\"><span>{}</span><b>{}</b><small>{}</small></div>\n",
                     escape(label), escape(value), escape(below));
}

std::string tiles(const Summary& s) {
  const auto broken = s.requests.failed + s.requests.timed_out;
  const auto finished = s.requests.ok + broken;
  std::string html = "<div class=\"tiles\">\n";
  html += tile("Requests", short_value(static_cast<double>(s.requests.sent), Unit::count),
               s.requests.missed > 0 ? format_count(s.requests.missed) + " missed"
                                     : format_count(s.requests.sent) + " sent");
  html += tile("Rate", rate_text(s.rate_per_s) + "/s", "in measured phases");
  html += tile("p50", latency_cell(s.latency.p50),
               "mean " + latency_cell(static_cast<std::int64_t>(s.latency.mean)));
  html += tile("p99", latency_cell(s.latency.p99), "p99.9 " + latency_cell(s.latency.p999));
  html += tile("Max", latency_cell(s.latency.max), "send lag p99 " + latency_cell(s.send_lag.p99));
  html += tile("Errors", percent(broken, finished),
               format_count(broken) + " of " + format_count(finished));
  html += tile("Connections", format_count(s.connections.established),
               "of " + format_count(s.connections.requested) + ", " +
                   format_count(s.connections.closed) + " closed");
  if (s.target.known)
    html +=
        tile("Target memory",
             short_value(static_cast<double>(s.target.address_space_bytes_max), Unit::bytes),
             "resident " + short_value(static_cast<double>(s.target.rss_bytes_max), Unit::bytes) +
                 ", highest");
  return html + "</div>\n";
}

std::string phases_table(const Summary& s) {
  if (s.phases.empty()) return "";
  Table t({"Phase", "Length", "Connections", "Established", "Rate", "p50", "p90", "p99", "p99.9",
           "Max", "Errors"});
  for (const auto& p : s.phases) {
    t.begin_row();
    t.cell(p.name + (p.measured ? "" : " (not measured)"), "name");
    t.cell(length_text(p.length_s));
    t.cell(format_count(p.connections_requested));
    t.cell(format_count(p.connections_established),
           p.connections_established < p.connections_requested ? "badtext" : "");
    t.cell(rate_text(p.rate_per_s) + "/s");
    for (const auto ns :
         {p.latency.p50, p.latency.p90, p.latency.p99, p.latency.p999, p.latency.max})
      t.cell(latency_cell(ns));
    t.cell(format_count(p.failed), p.failed > 0 ? "badtext" : "");
    t.end_row();
  }
  return card(t.take());
}

std::string whole(double n) { return format_count(static_cast<std::uint64_t>(n + 0.5)); }

// R6's table.
std::string sets_table(const Summary& s) {
  if (s.sets.empty()) return "";
  Table t({"Parameter set", "Conns", "Encrypt", "Compress", "Requests", "Bytes/req", "Bytes/resp",
           "Req/s", "Bytes/s", "p50", "p99", "Errors", "Memory"});
  const auto row = [&](const Summary::ShareRow& r, bool is_server, std::string_view look = "name") {
    t.begin_row();
    t.cell(r.name, look);
    t.cell(format_count(r.connections));
    t.cell(r.encrypted ? "yes" : "no");
    t.cell(r.compressed ? "yes" : "no");
    t.cell(format_count(r.requests));
    t.cell(is_server ? "" : whole(r.bytes_per_request));
    t.cell(is_server ? "" : whole(r.bytes_per_response));
    t.cell(rate_text(r.rate_per_s));
    t.cell(whole(r.bytes_per_s));
    t.cell(is_server ? "" : latency_cell(r.p50));
    t.cell(is_server ? "" : latency_cell(r.p99));
    t.cell(format_count(r.failed), r.failed > 0 ? "badtext" : "");
    t.cell(r.memory_bytes == 0 ? ""
                               : short_value(static_cast<double>(r.memory_bytes), Unit::bytes));
    t.end_row();
  };
  for (const auto& r : s.sets) row(r, false);
  row(s.server, true);
  std::string total = s.sets_total;
  total[0] = 'T';
  return card(
      t.take() +
      fmt::format("<p class=\"quiet\">{}. Requests are all that were sent; sizes, rates and "
                  "latencies are of measured time without guard bands. Memory is of an "
                  "agent that held the set, and of the server.</p>\n",
                  escape(total)));
}

std::string changes_table(const RunInfo& info, const EpochHistory& history) {
  if (info.changes.empty()) return "";
  Table t({"Epoch", "At", "Ordered", "<Who", "<What", "<Why"});
  const auto shown = std::min(info.changes.size(), kMaxShownEvents);
  for (std::size_t i = info.changes.size() - shown; i < info.changes.size(); ++i) {
    const Change& c = info.changes[i];
    const auto span = std::find_if(history.epochs.begin(), history.epochs.end(),
                                   [&](const EpochSpan& e) { return e.number == c.epoch; });
    t.begin_row();
    t.cell(span == history.epochs.end() || span->before == 0
               ? std::to_string(c.epoch)
               : fmt::format("{} to {}", span->before, c.epoch));
    t.cell(elapsed_label(static_cast<double>(c.at.count()) / 1e9));
    t.cell(rfc3339(c.wall_ms));
    t.cell(c.who, "left");
    t.cell(c.what + (c.canary ? " (canary)" : ""), "left");
    t.cell(c.reason, "left");
    t.end_row();
  }
  std::string html = t.take();
  if (shown < info.changes.size())
    html +=
        fmt::format("<p class=\"quiet\">and {} earlier ones</p>\n", info.changes.size() - shown);
  return card(html);
}

std::string agents_table(const Aggregate& run) {
  const auto& info = run.info();
  std::map<std::string, std::size_t> gaps;
  for (const auto& g : run.gaps()) ++gaps[g.agent];
  Table t({"Agent", "Share", "Requests", "Rate", "Bytes/req", "Bytes/resp", "Errors", "p50", "p99",
           "CPU, cores", "Memory", "Start", "Records", "Gaps"});
  const auto row = [&](const AgentTotals& a, const RunAgent* known) {
    std::uint64_t finished = 0;
    for (const auto o : kOutcomes)
      if (o != Outcome::cancelled) finished += a.outcomes[index(o)];
    const auto errors = finished - a.outcomes[index(Outcome::ok)];
    const auto covered = static_cast<double>(a.covered.count());
    t.begin_row();
    const bool is_lost = known != nullptr && !known->lost_reason.empty();
    t.cell(a.agent + (known == nullptr ? fmt::format(" (process {}, died)", a.incarnation)
                      : is_lost        ? " (lost)"
                                       : ""),
           "name");
    t.cell(known == nullptr ? "" : format_count(known->connections_requested));
    t.cell(format_count(finished));
    t.cell(covered > 0 ? rate_text(static_cast<double>(finished) / covered * 1e9) + "/s" : "");
    const auto answered = a.outcomes[index(Outcome::ok)] +
                          a.outcomes[index(Outcome::application_error)] +
                          a.outcomes[index(Outcome::bad_response)];
    const auto each = [](std::uint64_t bytes, std::uint64_t n) {
      return n == 0 ? "" : whole(static_cast<double>(bytes) / static_cast<double>(n));
    };
    t.cell(each(a.counters.bytes_sent, a.counters.sent));
    t.cell(each(a.counters.bytes_received, answered));
    t.cell(format_count(errors), errors > 0 ? "badtext" : "");
    t.cell(a.latency.empty() ? "" : latency_cell(a.latency.quantile(0.5)));
    t.cell(a.latency.empty() ? "" : latency_cell(a.latency.quantile(0.99)));
    t.cell(covered > 0 ? short_value(static_cast<double>(a.cpu_ns) / covered, Unit::cores) : "");
    t.cell(short_value(static_cast<double>(a.rss_bytes_max), Unit::bytes));
    t.cell(known == nullptr || !known->start_skew_ns
               ? ""
               : fmt::format("{}{}", *known->start_skew_ns < 0 ? "-" : "+",
                             latency_cell(std::abs(*known->start_skew_ns))));
    t.cell(format_count(a.records));
    t.cell(format_count(gaps[a.agent]), gaps[a.agent] > 0 ? "badtext" : "");
    t.end_row();
  };
  const auto totals_of = [&](const RunAgent& known) {
    for (const auto& a : run.agents())
      if (a.agent == known.name && a.incarnation == known.incarnation) return a;
    AgentTotals silent;
    silent.agent = known.name;
    return silent;
  };
  for (const auto& known : info.agents) row(totals_of(known), &known);
  for (const auto& a : run.agents()) {
    const bool listed = std::any_of(info.agents.begin(), info.agents.end(), [&](const RunAgent& k) {
      return k.name == a.agent && k.incarnation == a.incarnation;
    });
    if (!listed) row(a, nullptr);
  }
  std::string html = t.take();
  for (const auto& a : run.agents())
    if (a.max_rate_per_s > 0)
      html += fmt::format(
          "<p class=\"quiet\">The owner of {} allows it {}: {} requests were held back for that"
          "{}.</p>\n",
          escape(a.agent), format_rate(a.max_rate_per_s), format_count(a.counters.held),
          a.counters.held == 0 ? std::string()
                               : ", " +
                                     format_latency(static_cast<std::int64_t>(a.counters.held_ns /
                                                                              a.counters.held)) +
                                     " on average");
  return card(html);
}

std::string errors_table(const Summary& s) {
  if (s.errors.empty()) return "";
  std::vector<std::pair<std::string, std::uint64_t>> sorted(s.errors.begin(), s.errors.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  Table t({"Count", "<Outcome, code, text"});
  for (const auto& [text, count] : sorted) {
    t.begin_row();
    t.cell(format_count(count));
    t.cell(text, "left");
    t.end_row();
  }
  return card(t.take() + "<p class=\"quiet\">Requests that failed, and connects that did.</p>\n");
}

std::string thresholds(const Summary& s) {
  if (s.failed_thresholds.empty() && s.passed_thresholds.empty()) return "";
  Table t({"Result", "<Threshold"});
  const auto rows = [&](const std::vector<std::string>& texts, std::string_view word,
                        std::string_view look) {
    for (const auto& text : texts) {
      t.begin_row();
      t.cell(word, look);
      t.cell(text, "left");
      t.end_row();
    }
  };
  rows(s.failed_thresholds, "failed", "badtext");
  rows(s.passed_thresholds, "passed", "");
  return card(t.take());
}

std::string balance(const Summary& s) {
  return card(fmt::format("<p style=\"margin:0 0 6px\"><b>{}</b></p>\n", name(s.balance)) +
              list(s.balance_lines, "lines quiet"));
}

std::string happenings(const Aggregate& run) {
  const auto gaps = run.gaps();
  if (run.events().empty() && gaps.empty()) return "";
  std::string html;
  if (!gaps.empty()) {
    Table t({"Gap in", "From", "To", "<Cause"});
    for (std::size_t i = 0; i < std::min(gaps.size(), kMaxShownGaps); ++i) {
      t.begin_row();
      t.cell(gaps[i].agent, "name");
      t.cell(elapsed_label(static_cast<double>(gaps[i].from.count()) / 1e9));
      t.cell(elapsed_label(static_cast<double>(gaps[i].to.count()) / 1e9));
      t.cell(gaps[i].cause, "left");
      t.end_row();
    }
    html += t.take();
    if (gaps.size() > kMaxShownGaps)
      html += fmt::format("<p class=\"quiet\">and {} more gaps</p>\n", gaps.size() - kMaxShownGaps);
  }
  if (run.events().empty()) return card(html);
  Table t({"At", "<", "<Event"});
  const auto shown = std::min(run.events().size(), kMaxShownEvents);
  for (std::size_t i = 0; i < shown; ++i) {
    const auto& e = run.events()[i];
    t.begin_row();
    t.cell(fmt::format("{:.1f} s", static_cast<double>(e.at_ns) / 1e9));
    t.cell(e.severity == RunEvent::Severity::error     ? "error"
           : e.severity == RunEvent::Severity::warning ? "warning"
                                                       : "",
           e.severity == RunEvent::Severity::info ? "left" : "left badtext");
    t.cell(e.text, "left");
    t.end_row();
  }
  html += t.take();
  if (run.events().size() > shown)
    html += fmt::format("<p class=\"quiet\">and {} more events</p>\n", run.events().size() - shown);
  return card(html);
}

std::string plan(const RunInfo& info) {
  std::string html = "<details><summary>as submitted</summary><pre>";
  html += escape(std::string_view(info.plan_text).substr(0, kMaxPlanBytes));
  if (info.plan_text.size() > kMaxPlanBytes) html += "\n(cut)";
  html += "</pre></details>\n";
  if (!info.overrides.empty())
    html += "<p class=\"quiet\" style=\"margin:10px 0 0\">Set on the command line:</p>\n" +
            list(info.overrides, "lines mono");
  return card(html);
}

std::string words() {
  static constexpr std::pair<const char*, const char*> kWords[] = {
      {"latency",
       "From the instant a request was due to the end of its answer. Waiting inside a busy agent "
       "is part of it. "
       "Of answered and timed-out requests; one that timed out counts with the time it waited."},
      {"service time", "From the instant a request was sent to the end of its answer."},
      {"send lag",
       "From the instant a request was due to the instant it was sent: how far the agents fell "
       "behind."},
      {"p99",
       "99 % of all requests took at most this long. From the merged histograms of all agents, "
       "within 0.8 %; "
       "the maximum is exact."},
      {"rate",
       "Requests finished per second, whatever their outcome, without those cut off at the end."},
      {"errors",
       "Requests that were not answered well: error codes, timeouts, refusals, broken connections, "
       "failed checks."},
      {"measured",
       "Warm-up phases and guard bands are shown and counted, but are in no latency, rate or "
       "threshold."},
      {"epoch",
       "One version of the parameters and of how they are shared; a change, a rotation or a phase "
       "begins a new one."},
      {"guard band",
       "The time after a rotation's change-over in which connections come and go. Its requests "
       "count in all totals."},
      {"missed", "Requests that were due and never sent."},
      {"established",
       "Connections that had finished their handshake when an interval ended; of several "
       "intervals, the fewest."},
      {"gap", "A span of which an agent's records are missing. It is not zero, it is unknown."},
      {"balance",
       "Whether the agents' totals and the target's own counters agree: BALANCED, EXPLAINED by "
       "requests "
       "that are known to have broken, or UNBALANCED."},
      {"verdict",
       "Whether the numbers can be trusted. It says nothing about the target being fast or slow."}};
  std::string html = "<dl>\n";
  for (const auto& [word, text] : kWords)
    html += fmt::format("<dt>{}</dt><dd>{}</dd>\n", word, escape(text));
  return card(html + "</dl>\n");
}

}  // namespace

std::string html(const Aggregate& run) {
  const auto s = run.summary();
  const auto& info = run.info();
  std::string page = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n";
  page +=
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; "
      "script-src 'unsafe-inline'\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n";
  page += fmt::format("<title>{} {}: spate report</title>\n", name(s.verdict), escape(info.id));
  page += "<style>" + std::string(kStyle) + "</style>\n</head>\n<body>\n<main>\n";
  page += header(run, s) + tiles(s);
  const bool has_points = !run.points().empty();
  if (has_points) {
    page += section("Over time", timeline(run));
    page += section("Latency", distribution(run));
    page += section(s.phases.size() > 1 ? "Phases" : "Phase", sweep_curves(run) + phases_table(s));
  }
  page += section("Thresholds", thresholds(s));
  page += section("Parameter sets", sets_table(s));
  page += section("Changes", changes_table(info, epoch_history(run)));
  page += section("Agents", agents_table(run));
  page += section("Errors", errors_table(s));
  page += section("Balance", balance(s));
  page += section("Events", happenings(run));
  page += section("Plan", plan(info));
  page += section("Words", words());
  page += fmt::format("<footer>spate {}. This page is whole: it loads nothing.</footer>\n</main>\n",
                      kVersion);
  if (has_points) page += "<script>//<![CDATA[\n" + std::string(kScript) + "//]]></script>\n";
  return page + "</body>\n</html>\n";
}

}  // namespace spate::controller::report
