#pragma once

// Charts as HTML with inline SVG, for report_html.cc. Pure. The SVG of a chart has no text and is
// stretched to the width it gets (stroke widths stay); labels are HTML, placed in per cent, and so
// keep their size on any screen. All texts are escaped here.

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace spate::controller::report {

// Text into HTML (and XML): markup is escaped, control characters and invalid UTF-8 become U+FFFD.
std::string escape(std::string_view text);

enum class Unit { count, per_second, ns, bytes, cores, percent };
// "12.3k", "1.5 ms", "210 MiB", "0.42": three significant digits.
std::string short_value(double value, Unit unit);

struct Tick {
  double at = 0;
  std::string label;
};

class Scale {
 public:
  // From 0 to a round number at or above `max`.
  static Scale linear(double max, Unit unit);
  // Whole decades or parts of them around [min, max]; values at or below 0 have no place.
  static Scale logarithmic(double min, double max, Unit unit, std::size_t max_ticks = 9);
  // Elapsed seconds; the end is where the data ends, not a round number.
  static Scale time(double from_s, double to_s);

  // 0 at the low end, 1 at the high end; NaN if it has no place.
  double place(double value) const;
  double low() const { return low_; }
  double high() const { return high_; }
  const std::vector<Tick>& ticks() const { return ticks_; }

 private:
  double low_ = 0;
  double high_ = 1;
  bool log_ = false;
  std::vector<Tick> ticks_;
};

inline constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

struct Series {
  std::string name;
  std::string look;  // CSS class: c1 … c6, optionally " thin", " dash"
  std::vector<double> x;
  std::vector<double> y;  // kNoValue: the line is interrupted
  bool filled = false;    // down to the low end
  bool dots = false;
};

struct Chart {
  std::string title;
  std::string unit_text;  // after the title, quieter
  Unit unit = Unit::count;
  Scale x;
  Scale y;
  std::vector<Series> series;
  bool x_labels = true;
  int height_px = 150;
  std::string live;  // name of the data set for the pointer, "" for none
};

std::string render(const Chart& chart);
std::string x_axis_labels(const Scale& x);

// "0 s", "1:30", "2 h", "3 d 4 h"
std::string elapsed_label(double seconds);

}  // namespace spate::controller::report
