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

struct SumBounds {
  Wide least = 0;
  Wide most = 0;
};

// What the sum of samples in these buckets, between these extremes, can be.
SumBounds bounds_of(const std::uint64_t* buckets, std::int64_t smallest, std::int64_t largest) {
  const auto min = static_cast<std::uint64_t>(smallest);
  const auto max = static_cast<std::uint64_t>(largest);
  SumBounds bounds;
  for (std::size_t i = 0; i < Histogram::kBucketCount; ++i) {
    if (buckets[i] == 0) continue;
    const auto lower = static_cast<std::uint64_t>(Histogram::lower_bound_of(i));
    const auto upper = static_cast<std::uint64_t>(Histogram::lower_bound_of(i + 1) - 1);
    const bool is_last = i + 1 == Histogram::kBucketCount;
    bounds.least += static_cast<Wide>(std::max(lower, min)) * buckets[i];
    bounds.most += static_cast<Wide>(is_last ? max : std::min(upper, max)) * buckets[i];
  }
  return bounds;
}

// Unless it is empty, the buckets that are in use lie between these.
std::size_t first_used(const Histogram::Head& head) {
  return Histogram::bucket_of(static_cast<std::uint64_t>(head.min));
}
std::size_t last_used(const Histogram::Head& head) {
  return Histogram::bucket_of(static_cast<std::uint64_t>(head.max));
}

}  // namespace

void Histogram::Head::record_slowly(std::uint64_t* buckets, std::int64_t value,
                                    std::uint64_t times) {
  if (times == 0) return;
  const auto unsigned_value = static_cast<std::uint64_t>(value);
  buckets[bucket_of(unsigned_value)] += times;
  count += times;
  if (unsigned_value >= kRangeEnd) overflow += times;
  min = std::min(min, value);
  max = std::max(max, value);
  sum = saturate(static_cast<Wide>(unsigned_value) * times + sum);
}

void Histogram::record(std::int64_t value_ns, std::uint64_t count) {
  if (buckets_.empty()) buckets_.resize(kBucketCount);
  head_.record_slowly(buckets_.data(), std::max<std::int64_t>(value_ns, 0), count);
}

void Histogram::merge(const Histogram& other) {
  if (other.head_.count == 0) return;
  if (buckets_.empty()) buckets_.resize(kBucketCount);
  const std::size_t last = last_used(other.head_);
  for (std::size_t i = first_used(other.head_); i <= last; ++i) buckets_[i] += other.buckets_[i];
  head_.count += other.head_.count;
  head_.overflow += other.head_.overflow;
  head_.min = std::min(head_.min, other.head_.min);
  head_.max = std::max(head_.max, other.head_.max);
  head_.sum = saturate(static_cast<Wide>(head_.sum) + other.head_.sum);
}

void Histogram::clear() {
  std::vector<std::uint64_t> buckets = std::move(buckets_);
  if (head_.count != 0) std::fill(buckets.begin(), buckets.end(), 0);
  *this = Histogram();
  buckets_ = std::move(buckets);
}

void Histogram::swap(Histogram& other) noexcept {
  buckets_.swap(other.buckets_);
  std::swap(head_, other.head_);
}

double Histogram::mean() const {
  return head_.count == 0 ? 0 : static_cast<double>(head_.sum) / static_cast<double>(head_.count);
}

std::int64_t Histogram::quantile(double q) const {
  if (head_.count == 0) return 0;
  const std::uint64_t rank = rank_of(q, head_.count);
  if (rank == 1) return head_.min;
  // Where a value past the range lies is not known; the maximum is a true bound for it.
  if (rank > head_.count - head_.overflow || rank == head_.count) return head_.max;
  std::uint64_t seen = 0;
  for (std::size_t i = bucket_of(static_cast<std::uint64_t>(head_.min)); i < kBucketCount; ++i) {
    seen += buckets_[i];
    if (seen < rank) continue;
    const std::int64_t lower = lower_bound_of(i);
    const std::int64_t middle = lower + (lower_bound_of(i + 1) - 1 - lower) / 2;
    return std::clamp(middle, head_.min, head_.max);
  }
  return head_.max;
}

std::uint64_t Histogram::count_at_or_below(std::int64_t value_ns) const {
  if (head_.count == 0 || value_ns < head_.min) return 0;
  if (value_ns >= head_.max) return head_.count;
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < kBucketCount && lower_bound_of(i + 1) - 1 <= value_ns; ++i) {
    // In the last bucket are also the values past the range.
    seen += i + 1 == kBucketCount ? buckets_[i] - head_.overflow : buckets_[i];
  }
  return seen;
}

std::vector<Histogram::Bucket> Histogram::buckets() const {
  std::vector<Bucket> result;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    if (buckets_[i] != 0) result.push_back({lower_bound_of(i), lower_bound_of(i + 1), buckets_[i]});
  }
  if (head_.overflow != 0) {
    result.back().upper =
        head_.max == std::numeric_limits<std::int64_t>::max() ? head_.max : head_.max + 1;
  }
  return result;
}

bool Histogram::operator==(const Histogram& other) const {
  if (head_.count != other.head_.count || head_.overflow != other.head_.overflow ||
      min() != other.min() || head_.max != other.head_.max || head_.sum != other.head_.sum) {
    return false;
  }
  return head_.count == 0 || buckets_ == other.buckets_;
}

std::string Histogram::encode() const {
  std::string out;
  if (head_.count == 0) return out;
  append_varint(out, kEncodingVersion);
  append_varint(out, static_cast<std::uint64_t>(head_.min));
  append_varint(out, static_cast<std::uint64_t>(head_.max));
  append_varint(out, head_.sum);
  append_varint(out, head_.overflow);
  std::size_t next =
      0;  // the delta is counted from here, so 0 is the bucket just after the last one
  const std::size_t last = last_used(head_);
  for (std::size_t i = first_used(head_); i <= last; ++i) {
    if (buckets_[i] == 0) continue;
    append_varint(out, i - next);
    append_varint(out, buckets_[i]);
    next = i + 1;
  }
  return out;
}

Histogram Histogram::copy_of(const Head& head, const std::uint64_t* buckets) {
  Histogram h;
  if (head.count == 0) return h;
  h.buckets_.assign(buckets, buckets + kBucketCount);
  h.head_ = head;
  return h;
}

Histogram Histogram::salvage(const Head& head, const std::uint64_t* buckets,
                             std::int64_t last_value) {
  Histogram h;
  Head& right = h.head_;
  std::size_t first = kBucketCount;
  std::size_t last = 0;
  for (std::size_t i = 0; i < kBucketCount; ++i) {
    if (buckets[i] == 0) continue;
    right.count += buckets[i];
    first = std::min(first, i);
    last = i;
  }
  if (right.count == 0) return h;
  h.buckets_.assign(buckets, buckets + kBucketCount);
  const std::int64_t value = std::max<std::int64_t>(last_value, 0);
  const std::size_t its_bucket = bucket_of(static_cast<std::uint64_t>(value));
  // A head that has seen every sample has its extremes in the outermost buckets.
  right.min = head.min;
  if (head.count == 0 || bucket_of(static_cast<std::uint64_t>(head.min)) != first)
    right.min = its_bucket == first ? value : lower_bound_of(first);
  right.max = head.max;
  if (head.count == 0 || bucket_of(static_cast<std::uint64_t>(head.max)) != last)
    right.max = its_bucket == last ? value : lower_bound_of(last + 1) - 1;
  if (head.count < right.count) {
    if (its_bucket == first) right.min = std::min(right.min, value);
    if (its_bucket == last) right.max = std::max(right.max, value);
  }
  right.min = std::min(right.min, right.max);

  const bool is_beyond = static_cast<std::uint64_t>(right.max) >= kRangeEnd;
  if (is_beyond)
    right.overflow = std::clamp<std::uint64_t>(head.overflow, 1, buckets[kBucketCount - 1]);
  if (static_cast<std::uint64_t>(right.min) >= kRangeEnd) right.overflow = right.count;
  const std::uint64_t missing = right.count - std::min(right.count, head.count);
  const SumBounds bounds = bounds_of(buckets, right.min, right.max);
  right.sum = std::clamp(
      saturate(static_cast<Wide>(head.sum) + static_cast<Wide>(missing) * static_cast<Wide>(value)),
      saturate(bounds.least), saturate(bounds.most));
  return h;
}

Result<Histogram> Histogram::decode(std::string_view bytes) {
  Histogram h;
  if (bytes.empty()) return h;
  std::uint64_t version = 0;
  std::uint64_t min = 0;
  std::uint64_t max = 0;
  if (!take_varint(bytes, version) || version != kEncodingVersion) return bad("unknown version");
  if (!take_varint(bytes, min) || !take_varint(bytes, max) || !take_varint(bytes, h.head_.sum) ||
      !take_varint(bytes, h.head_.overflow)) {
    return bad("cut off or malformed in its head");
  }
  constexpr auto kValueMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (max > kValueMax || min > max) return bad("minimum and maximum out of order or range");
  h.head_.min = static_cast<std::int64_t>(min);
  h.head_.max = static_cast<std::int64_t>(max);

  h.buckets_.resize(kBucketCount);
  std::size_t next = 0;
  std::size_t first = kBucketCount;
  std::size_t last = 0;
  while (!bytes.empty()) {
    std::uint64_t delta = 0;
    std::uint64_t count = 0;
    if (!take_varint(bytes, delta) || !take_varint(bytes, count))
      return bad("cut off or malformed in a bucket");
    if (delta >= kBucketCount - next) return bad("bucket out of range");
    if (count == 0) return bad("bucket with count 0");
    if (__builtin_add_overflow(h.head_.count, count, &h.head_.count))
      return bad("counts too large");
    const std::size_t i = next + static_cast<std::size_t>(delta);
    h.buckets_[i] = count;
    first = std::min(first, i);
    last = i;
    next = i + 1;
  }
  if (h.head_.count == 0) return bad("no buckets");
  if (bucket_of(min) != first || bucket_of(max) != last)
    return bad("minimum or maximum outside the buckets");
  const std::uint64_t in_last = h.buckets_[kBucketCount - 1];
  if (h.head_.overflow > in_last || (h.head_.overflow != 0) != (max >= kRangeEnd) ||
      (min >= kRangeEnd && h.head_.overflow != h.head_.count)) {
    return bad("overflow does not match the buckets");
  }
  const SumBounds bounds = bounds_of(h.buckets_.data(), h.head_.min, h.head_.max);
  if (h.head_.sum < saturate(bounds.least) || h.head_.sum > saturate(bounds.most))
    return bad("sum does not match the buckets");
  return h;
}

}  // namespace spate
