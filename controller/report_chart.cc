#include "controller/report_chart.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "common/units.h"

namespace spate::controller::report {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Length of the well-formed UTF-8 sequence at the front, 0 if there is none.
std::size_t utf8_length(std::string_view s) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  const auto tail = [&](std::size_t i) { return i < s.size() && (byte(i) & 0xC0U) == 0x80U; };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return tail(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    if (!tail(1) || !tail(2)) return 0;
    if (first == 0xE0 && byte(1) < 0xA0) return 0;
    if (first == 0xED && byte(1) > 0x9F) return 0;
    if (first == 0xEF && byte(1) == 0xBF && byte(2) >= 0xBE) return 0;  // not allowed in XML
    return 3;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if (!tail(1) || !tail(2) || !tail(3)) return 0;
    if (first == 0xF0 && byte(1) < 0x90) return 0;
    if (first == 0xF4 && byte(1) > 0x8F) return 0;
    return 4;
  }
  return 0;
}

// 1, 2 or 5 times a power of ten, at or above `value`.
double round_up(double value) {
  const double power = std::pow(10.0, std::floor(std::log10(value)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0})
    if (value <= factor * power * 1.0000001) return factor * power;
  return 10 * power;
}

// The same in binary units, so that memory ticks read 64, 128, 256 MiB.
double round_up_binary(double value) {
  return std::pow(2.0, std::ceil(std::log2(std::max(value, 1.0)) - 1e-9));
}

constexpr std::array<double, 27> kTimeSteps = {
    0.1,   0.2,   0.5,   1,      2,      5,      10,      15,     30,
    60,    120,   300,   600,    900,    1800,   3600,    7200,   10800,
    21600, 43200, 86400, 172800, 432000, 864000, 1.728e6, 4.32e6, 8.64e6};

std::string path_of(const Series& s, const Chart& chart) {
  std::string d;
  bool down = false;
  for (std::size_t i = 0; i < s.x.size(); ++i) {
    const double x = chart.x.place(s.x[i]) * 1000;
    const double y = (1 - chart.y.place(s.y[i])) * 100;
    if (std::isnan(x) || std::isnan(y)) {
      down = false;
      continue;
    }
    const bool alone = !down && (i + 1 == s.x.size() || std::isnan(chart.y.place(s.y[i + 1])));
    fmt::format_to(std::back_inserter(d), "{}{:.1f} {:.1f}", down ? "L" : "M", x,
                   std::clamp(y, 0.0, 100.0));
    if (alone) d += "h.1";  // shows as a dot
    down = true;
  }
  return d;
}

// Each uninterrupted stretch of the line, closed along the low end.
std::string area_of(const Series& s, const Chart& chart) {
  std::string d;
  double last_x = kNoValue;
  const auto close = [&] {
    if (!std::isnan(last_x)) fmt::format_to(std::back_inserter(d), "L{:.1f} 100Z", last_x);
    last_x = kNoValue;
  };
  for (std::size_t i = 0; i < s.x.size(); ++i) {
    const double x = chart.x.place(s.x[i]) * 1000;
    const double y = (1 - chart.y.place(s.y[i])) * 100;
    if (std::isnan(x) || std::isnan(y)) {
      close();
      continue;
    }
    if (std::isnan(last_x)) fmt::format_to(std::back_inserter(d), "M{:.1f} 100", x);
    fmt::format_to(std::back_inserter(d), "L{:.1f} {:.1f}", x, std::clamp(y, 0.0, 100.0));
    last_x = x;
  }
  close();
  return d;
}

std::string legend_of(const Chart& chart) {
  std::string html;
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const auto& s = chart.series[i];
    html += fmt::format(
        R"(<span class="key"><i class="{}"></i>{}<b{}></b></span>)", s.look, escape(s.name),
        chart.live.empty() ? "" : fmt::format(R"( data-live="{}.{}")", chart.live, i));
  }
  return html;
}

}  // namespace

std::string escape(std::string_view text) {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  while (!text.empty()) {
    const auto length = utf8_length(text);
    const char c = text.front();
    if (length == 0) {
      out += kReplacement;
    } else if (length > 1) {
      out += text.substr(0, length);
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\'') {
      out += "&#39;";
    } else if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7F) {
      out += kReplacement;
    } else {
      out += c;
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

std::string short_value(double value, Unit unit) {
  if (std::isnan(value)) return "";
  const auto digits = [](double v) {
    if (v == 0) return std::string("0");
    const double a = std::abs(v);
    return a >= 100  ? fmt::format("{:.0f}", v)
           : a >= 10 ? fmt::format("{:.3g}", v)
                     : fmt::format("{:.3g}", v);
  };
  const auto scaled = [&](double v, double base, std::initializer_list<const char*> suffixes) {
    auto suffix = suffixes.begin();
    while (std::abs(v) >= base * 0.9995 && suffix + 1 != suffixes.end()) {
      v /= base;
      ++suffix;
    }
    return digits(v) + *suffix;
  };
  switch (unit) {
    case Unit::count:
    case Unit::per_second:
      return scaled(value, 1000, {"", "k", "M", "G", "T"});
    case Unit::bytes:
      return scaled(value, 1024, {" B", " KiB", " MiB", " GiB", " TiB"});
    case Unit::cores:
      return digits(value);
    case Unit::percent:
      return digits(value) + " %";
    case Unit::ns:
      break;
  }
  if (value >= 60e9) return digits(value / 60e9) + " min";
  return scaled(value, 1000, {" ns", " \u00b5s", " ms", " s"});
}

std::string elapsed_label(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (std::abs(seconds - static_cast<double>(whole)) > 0.001)
    return fmt::format("{:.1f} s", seconds);
  if (whole < 60) return fmt::format("{} s", whole);
  const auto days = whole / 86400, hours = whole / 3600 % 24, minutes = whole / 60 % 60,
             rest = whole % 60;
  if (days > 0)
    return hours > 0 ? fmt::format("{} d {} h", days, hours) : fmt::format("{} d", days);
  if (rest == 0) {
    if (hours == 0) return fmt::format("{} min", minutes);
    return minutes == 0 ? fmt::format("{} h", hours) : fmt::format("{}:{:02} h", hours, minutes);
  }
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, rest)
                   : fmt::format("{}:{:02}", minutes, rest);
}

Scale Scale::linear(double max, Unit unit) {
  Scale s;
  if (!(max > 0)) max = 1;
  // Headroom, so that a line at its highest does not touch the frame.
  const double step =
      unit == Unit::bytes ? round_up_binary(max * 1.02 / 4) : round_up(max * 1.02 / 4);
  s.high_ = std::ceil(max * 1.02 / step) * step;
  for (double v = 0; v <= s.high_ * 1.0001; v += step)
    s.ticks_.push_back({v, short_value(v, unit)});
  return s;
}

Scale Scale::logarithmic(double min, double max, Unit unit, std::size_t max_ticks) {
  Scale s;
  s.log_ = true;
  if (!(min > 0)) min = 1;
  if (!(max > min)) max = min * 1.5;
  const auto add = [&](double v) {
    if (v >= s.low_ * 0.9999 && v <= s.high_ * 1.0001)
      s.ticks_.push_back({v, short_value(v, unit)});
  };
  // Ends at 1, 2 or 5 times a power of ten.
  const auto down = [](double v) {
    const double power = std::pow(10.0, std::floor(std::log10(v) + 1e-9));
    return v >= 5 * power ? 5 * power : v >= 2 * power ? 2 * power : power;
  };
  s.low_ = down(min);
  s.high_ = round_up(max);
  if (s.high_ <= s.low_) s.high_ = s.low_ * 2;
  const auto first = static_cast<int>(std::floor(std::log10(s.low_) + 1e-9));
  const auto last = static_cast<int>(std::ceil(std::log10(s.high_) - 1e-9));
  // As many as fit without touching.
  static constexpr std::array<std::initializer_list<double>, 3> kFactors = {
      {{1, 2, 5}, {1, 3}, {1}}};
  for (const auto& factors : kFactors) {
    s.ticks_.clear();
    for (int e = first; e <= last; ++e)
      for (const double factor : factors) add(factor * std::pow(10.0, e));
    if (s.ticks_.size() <= max_ticks) break;
  }
  if (s.ticks_.size() > max_ticks)
    for (std::size_t i = 1; i < s.ticks_.size(); ++i)
      s.ticks_.erase(s.ticks_.begin() + static_cast<std::ptrdiff_t>(i));
  return s;
}

Scale Scale::time(double from_s, double to_s) {
  Scale s;
  s.low_ = from_s;
  s.high_ = std::max(to_s, from_s + 0.001);
  double step = kTimeSteps.back();
  for (const double candidate : kTimeSteps)
    if ((s.high_ - s.low_) / candidate <= 6.5) {
      step = candidate;
      break;
    }
  for (double n = std::ceil(from_s / step); n * step <= s.high_ * 1.000001; ++n)
    s.ticks_.push_back({n * step, elapsed_label(n * step)});
  return s;
}

double Scale::place(double value) const {
  if (std::isnan(value)) return kNoValue;
  if (!log_) return (value - low_) / (high_ - low_);
  if (value <= 0) return kNoValue;
  return std::log(value / low_) / std::log(high_ / low_);
}

std::string x_axis_labels(const Scale& x) {
  std::string html = R"(<div class="xs">)";
  for (const auto& t : x.ticks()) {
    const double at = x.place(t.at);
    // The outermost labels stay inside the frame.
    const auto* side = at < 0.03 ? "first" : at > 0.97 ? "last" : "";
    html += fmt::format(R"(<span class="{}" style="left:{:.2f}%">{}</span>)", side, at * 100,
                        escape(t.label));
  }
  return html + "</div>\n";
}

std::string render(const Chart& chart) {
  std::string html = fmt::format(
      "<figure class=\"chart\"><figcaption><span class=\"name\">{} <small>{}</small></span>"
      "<span class=\"keys\">{}</span></figcaption>\n",
      escape(chart.title), escape(chart.unit_text), legend_of(chart));
  html += fmt::format(R"(<div class="plot" style="height:{}px"><div class="ys">)", chart.height_px);
  for (const auto& t : chart.y.ticks())
    html += fmt::format(R"(<span style="bottom:{:.2f}%">{}</span>)", chart.y.place(t.at) * 100,
                        escape(t.label));
  html +=
      "</div><svg viewBox=\"0 0 1000 100\" preserveAspectRatio=\"none\" role=\"img\" "
      "aria-label=\"" +
      escape(chart.title) + "\"><g class=\"grid\">";
  for (const auto& t : chart.y.ticks())
    html += fmt::format(R"(<path d="M0 {0:.1f}H1000"/>)", (1 - chart.y.place(t.at)) * 100);
  for (const auto& t : chart.x.ticks())
    html += fmt::format(R"(<path d="M{0:.1f} 0V100"/>)", chart.x.place(t.at) * 1000);
  html += "</g>";
  for (const auto& s : chart.series) {
    if (s.filled)
      html += fmt::format(R"(<path class="area {}" d="{}"/>)", s.look, area_of(s, chart));
  }
  for (const auto& s : chart.series) {
    html += fmt::format("<path class=\"line {}\" d=\"{}\"/>", s.look, path_of(s, chart));
    if (!s.dots) continue;
    for (std::size_t i = 0; i < s.x.size(); ++i)
      html += fmt::format(R"(<path class="dot {}" d="M{:.1f} {:.1f}h.1"/>)", s.look,
                          chart.x.place(s.x[i]) * 1000, (1 - chart.y.place(s.y[i])) * 100);
  }
  html += "</svg></div>\n";
  if (chart.x_labels) html += x_axis_labels(chart.x);
  return html + "</figure>\n";
}

}  // namespace spate::controller::report
