#include "common/record.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "common/text.h"

namespace spate {
namespace {

// A corrupt record must not balance by wrapping round.
std::uint64_t plus(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<std::uint64_t>::max() : sum;
}

std::string text_of(std::uint64_t n) { return std::to_string(n); }
std::string ns(Duration d) { return std::to_string(d.count()) + " ns"; }

}  // namespace

std::size_t ErrorTally::add(Outcome outcome, std::uint32_t code, std::string_view text,
                            std::uint64_t count) {
  if (count == 0) return classes_.size();
  const std::string clean = printable_utf8(text, kMaxErrorText);
  const auto find = [&](std::uint32_t wanted_code, std::string_view wanted_text) {
    return std::find_if(classes_.begin(), classes_.end(), [&](const ErrorClass& c) {
      return c.outcome == outcome && c.code == wanted_code && c.text == wanted_text;
    });
  };
  auto found = find(code, clean);
  if (found == classes_.end() && classes_.size() >= kMaxErrorClasses) found = find(0, "other");
  if (found != classes_.end()) {
    found->count = plus(found->count, count);
    return static_cast<std::size_t>(found - classes_.begin());
  }
  if (classes_.size() < kMaxErrorClasses) {
    classes_.push_back({outcome, code, clean, count});
  } else {
    classes_.push_back({outcome, 0, "other", count});  // at most one for each outcome
  }
  return classes_.size() - 1;
}

void ErrorTally::merge(const ErrorTally& other) {
  for (const ErrorClass& c : other.classes_) add(c.outcome, c.code, c.text, c.count);
}

std::uint64_t Record::finished() const {
  std::uint64_t sum = 0;
  for (const OutcomeSeries& s : series) sum = plus(sum, s.latency.count());
  return sum;
}

std::vector<std::string> broken_laws(const Record& r) {
  std::vector<std::string> broken;
  const Counters& c = r.counters;
  const std::uint64_t missed =
      plus(plus(c.missed_in_flight_limit, c.missed_overload), c.missed_paused);
  if (c.scheduled != plus(c.sent, missed)) {
    broken.push_back("scheduled " + text_of(c.scheduled) + " is not sent " + text_of(c.sent) +
                     " + missed " + text_of(missed));
  }
  const std::uint64_t finished = r.finished();
  if (plus(c.in_flight_begin, c.sent) != plus(finished, c.in_flight_end)) {
    broken.push_back("in flight at the begin " + text_of(c.in_flight_begin) + " + sent " +
                     text_of(c.sent) + " is not finished " + text_of(finished) +
                     " + in flight at the end " + text_of(c.in_flight_end));
  }
  for (const Outcome o : kOutcomes) {
    const OutcomeSeries& s = r.series[index(o)];
    if (s.latency.count() != s.service_time.count()) {
      broken.push_back(std::string(name(o)) + " has " + text_of(s.latency.count()) +
                       " latencies but " + text_of(s.service_time.count()) + " service times");
    }
  }
  if (r.send_lag.count() != c.sent) {
    broken.push_back("send lag has " + text_of(r.send_lag.count()) + " entries for " +
                     text_of(c.sent) + " sent requests");
  }
  if (r.first() > r.key.seq)
    broken.push_back("first seq " + text_of(r.first()) + " is after seq " + text_of(r.key.seq));
  if (r.length < Duration::zero()) broken.push_back("length " + ns(r.length) + " is negative");
  return broken;
}

std::vector<std::string> broken_chain(const Record& previous, const Record& next) {
  std::vector<std::string> broken;
  if (previous.key.run != next.key.run || previous.key.agent != next.key.agent ||
      previous.key.incarnation != next.key.incarnation) {
    broken.push_back("records of different chains: " + previous.key.run + "/" + previous.key.agent +
                     "/" + text_of(previous.key.incarnation) + " and " + next.key.run + "/" +
                     next.key.agent + "/" + text_of(next.key.incarnation));
    return broken;
  }
  if (next.first() != plus(previous.key.seq, 1)) {
    broken.push_back("seq " + text_of(next.first()) + " follows seq " + text_of(previous.key.seq));
  }
  if (next.counters.in_flight_begin != previous.counters.in_flight_end) {
    broken.push_back("in flight at the begin of seq " + text_of(next.key.seq) + " is " +
                     text_of(next.counters.in_flight_begin) + ", at the end of seq " +
                     text_of(previous.key.seq) + " it was " +
                     text_of(previous.counters.in_flight_end));
  }
  if (next.start != previous.start + previous.length) {
    broken.push_back("seq " + text_of(next.key.seq) + " starts at " + ns(next.start) + ", seq " +
                     text_of(previous.key.seq) + " ended at " +
                     ns(previous.start + previous.length));
  }
  return broken;
}

}  // namespace spate
