#include "common/histogram.h"

#include <cmath>

#include "common/varint.h"

namespace spate {
namespace {

constexpr std::uint64_t kEncodingVersion = 1;

// Bounds of a sum of up to 2^64 values of up to 2^63 each.
__extension__ using Wide = unsigned __int128;

std::uint64_t saturate(Wide value) {
  constexpr Wide kMax = std::numeric_limits<std::uint64_t>::max();
  return static_cast<std::uint64_t>(std::min(value, kMax));
}

Error bad(const char* what) { return invalid(std::string("histogram: ") + what); }

// The 1-based rank of the quantile among `count` values. The tiny reduction keeps 0.07 of 100,
// which is 7.000000000000001 in binary, from becoming the 8th.
std::uint64_t rank_of(double q, std::uint64_t count) {
  if (!(q > 0)) return 1;
  if (q >= 1) return count;
  const long double exact = static_cast<long double>(q) * static_cast<long double>(count);
  const auto rank = static_cast<std::uint64_t>(std::ceil(exact * (1 - 1e-15L)));
  return std::clamp<std::uint64_t>(rank, 1, count);
}

}  // namespace

void Histogram::record_slowly(std::int64_t value, std::uint64_t count) {
  if (count == 0) return;
  const auto unsigned_value = static_cast<std::uint64_t>(value);
  buckets_[bucket_of(unsigned_value)] += count;
  count_ += count;
  if (unsigned_value >= kRangeEnd) overflow_ += count;
  min_ = std::min(min_, value);
  max_ = std::max(max_, value);
  sum_ = saturate(static_cast<Wide>(unsigned_value) * count + sum_);
}

void Histogram::merge(const Histogram& other) {
  if (other.count_ == 0) return;
  if (buckets_.empty()) buckets_.resize(kBucketCount);
  for (std::size_t i = 0; i < kBucketCount; ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  overflow_ += other.overflow_;
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
  sum_ = saturate(static_cast<Wide>(sum_) + other.sum_);
}

void Histogram::clear() {
  std::vector<std::uint64_t> buckets = std::move(buckets_);
  if (count_ != 0) std::fill(buckets.begin(), buckets.end(), 0);
  *this = Histogram();
  buckets_ = std::move(buckets);
}

void Histogram::swap(Histogram& other) noexcept {
  buckets_.swap(other.buckets_);
  std::swap(count_, other.count_);
  std::swap(overflow_, other.overflow_);
  std::swap(min_, other.min_);
  std::swap(max_, other.max_);
  std::swap(sum_, other.sum_);
}

double Histogram::mean() const {
  return count_ == 0 ? 0 : static_cast<double>(sum_) / static_cast<double>(count_);
}

std::int64_t Histogram::quantile(double q) const {
  if (count_ == 0) return 0;
  const std::uint64_t rank = rank_of(q, count_);
  if (rank == 1) return min_;
  // Where a value past the range lies is not known; the maximum is a true bound for it.
  if (rank > count_ - overflow_ || rank == count_) return max_;
  std::uint64_t seen = 0;
  for (std::size_t i = bucket_of(static_cast<std::uint64_t>(min_)); i < kBucketCount; ++i) {
    seen += buckets_[i];
    if (seen < rank) continue;
    const std::int64_t lower = lower_bound_of(i);
    const std::int64_t middle = lower + (lower_bound_of(i + 1) - 1 - lower) / 2;
    return std::clamp(middle, min_, max_);
  }
  return max_;
}

std::uint64_t Histogram::count_at_or_below(std::int64_t value_ns) const {
  if (count_ == 0 || value_ns < min_) return 0;
  if (value_ns >= max_) return count_;
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < kBucketCount && lower_bound_of(i + 1) - 1 <= value_ns; ++i) {
    // In the last bucket are also the values past the range.
    seen += i + 1 == kBucketCount ? buckets_[i] - overflow_ : buckets_[i];
  }
  return seen;
}

std::vector<Histogram::Bucket> Histogram::buckets() const {
  std::vector<Bucket> result;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    if (buckets_[i] != 0) result.push_back({lower_bound_of(i), lower_bound_of(i + 1), buckets_[i]});
  }
  if (overflow_ != 0) {
    result.back().upper = max_ == std::numeric_limits<std::int64_t>::max() ? max_ : max_ + 1;
  }
  return result;
}

bool Histogram::operator==(const Histogram& other) const {
  if (count_ != other.count_ || overflow_ != other.overflow_ || min() != other.min() ||
      max_ != other.max_ || sum_ != other.sum_) {
    return false;
  }
  return count_ == 0 || buckets_ == other.buckets_;
}

std::string Histogram::encode() const {
  std::string out;
  if (count_ == 0) return out;
  append_varint(out, kEncodingVersion);
  append_varint(out, static_cast<std::uint64_t>(min_));
  append_varint(out, static_cast<std::uint64_t>(max_));
  append_varint(out, sum_);
  append_varint(out, overflow_);
  std::size_t next =
      0;  // the delta is counted from here, so 0 is the bucket just after the last one
  for (std::size_t i = 0; i < kBucketCount; ++i) {
    if (buckets_[i] == 0) continue;
    append_varint(out, i - next);
    append_varint(out, buckets_[i]);
    next = i + 1;
  }
  return out;
}

Result<Histogram> Histogram::decode(std::string_view bytes) {
  Histogram h;
  if (bytes.empty()) return h;
  std::uint64_t version = 0;
  std::uint64_t min = 0;
  std::uint64_t max = 0;
  if (!take_varint(bytes, version) || version != kEncodingVersion) return bad("unknown version");
  if (!take_varint(bytes, min) || !take_varint(bytes, max) || !take_varint(bytes, h.sum_) ||
      !take_varint(bytes, h.overflow_)) {
    return bad("cut off or malformed in its head");
  }
  constexpr auto kValueMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (max > kValueMax || min > max) return bad("minimum and maximum out of order or range");
  h.min_ = static_cast<std::int64_t>(min);
  h.max_ = static_cast<std::int64_t>(max);

  h.buckets_.resize(kBucketCount);
  std::size_t next = 0;
  std::size_t first = kBucketCount;
  std::size_t last = 0;
  Wide least = 0;  // bounds of the sum
  Wide most = 0;
  while (!bytes.empty()) {
    std::uint64_t delta = 0;
    std::uint64_t count = 0;
    if (!take_varint(bytes, delta) || !take_varint(bytes, count))
      return bad("cut off or malformed in a bucket");
    if (delta >= kBucketCount - next) return bad("bucket out of range");
    if (count == 0) return bad("bucket with count 0");
    if (__builtin_add_overflow(h.count_, count, &h.count_)) return bad("counts too large");
    const std::size_t i = next + static_cast<std::size_t>(delta);
    h.buckets_[i] = count;
    first = std::min(first, i);
    last = i;
    const Wide lower = static_cast<std::uint64_t>(lower_bound_of(i));
    const Wide upper = static_cast<std::uint64_t>(lower_bound_of(i + 1) - 1);
    least += std::max<Wide>(lower, min) * count;
    most += (i + 1 == kBucketCount ? static_cast<Wide>(max) : std::min<Wide>(upper, max)) * count;
    next = i + 1;
  }
  if (h.count_ == 0) return bad("no buckets");
  if (bucket_of(min) != first || bucket_of(max) != last)
    return bad("minimum or maximum outside the buckets");
  const std::uint64_t in_last = h.buckets_[kBucketCount - 1];
  if (h.overflow_ > in_last || (h.overflow_ != 0) != (max >= kRangeEnd) ||
      (min >= kRangeEnd && h.overflow_ != h.count_)) {
    return bad("overflow does not match the buckets");
  }
  if (h.sum_ < saturate(least) || h.sum_ > saturate(most))
    return bad("sum does not match the buckets");
  return h;
}

}  // namespace spate
