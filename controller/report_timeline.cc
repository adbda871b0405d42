// The charts of the HTML report.

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "common/units.h"
#include "controller/report_chart.h"
#include "controller/report_formats.h"

namespace spate::controller::report {
namespace {

// What keeps a page small however long the run was.
constexpr std::size_t kMaxShownSamples = 2'000;
constexpr std::size_t kMaxMarks = 300;
constexpr std::size_t kMaxHatches = 300;
constexpr std::size_t kMinSweepSteps = 3;
constexpr double kMinNumberPercent = 1.2;  // narrower, an epoch's number would not fit

double seconds(Duration d) { return static_cast<double>(d.count()) / 1e9; }
double number(std::uint64_t n) { return static_cast<double>(n); }

struct Axis {
  Scale scale;
  double percent(double s) const { return std::clamp(scale.place(s), 0.0, 1.0) * 100; }
};

Axis time_axis(const Aggregate& run) {
  double to = seconds(run.end());
  // The look at the target after the drain.
  if (!run.target_samples().empty())
    to = std::max(to, static_cast<double>(run.target_samples().back().at_ns) / 1e9);
  return {Scale::time(0, to)};
}

// A line through the middle of each point, interrupted where no agent reported.
class PointSeries {
 public:
  explicit PointSeries(const Aggregate& run) : points_(run.points()) {
    Duration end{};
    for (const auto& p : points_) {
      if (!times_.empty() && p.start - end > run.info().plan.interval / 2) add_break(seconds(end));
      times_.push_back(seconds(p.start + p.length / 2));
      of_.push_back(&p);
      end = p.start + p.length;
    }
  }
  template <class Value>
  Series make(std::string name, std::string look, Value value) const {
    Series s;
    s.name = std::move(name);
    s.look = std::move(look);
    s.x = times_;
    for (const auto* p : of_) s.y.push_back(p == nullptr ? kNoValue : value(*p));
    return s;
  }
  const std::vector<double>& times() const { return times_; }

 private:
  void add_break(double at) {
    times_.push_back(at);
    of_.push_back(nullptr);
  }
  const std::vector<Point>& points_;
  std::vector<double> times_;
  std::vector<const Point*> of_;
};

// The same for looks at the target, interrupted where it restarted.
struct SampleSeries {
  std::vector<double> times, address_space, rss, cores;
};

SampleSeries sample_series(const Aggregate& run) {
  SampleSeries s;
  const auto& samples = run.target_samples();
  const auto step =
      std::max<std::size_t>(1, (samples.size() + kMaxShownSamples - 1) / kMaxShownSamples);
  const TargetSample* before = nullptr;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto& now = samples[i];
    const bool same_boot = before != nullptr && before->boot_id == now.boot_id;
    if (i % step != 0 && same_boot && i + 1 != samples.size()) continue;
    if (now.at_ns < 0) {
      before = &now;
      continue;
    }
    const double at = static_cast<double>(now.at_ns) / 1e9;
    if (before != nullptr && !same_boot) {
      s.times.push_back(at);
      s.address_space.push_back(kNoValue);
      s.rss.push_back(kNoValue);
      s.cores.push_back(kNoValue);
    }
    s.times.push_back(at);
    s.address_space.push_back(number(now.address_space_bytes));
    s.rss.push_back(number(now.rss_bytes));
    const bool rate_known = same_boot && now.at_ns > before->at_ns && now.cpu_ns >= before->cpu_ns;
    s.cores.push_back(rate_known ? number(now.cpu_ns - before->cpu_ns) /
                                       static_cast<double>(now.at_ns - before->at_ns)
                                 : kNoValue);
    before = &now;
  }
  return s;
}

double highest(const std::vector<Series>& series) {
  double max = 0;
  for (const auto& s : series)
    for (const double v : s.y)
      if (!std::isnan(v)) max = std::max(max, v);
  return max;
}

double lowest_positive(const std::vector<Series>& series) {
  double min = 0;
  for (const auto& s : series)
    for (const double v : s.y)
      if (v > 0 && (min == 0 || v < min)) min = v;
  return min;
}

class Timeline {
 public:
  explicit Timeline(const Aggregate& run)
      : run_(run),
        axis_(time_axis(run)),
        points_(run),
        samples_(sample_series(run)),
        history_(epoch_history(run)) {
    data_["from"] = axis_.scale.low();
    data_["to"] = axis_.scale.high();
    data_["times"]["p"] = rounded(points_.times());
    data_["times"]["s"] = rounded(samples_.times);
    data_["charts"] = nlohmann::ordered_json::object();
  }

  std::string render_all() {
    std::string html = "<section class=\"card\">\n<div class=\"stack\" id=\"stack\">\n";
    html += strip() + epochs_strip();
    html += "<div style=\"position:relative\">\n";
    html += behind();
    for (auto chart_of : {&Timeline::rate, &Timeline::latency, &Timeline::connections,
                          &Timeline::memory, &Timeline::cpu})
      html += (this->*chart_of)();
    html += x_axis_labels(axis_.scale);
    html +=
        "<div class=\"before\" id=\"before\"><div id=\"cross\" hidden=\"hidden\"></div><span "
        "id=\"when\" "
        "hidden=\"hidden\"></span></div>\n</div>\n</div>\n";
    html += notes();  // after behind(), which finds out what there is to explain
    return html + "</section>\n<script type=\"application/json\" id=\"data\">" + data_text() +
           "</script>\n";
  }

 private:
  static nlohmann::ordered_json rounded(const std::vector<double>& values) {
    auto list = nlohmann::ordered_json::array();
    for (const double v : values) {
      if (std::isnan(v)) {
        list.push_back(nullptr);
      } else if (v == std::floor(v) || std::abs(v) >= 1e5) {
        list.push_back(static_cast<std::int64_t>(v));
      } else {
        list.push_back(std::stod(fmt::format("{:.6g}", v)));
      }
    }
    return list;
  }

  // Inside a script element: numbers and our own words only, nothing to escape.
  std::string data_text() const { return data_.dump(); }

  std::string chart(Chart c, const char* id, const char* times, const char* unit) {
    c.x = axis_.scale;
    c.x_labels = false;
    c.live = id;
    auto& entry = data_["charts"][id];
    entry["times"] = times;
    entry["unit"] = unit;
    for (const auto& s : c.series) entry["values"].push_back(rounded(s.y));
    return render(c);
  }

  std::string rate() {
    Chart c;
    c.title = "Rate";
    c.unit_text = "requests per second";
    c.series.push_back(
        points_.make("ok", "c1", [](const Point& p) { return per_second(p, p.ok()); }));
    c.series.push_back(
        points_.make("failed", "c2", [](const Point& p) { return per_second(p, p.failed()); }));
    c.series[0].filled = true;
    c.y = Scale::linear(highest(c.series), Unit::per_second);
    c.height_px = 170;
    return chart(std::move(c), "rate", "p", "count");
  }

  std::string latency() {
    const auto quantile = [](double q) {
      return [q](const Point& p) {
        return p.latency.empty() ? kNoValue : static_cast<double>(p.latency.quantile(q));
      };
    };
    Chart c;
    c.title = "Latency";
    c.unit_text = "logarithmic";
    c.series.push_back(points_.make("p50", "c1", quantile(0.5)));
    c.series.push_back(points_.make("p90", "c5", quantile(0.9)));
    c.series.push_back(points_.make("p99", "c2", quantile(0.99)));
    c.series.push_back(points_.make("max", "c6 thin", [](const Point& p) {
      return p.latency.empty() ? kNoValue : static_cast<double>(p.latency.max());
    }));
    c.y = Scale::logarithmic(lowest_positive(c.series), highest(c.series), Unit::ns);
    c.height_px = 190;
    return chart(std::move(c), "latency", "p", "ns");
  }

  std::string connections() {
    Chart c;
    c.title = "Connections";
    c.series.push_back(points_.make(
        "requested", "c6 dash", [](const Point& p) { return number(p.connections_requested); }));
    c.series.push_back(points_.make(
        "established", "c3", [](const Point& p) { return number(p.connections_established); }));
    c.y = Scale::linear(highest(c.series), Unit::count);
    c.height_px = 110;
    return chart(std::move(c), "connections", "p", "count");
  }

  std::string memory() {
    if (samples_.times.empty()) return "";
    Chart c;
    c.title = "Memory of the target";
    c.unit = Unit::bytes;
    c.series.push_back({"address space", "c4", samples_.times, samples_.address_space});
    c.series.push_back({"resident", "c1", samples_.times, samples_.rss});
    c.y = Scale::linear(highest(c.series), Unit::bytes);
    c.height_px = 130;
    return chart(std::move(c), "memory", "s", "bytes");
  }

  std::string cpu() {
    std::string html;
    auto agents = points_.make("agents together", "c5", [](const Point& p) {
      return p.length.count() <= 0 ? kNoValue
                                   : number(p.agent_cpu_ns) / static_cast<double>(p.length.count());
    });
    Series target{"target", "c4", samples_.times, samples_.cores};
    const auto scale = Scale::linear(highest({agents, target}), Unit::cores);
    // Two charts of one height and scale: their instants differ.
    if (!samples_.times.empty()) {
      Chart c;
      c.title = "CPU of the target";
      c.unit_text = "cores";
      c.series.push_back(target);
      c.y = scale;
      c.height_px = 90;
      html += chart(std::move(c), "cpu_target", "s", "cores");
    }
    Chart c;
    c.title = "CPU of the agents";
    c.unit_text = "cores";
    c.series.push_back(agents);
    c.y = scale;
    c.height_px = 90;
    return html + chart(std::move(c), "cpu_agents", "p", "cores");
  }

  static double per_second(const Point& p, std::uint64_t n) {
    return p.length.count() <= 0 ? kNoValue : number(n) / seconds(p.length);
  }

  std::string phase_name(std::uint32_t phase) const {
    const auto& phases = run_.info().plan.phases;
    return phase < phases.size() ? phases[phase].name : std::to_string(phase);
  }
  bool measured(std::uint32_t phase) const {
    const auto& phases = run_.info().plan.phases;
    return phase >= phases.size() || phases[phase].measured;
  }

  // From border to border, guard bands included.
  struct PhaseSpan {
    std::uint32_t phase = 0;
    Duration from{};
    Duration to{};
  };
  std::vector<PhaseSpan> phase_spans() const {
    std::vector<PhaseSpan> spans;
    Duration from{};
    for (const auto& phase : run_.info().plan.phases) {
      if (from >= run_.end()) break;
      const auto to = from + phase.length;
      spans.push_back({static_cast<std::uint32_t>(spans.size()), from, std::min(to, run_.end())});
      from = to;
    }
    return spans;
  }

  std::string strip() const {
    std::string html = "<div class=\"strip\">";
    for (const auto& p : phase_spans()) {
      const double from = axis_.percent(seconds(p.from)), to = axis_.percent(seconds(p.to));
      const auto name = escape(phase_name(p.phase));
      fmt::format_to(std::back_inserter(html),
                     "<span style=\"left:{:.2f}%;width:{:.2f}%\" title=\"{}\">{}</span>", from,
                     to - from, name, name);
    }
    return html + "</div>\n";
  }

  // The number of each epoch where it holds, with the reason for it.
  std::string epochs_strip() const {
    if (!epochs_are_drawn()) return "";
    std::string html = "<div class=\"strip\">";
    for (const auto& e : history_.epochs) {
      const double from = axis_.percent(seconds(e.from)), to = axis_.percent(seconds(e.to));
      fmt::format_to(std::back_inserter(html),
                     "<span style=\"left:{:.2f}%;width:{:.2f}%\" title=\"epoch {}: {}\">{}</span>",
                     from, to - from, e.number, escape(e.reason),
                     to - from < kMinNumberPercent ? "" : std::to_string(e.number));
    }
    return html + "</div>\n";
  }

  bool epochs_are_drawn() const {
    return history_.epochs.size() > 1 && history_.epochs.size() <= kMaxMarks;
  }

  // Phases, gaps and marks, behind all charts at once.
  std::string behind() {
    std::string html = "<div class=\"behind\">";
    bool odd = false;
    for (const auto& p : phase_spans()) {
      const double from = axis_.percent(seconds(p.from)), to = axis_.percent(seconds(p.to));
      odd = !odd;
      has_unmeasured_ = has_unmeasured_ || !measured(p.phase);
      const auto* look = !measured(p.phase) ? "off edge" : odd ? "edge" : "band edge";
      fmt::format_to(std::back_inserter(html),
                     "<div class=\"{}\" style=\"left:{:.2f}%;width:{:.2f}%\"></div>", look, from,
                     to - from);
    }
    return html + guard_bands() + hatches() + marks() + "</div>\n";
  }

  std::string guard_bands() const {
    std::string html;
    if (history_.guards.size() > kMaxHatches) return html;
    for (const auto& [from, to] : history_.guards) {
      const double left = axis_.percent(seconds(from));
      fmt::format_to(std::back_inserter(html),
                     "<div class=\"guard\" style=\"left:{:.2f}%;width:{:.2f}%\"></div>", left,
                     std::max(0.15, axis_.percent(seconds(to)) - left));
    }
    return html;
  }

  // Overlapping gaps of several agents are one hatched span.
  std::string hatches() {
    std::string html;
    std::size_t shown = 0;
    Duration from{}, to{};
    const auto flush = [&] {
      if (to <= from || shown++ >= kMaxHatches) return;
      const double left = axis_.percent(seconds(from));
      fmt::format_to(std::back_inserter(html),
                     "<div class=\"gap\" style=\"left:{:.2f}%;width:{:.2f}%\"></div>", left,
                     std::max(0.2, axis_.percent(seconds(to)) - left));
      has_gaps_ = true;
    };
    for (const auto& g : run_.gaps()) {  // ascending by `from`
      if (g.from > to) {
        flush();
        from = g.from;
        to = g.to;
      }
      to = std::max(to, g.to);
    }
    flush();
    return html;
  }

  std::string marks() {
    std::string html;
    std::size_t shown = 0;
    const auto mark = [&](double at, const char* look, bool& flag) {
      if (shown++ >= kMaxMarks) return;
      fmt::format_to(std::back_inserter(html), "<div class=\"{}\" style=\"left:{:.2f}%\"></div>",
                     look, axis_.percent(at));
      flag = true;
    };
    if (epochs_are_drawn())
      for (std::size_t i = 1; i < history_.epochs.size(); ++i)
        mark(seconds(history_.epochs[i].from), "epoch", has_epochs_);
    for (const auto& e : run_.events()) {
      if (e.at_ns < 0 || e.severity == RunEvent::Severity::info) continue;
      if (e.severity == RunEvent::Severity::error)
        mark(static_cast<double>(e.at_ns) / 1e9, "error", has_errors_);
      else
        mark(static_cast<double>(e.at_ns) / 1e9, "warning", has_warnings_);
    }
    return html;
  }

  std::string notes() const {
    std::string html = "<div class=\"quiet notes\" style=\"padding-left:var(--gutter)\">";
    if (has_gaps_)
      html +=
          "<span><i class=\"sample gap\"></i>records of an agent are missing; sums are of the "
          "others</span>";
    if (has_epochs_)
      html += "<span><i class=\"sample line epoch\"></i>new epoch, its number above</span>";
    if (history_.epochs.size() > kMaxMarks)
      html += fmt::format("<span>{} epochs, too many to draw</span>", history_.epochs.size());
    if (!history_.guards.empty())
      html +=
          "<span><i class=\"sample guard\"></i>guard band after a change-over: not "
          "measured</span>";
    if (has_warnings_) html += "<span><i class=\"sample line warning\"></i>warning</span>";
    if (has_errors_) html += "<span><i class=\"sample line error\"></i>error</span>";
    if (run_.points().size() > 1) {
      const auto& p = run_.points().front();
      html += fmt::format("<span>one point = {}</span>", escape(format_duration(p.length)));
    }
    return html + "</div>\n";
  }

  const Aggregate& run_;
  Axis axis_;
  PointSeries points_;
  SampleSeries samples_;
  EpochHistory history_;
  nlohmann::ordered_json data_;
  bool has_unmeasured_ = false, has_gaps_ = false, has_epochs_ = false, has_warnings_ = false,
       has_errors_ = false;
};

Series upright(std::string name, std::string look, double x, double top) {
  return {std::move(name), std::move(look), {x, x}, {0, top}};
}

}  // namespace

std::string timeline(const Aggregate& run) { return Timeline(run).render_all(); }

std::string distribution(const Aggregate& run) {
  Histogram h;
  for (const auto& p : run.phases())
    if (p.phase >= run.info().plan.phases.size() || run.info().plan.phases[p.phase].measured)
      h.merge(p.latency);
  if (h.empty()) return "";
  const double low = static_cast<double>(std::max<std::int64_t>(h.min(), 1)) * 0.97;
  const double high = static_cast<double>(std::max<std::int64_t>(h.max(), 2)) * 1.03;
  // Bars no narrower than the histogram's buckets, at most 90 of them.
  const double width = std::max(1.04, std::pow(high / low, 1.0 / 90));
  const auto bars = static_cast<std::size_t>(std::ceil(std::log(high / low) / std::log(width)));
  std::vector<double> share(std::max<std::size_t>(bars, 1), 0.0);
  for (const auto& b : h.buckets()) {
    const double middle = std::sqrt(static_cast<double>(std::max<std::int64_t>(b.lower, 1)) *
                                    static_cast<double>(std::max<std::int64_t>(b.upper, 1)));
    const auto at = std::log(std::clamp(middle, low, high) / low) / std::log(width);
    share[std::min(share.size() - 1, static_cast<std::size_t>(std::max(0.0, at)))] +=
        100.0 * number(b.count) / number(h.count());
  }
  Series s;
  s.name = "share of requests";
  s.look = "c6 solid";
  s.filled = true;
  for (std::size_t i = 0; i < share.size(); ++i) {
    const double from = low * std::pow(width, static_cast<double>(i));
    s.x.insert(s.x.end(), {from, from * width});
    s.y.insert(s.y.end(), {share[i], share[i]});
  }
  Chart c;
  c.title = "Distribution of latency";
  c.unit_text = "measured phases; logarithmic";
  c.x = Scale::logarithmic(low, high, Unit::ns, 6);
  const double top = *std::max_element(share.begin(), share.end());
  c.y = Scale::linear(top, Unit::percent);
  c.series.push_back(std::move(s));
  const auto at = [&](const char* name, const char* look, double q) {
    const auto v = static_cast<double>(h.quantile(q));
    c.series.push_back(
        upright(fmt::format("{} {}", name, short_value(v, Unit::ns)), look, v, c.y.high()));
  };
  at("p50", "c1", 0.5);
  at("p90", "c5", 0.9);
  at("p99", "c2", 0.99);
  at("p99.9", "c3 dash", 0.999);
  c.height_px = 170;
  return "<section class=\"card\">\n" + render(c) + "</section>\n";
}

std::string sweep_curves(const Aggregate& run) {
  struct Step {
    double rate = 0, p50 = kNoValue, p99 = kNoValue;
  };
  std::map<std::uint64_t, Step> steps;
  for (const auto& p : run.phases()) {
    const bool measured =
        p.phase >= run.info().plan.phases.size() || run.info().plan.phases[p.phase].measured;
    if (!measured || p.connections_requested == 0 || p.latency.empty()) continue;
    steps[p.connections_requested] = {p.rate_per_s(), static_cast<double>(p.latency.quantile(0.5)),
                                      static_cast<double>(p.latency.quantile(0.99))};
  }
  if (steps.size() < kMinSweepSteps) return "";
  std::vector<double> x, rate, p50, p99;
  for (const auto& [connections, step] : steps) {
    x.push_back(number(connections));
    rate.push_back(step.rate);
    p50.push_back(step.p50);
    p99.push_back(step.p99);
  }
  const auto axis = Scale::logarithmic(x.front() * 0.9, x.back() * 1.1, Unit::count, 6);
  Chart r;
  r.title = "Rate by connections";
  r.unit_text = "requests per second";
  r.x = axis;
  r.y = Scale::linear(*std::max_element(rate.begin(), rate.end()), Unit::per_second);
  r.series.push_back({"finished", "c1", x, rate, false, true});
  Chart l;
  l.title = "Latency by connections";
  l.unit_text = "logarithmic";
  l.x = axis;
  l.series.push_back({"p50", "c1", x, p50, false, true});
  l.series.push_back({"p99", "c2", x, p99, false, true});
  l.y = Scale::logarithmic(lowest_positive(l.series), highest(l.series), Unit::ns);
  return "<div class=\"two\"><section class=\"card\">\n" + render(r) +
         "</section>\n<section class=\"card\">\n" + render(l) + "</section></div>\n";
}

}  // namespace spate::controller::report
