#include "common/threshold.h"

#include <algorithm>
#include <charconv>

#include "common/units.h"

namespace spate {
namespace {

bool is_time(Threshold::Metric m) {
  return m != Threshold::Metric::errors && m != Threshold::Metric::requests;
}

const char* examples(Threshold::Metric m) {
  switch (m) {
    case Threshold::Metric::errors:
      return "write for example \"rate<0.1%\"";
    case Threshold::Metric::requests:
      return "write for example \"rate>1000/s\"";
    default:
      return "write for example \"p(99)<50ms\", \"mean<5ms\" or \"max<1s\"";
  }
}

// A plain decimal number and nothing after it.
bool read_number(std::string_view text, double& out) {
  const char* const end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, out, std::chars_format::fixed);
  return code == std::errc() && stop == end && !text.empty() && text[0] >= '0' && text[0] <= '9';
}

Result<void> read_statistic(std::string_view text, Threshold& out) {
  if (!is_time(out.metric)) {
    out.statistic = Threshold::Statistic::rate;
    if (text == "rate") return {};
    return invalid("\"" + std::string(text) + "\" is not known for " +
                   std::string(name(out.metric)) + "; only rate is");
  }
  if (text == "mean" || text == "max") {
    out.statistic = text == "max" ? Threshold::Statistic::max : Threshold::Statistic::mean;
    return {};
  }
  out.statistic = Threshold::Statistic::quantile;
  double percent = 0;
  if (text.size() < 4 || text.substr(0, 2) != "p(" || text.back() != ')') {
    return invalid("\"" + std::string(text) + "\" is not p(…), mean or max");
  }
  if (!read_number(text.substr(2, text.size() - 3), percent) || percent > 100) {
    return invalid("\"" + std::string(text) + "\" needs a percentile from 0 to 100");
  }
  out.quantile = percent / 100;
  return {};
}

Result<void> read_bound(std::string_view text, Threshold& out) {
  if (is_time(out.metric)) {
    const auto bound = parse_duration(text);
    if (!bound) return bound.error();
    out.bound = static_cast<double>(bound->count());
    return {};
  }
  if (out.metric == Threshold::Metric::requests) {
    const auto bound = parse_rate(text);
    if (!bound) return bound.error();
    out.bound = *bound;
    return {};
  }
  const bool percent = !text.empty() && text.back() == '%';
  if (percent) text.remove_suffix(1);
  if (!read_number(text, out.bound))
    return invalid("\"" + std::string(text) + "\" is not a share of the requests");
  if (percent) out.bound /= 100;
  if (out.bound > 1) return invalid("a share above 100 % is never reached");
  return {};
}

}  // namespace

std::string_view name(Threshold::Metric metric) {
  switch (metric) {
    case Threshold::Metric::latency:
      return "latency";
    case Threshold::Metric::service_time:
      return "service_time";
    case Threshold::Metric::send_lag:
      return "send_lag";
    case Threshold::Metric::errors:
      return "errors";
    case Threshold::Metric::requests:
      return "requests";
  }
  return "unknown";
}

Result<Threshold> parse_threshold(Threshold::Metric metric, std::string_view text) {
  std::string squeezed(text);
  std::erase_if(squeezed, [](char c) { return c == ' ' || c == '\t'; });
  const std::string_view all = squeezed;
  const auto fail = [&](const std::string& why) {
    return invalid("threshold \"" + std::string(text) + "\": " + why + "; " + examples(metric));
  };
  Threshold t;
  t.metric = metric;
  const std::size_t sign = all.find_first_of("<>");
  if (sign == all.npos) return fail("it has no < or >");
  if (sign + 1 < all.size() && all[sign + 1] == '=')
    return fail("<= and >= are not known, < and > are");
  t.comparison = all[sign] == '<' ? Threshold::Comparison::less : Threshold::Comparison::greater;
  if (auto done = read_statistic(all.substr(0, sign), t); !done) return fail(done.error().message);
  if (auto done = read_bound(all.substr(sign + 1), t); !done) return fail(done.error().message);
  t.text = std::string(name(metric)) + " " + squeezed;
  return t;
}

}  // namespace spate
