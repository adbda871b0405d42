#pragma once

// A log-linear histogram of durations in nanoseconds.
//
// Values below 128 ns have a bucket each. Above, every power of two is cut into 64 buckets of equal
// width, so a bucket is at most 1/64 (1.56 %) of its lower bound wide and a quantile, reported as
// the middle of its bucket and clamped to [min, max], is within 0.8 % of the sample it stands for.
// The range ends at 2^42 ns (73 minutes); larger values are counted in the last bucket and in
// `overflow()`, and the exact maximum is kept. Counts are 64 bits wide.
//
// Merging adds bucket by bucket and is exact: the quantile of a merge is the quantile of one
// histogram that had seen every sample.
//
// Not thread-safe; owned by one thread at a time, moved between threads; a moved-from histogram is
// empty and may be used again. Buckets are allocated at the first record (about 19 KB) and kept by
// clear().

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/result.h"

namespace spate {

class Histogram {
 public:
  static constexpr int kSubBucketBits = 6;
  static constexpr int kMaxBits = 42;
  static constexpr std::uint64_t kRangeEnd = std::uint64_t{1} << kMaxBits;
  static constexpr std::size_t kBucketCount =
      (std::size_t{1} << (kSubBucketBits + 1)) +
      static_cast<std::size_t>(kMaxBits - kSubBucketBits - 1) * (std::size_t{1} << kSubBucketBits);

  // What a histogram knows besides its buckets. Apart, because both may live in memory that
  // outlives the process (agent/open_interval.h); an empty one has kBucketCount buckets of zero, or
  // none.
  struct Head {
    std::uint64_t count = 0;
    std::uint64_t overflow = 0;
    std::int64_t min = std::numeric_limits<std::int64_t>::max();  // this while empty
    std::int64_t max = 0;
    // Sum of ns: 128 bits would be exact for ever; 64 bits unsigned hold 584 years of latency,
    // enough for 10^9 requests of 18 s in one histogram. Saturates.
    std::uint64_t sum = 0;

    // On the request path. Negative values count as 0.
    void record(std::uint64_t* buckets, std::int64_t value_ns) {
      const std::int64_t value = std::max<std::int64_t>(value_ns, 0);
      const auto unsigned_value = static_cast<std::uint64_t>(value);
      if (unsigned_value >= kRangeEnd) [[unlikely]]
        return record_slowly(buckets, value, 1);
      ++buckets[bucket_of(unsigned_value)];
      ++count;
      min = std::min(min, value);
      max = std::max(max, value);
      if (__builtin_add_overflow(sum, unsigned_value, &sum)) [[unlikely]]
        sum = std::numeric_limits<std::uint64_t>::max();
    }
    void record_slowly(std::uint64_t* buckets, std::int64_t value, std::uint64_t times);
  };

  Histogram() = default;
  Histogram(const Histogram&) = default;
  Histogram& operator=(const Histogram&) = default;
  Histogram(Histogram&& other) noexcept { swap(other); }
  Histogram& operator=(Histogram&& other) noexcept {
    Histogram(std::move(other)).swap(*this);
    return *this;
  }

  void record(std::int64_t value_ns) {
    if (buckets_.empty()) [[unlikely]]
      buckets_.resize(kBucketCount);
    head_.record(buckets_.data(), value_ns);
  }
  void record(std::int64_t value_ns, std::uint64_t count);
  static Histogram copy_of(const Head& head, const std::uint64_t* buckets);
  // Of a histogram whose process may have died between any two stores of record(`last_value`): the
  // buckets are the truth, and what does not fit them is put right. The sum may lack that value.
  static Histogram salvage(const Head& head, const std::uint64_t* buckets, std::int64_t last_value);
  void merge(const Histogram& other);
  void clear();

  std::uint64_t count() const { return head_.count; }
  bool empty() const { return head_.count == 0; }
  std::uint64_t overflow() const { return head_.overflow; }
  // 0 when empty. Exact.
  std::int64_t min() const { return head_.count == 0 ? 0 : head_.min; }
  std::int64_t max() const { return head_.max; }
  double mean() const;  // exact up to the sum's double rounding

  // The smallest recorded value such that at least q of all values are not larger (nearest rank),
  // to the bucket's precision; the extreme ranks are the exact minimum and maximum. 0 when empty. q
  // in [0, 1].
  std::int64_t quantile(double q) const;

  // How many recorded values are certainly <= value, to the bucket's precision.
  std::uint64_t count_at_or_below(std::int64_t value_ns) const;

  // (lower bound, upper bound exclusive, count) of every non-empty bucket, ascending. With overflow
  // the last one ends after the maximum.
  struct Bucket {
    std::int64_t lower;
    std::int64_t upper;
    std::uint64_t count;
  };
  std::vector<Bucket> buckets() const;

  // Compact: version, min, max, sum, overflow, then (index delta, count) as varints. Empty
  // histogram: empty string.
  std::string encode() const;
  // Refuses anything encode() would not have written, with the reason.
  static Result<Histogram> decode(std::string_view bytes);

  bool operator==(const Histogram&) const;

  // Values past the range are in the last bucket.
  static constexpr std::size_t bucket_of(std::uint64_t value_ns) {
    const std::uint64_t v = std::min(value_ns, kRangeEnd - 1);
    // 0 below 128, then one more for each power of two; (v >> shift) is then in [64, 128).
    constexpr std::uint64_t kLinear = (std::uint64_t{1} << (kSubBucketBits + 1)) - 1;
    const int shift = static_cast<int>(std::bit_width(v | kLinear)) - (kSubBucketBits + 1);
    return (static_cast<std::size_t>(shift) << kSubBucketBits) +
           static_cast<std::size_t>(v >> shift);
  }
  // Of bucket kBucketCount: the end of the range.
  static constexpr std::int64_t lower_bound_of(std::size_t bucket) {
    if (bucket < (std::size_t{1} << (kSubBucketBits + 1))) return static_cast<std::int64_t>(bucket);
    const std::size_t shift = (bucket >> kSubBucketBits) - 1;
    const std::size_t mantissa = bucket - (shift << kSubBucketBits);
    return static_cast<std::int64_t>(mantissa << shift);
  }

 private:
  void swap(Histogram& other) noexcept;

  std::vector<std::uint64_t> buckets_;  // empty until the first record
  Head head_;
};

}  // namespace spate
