#include "common/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "common/random.h"
#include "common/varint.h"

namespace spate {
namespace {

constexpr double kQuantiles[] = {0,   0.001, 0.01, 0.1,   0.25,   0.5, 0.75,
                                 0.9, 0.95,  0.99, 0.999, 0.9999, 1};

std::int64_t exact_quantile(const std::vector<std::int64_t>& sorted, double q) {
  const auto rank =
      static_cast<std::size_t>(std::ceil(q * static_cast<double>(sorted.size()) - 1e-9));
  return sorted[std::clamp<std::size_t>(rank, 1, sorted.size()) - 1];
}

using Draw = std::function<std::int64_t(Random&)>;

const std::map<std::string, Draw> kDistributions = {
    {"uniform", [](Random& r) { return r.between(1'000, 50'000'000); }},
    {"small", [](Random& r) { return r.between(0, 300); }},
    {"exponential",
     [](Random& r) { return static_cast<std::int64_t>(-std::log(1 - r.unit()) * 2e6); }},
    {"bimodal",
     [](Random& r) {
       return r.unit() < 0.9 ? r.between(80'000, 120'000) : r.between(9'000'000, 11'000'000);
     }},
    {"constant", [](Random&) { return std::int64_t{123'456'789}; }},
    {"heavy tail",
     [](Random& r) {
       return static_cast<std::int64_t>(std::min(1e5 * std::pow(1 - r.unit(), -1.2), 4e12));
     }},
    {"over the whole range", [](Random& r) { return std::int64_t{1} << r.between(0, 41); }},
};

Histogram some_histogram(std::uint64_t seed, int samples) {
  Random random(seed);
  Histogram h;
  for (int i = 0; i < samples; ++i)
    h.record(random.between(0, std::int64_t{1} << random.between(1, 44)));
  return h;
}

TEST(Histogram, IsEmptyAtFirst) {
  const Histogram h;
  EXPECT_TRUE(h.empty());
  EXPECT_EQ(h.min(), 0);
  EXPECT_EQ(h.max(), 0);
  EXPECT_EQ(h.mean(), 0);
  EXPECT_EQ(h.quantile(0.99), 0);
  EXPECT_EQ(h.count_at_or_below(1'000), 0u);
  EXPECT_TRUE(h.buckets().empty());
  EXPECT_EQ(h.encode(), "");
}

TEST(Histogram, AgreesWithSortedSamples) {
  for (const auto& [label, draw] : kDistributions) {
    for (const int samples : {1, 2, 10, 101, 20'000}) {
      Random random(42);
      Histogram h;
      std::vector<std::int64_t> sorted;
      for (int i = 0; i < samples; ++i) {
        sorted.push_back(draw(random));
        h.record(sorted.back());
      }
      std::sort(sorted.begin(), sorted.end());
      EXPECT_EQ(h.min(), sorted.front()) << label;
      EXPECT_EQ(h.max(), sorted.back()) << label;
      for (const double q : kQuantiles) {
        const auto exact = static_cast<double>(exact_quantile(sorted, q));
        const auto shown = static_cast<double>(h.quantile(q));
        EXPECT_LE(std::abs(shown - exact), exact * 0.008 + 0.5)
            << label << " q=" << q << " samples=" << samples;
      }
    }
  }
}

TEST(Histogram, HasBucketsWithoutGapsAndNoWiderThanOneSixtyFourth) {
  for (std::size_t i = 0; i < Histogram::kBucketCount; ++i) {
    const std::int64_t lower = Histogram::lower_bound_of(i);
    const std::int64_t upper = Histogram::lower_bound_of(i + 1);
    ASSERT_LT(lower, upper);
    ASSERT_EQ(Histogram::bucket_of(static_cast<std::uint64_t>(lower)), i);
    ASSERT_EQ(Histogram::bucket_of(static_cast<std::uint64_t>(upper - 1)), i);
    if (lower >= 128) {
      ASSERT_LE((upper - lower) * 64, lower);
    } else {
      ASSERT_EQ(upper, lower + 1);
    }
  }
  EXPECT_EQ(Histogram::lower_bound_of(Histogram::kBucketCount), std::int64_t{1} << 42);
  EXPECT_EQ(Histogram::bucket_of(~std::uint64_t{0}), Histogram::kBucketCount - 1);
}

TEST(Histogram, KeepsTheExactMinimumAndMaximum) {
  Histogram h;
  for (const std::int64_t value : {999'999'937, 1'000'003, 77'777'777}) h.record(value);
  EXPECT_EQ(h.min(), 1'000'003);
  EXPECT_EQ(h.max(), 999'999'937);
  EXPECT_EQ(h.quantile(0), 1'000'003);
  EXPECT_EQ(h.quantile(1), 999'999'937);
  EXPECT_DOUBLE_EQ(h.mean(), (999'999'937.0 + 1'000'003 + 77'777'777) / 3);
}

TEST(Histogram, CountsNegativeValuesAsZero) {
  Histogram h;
  h.record(-5);
  EXPECT_EQ(h.count(), 1u);
  EXPECT_EQ(h.min(), 0);
  EXPECT_EQ(h.max(), 0);
}

TEST(Histogram, KeepsValuesAboveItsRange) {
  constexpr std::int64_t kFar = std::int64_t{1} << 50;
  Histogram h;
  h.record(1'000, 98);
  h.record(kFar);
  h.record(kFar + 7);
  EXPECT_EQ(h.overflow(), 2u);
  EXPECT_EQ(h.max(), kFar + 7);
  EXPECT_NEAR(static_cast<double>(h.quantile(0.5)), 1'000, 8);
  EXPECT_EQ(h.quantile(0.99), kFar + 7);
  EXPECT_EQ(h.count_at_or_below(kFar), 98u);
  EXPECT_EQ(h.count_at_or_below(kFar + 7), 100u);
  EXPECT_EQ(h.buckets().back().upper, kFar + 8);
}

TEST(Histogram, CountsBeyondThirtyTwoBits) {
  Histogram h;
  h.record(100, 5'000'000'000);
  h.record(1'000'000, 5'000'000'000);
  EXPECT_EQ(h.count(), 10'000'000'000u);
  EXPECT_EQ(h.quantile(0.5), 100);
  EXPECT_NEAR(static_cast<double>(h.quantile(0.500001)), 1e6, 8e3);
  EXPECT_EQ(h.count_at_or_below(100), 5'000'000'000u);
}

TEST(Histogram, SaturatesItsSum) {
  Histogram h;
  h.record(std::int64_t{1} << 62, 10);
  EXPECT_DOUBLE_EQ(h.mean(), 0x1p64 / 10);
  h.record(std::int64_t{1} << 62);
  Histogram twice = h;
  twice.merge(h);
  EXPECT_DOUBLE_EQ(twice.mean(), 0x1p64 / 22);
  const auto copy = Histogram::decode(twice.encode());
  ASSERT_TRUE(copy) << copy.error().message;
  EXPECT_EQ(*copy, twice);
}

TEST(Histogram, IgnoresACountOfZero) {
  Histogram h;
  h.record(5, 0);
  EXPECT_EQ(h, Histogram());
}

TEST(Histogram, CountsWhatIsCertainlyAtOrBelow) {
  Histogram h;
  for (std::int64_t v = 1; v <= 1'000; ++v) h.record(v * 1'000);
  for (const std::int64_t v : {1'000, 50'000, 500'000, 999'999}) {
    const auto exact = static_cast<double>(v / 1'000);
    EXPECT_LE(static_cast<double>(h.count_at_or_below(v)), exact);
    EXPECT_GE(static_cast<double>(h.count_at_or_below(v)), exact * 0.984 - 1);
  }
  EXPECT_EQ(h.count_at_or_below(999), 0u);
  EXPECT_EQ(h.count_at_or_below(1'000'000), 1'000u);
}

TEST(Histogram, MergesToTheHistogramOfAllSamples) {
  Random random(7);
  Histogram whole;
  std::vector<Histogram> parts(5);
  for (int i = 0; i < 10'000; ++i) {
    const std::int64_t v = random.between(0, std::int64_t{1} << random.between(1, 45));
    whole.record(v);
    parts[static_cast<std::size_t>(random.between(0, 4))].record(v);
  }
  Histogram forward;
  for (const Histogram& part : parts) forward.merge(part);
  Histogram backward;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) backward.merge(*part);
  EXPECT_EQ(forward, whole);
  EXPECT_EQ(backward, whole);
}

TEST(Histogram, MergesAssociativelyAndCommutatively) {
  const Histogram a = some_histogram(1, 500);
  const Histogram b = some_histogram(2, 50);
  const Histogram c = some_histogram(3, 5'000);
  const auto merged = [](Histogram x, const Histogram& y) {
    x.merge(y);
    return x;
  };
  EXPECT_EQ(merged(merged(a, b), c), merged(a, merged(b, c)));
  EXPECT_EQ(merged(a, b), merged(b, a));
  EXPECT_EQ(merged(a, Histogram()), a);
  EXPECT_EQ(merged(Histogram(), a), a);
}

TEST(Histogram, IsEmptyAndUsableAfterClearAndMove) {
  Histogram h = some_histogram(4, 100);
  const Histogram copy = h;
  Histogram taken = std::move(h);
  EXPECT_EQ(taken, copy);
  EXPECT_EQ(h, Histogram());  // NOLINT: promised to be empty
  h.record(5);
  EXPECT_EQ(h.quantile(0.5), 5);
  taken.clear();
  EXPECT_EQ(taken, Histogram());
  taken.record(7);
  EXPECT_EQ(taken.min(), 7);
  EXPECT_EQ(taken.count(), 1u);
}

TEST(Histogram, ListsItsBuckets) {
  Histogram h;
  h.record(3, 2);
  h.record(1'000);
  const auto buckets = h.buckets();
  ASSERT_EQ(buckets.size(), 2u);
  EXPECT_EQ(buckets[0].lower, 3);
  EXPECT_EQ(buckets[0].upper, 4);
  EXPECT_EQ(buckets[0].count, 2u);
  EXPECT_LE(buckets[1].lower, 1'000);
  EXPECT_GT(buckets[1].upper, 1'000);
}

TEST(HistogramEncoding, ComesBackTheSame) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Histogram h = some_histogram(seed, static_cast<int>(seed * seed));
    const auto copy = Histogram::decode(h.encode());
    ASSERT_TRUE(copy) << copy.error().message;
    EXPECT_EQ(*copy, h);
    EXPECT_EQ(copy->encode(), h.encode());
  }
}

TEST(HistogramEncoding, IsSmall) {
  Random random(3);
  Histogram h;
  for (int i = 0; i < 100'000; ++i) h.record(random.between(80'000, 160'000));
  EXPECT_LT(h.encode().size(), 400u);
}

TEST(HistogramEncoding, RefusesEveryPrefix) {
  const std::string bytes = some_histogram(5, 30).encode();
  for (std::size_t n = 1; n < bytes.size(); ++n) {
    const auto h = Histogram::decode(std::string_view(bytes).substr(0, n));
    EXPECT_FALSE(h.has_value()) << n;
  }
}

std::string varints(std::initializer_list<std::uint64_t> values) {
  std::string out;
  for (const std::uint64_t v : values) append_varint(out, v);
  return out;
}

TEST(HistogramEncoding, RefusesWhatItWouldNotHaveWritten) {
  // version, min, max, sum, overflow, (delta, count)…
  ASSERT_TRUE(Histogram::decode(varints({1, 5, 9, 14, 0, 5, 1, 3, 1})));
  const std::map<std::string, std::string> bad = {
      {"version", varints({2, 5, 9, 14, 0, 5, 1, 3, 1})},
      {"minimum above maximum", varints({1, 9, 5, 14, 0, 5, 1, 3, 1})},
      {"minimum elsewhere", varints({1, 4, 9, 14, 0, 5, 1, 3, 1})},
      {"maximum elsewhere", varints({1, 5, 10, 14, 0, 5, 1, 3, 1})},
      {"maximum negative", varints({1, 5, ~std::uint64_t{0}, 14, 0, 5, 1, 3, 1})},
      {"sum too small", varints({1, 5, 9, 13, 0, 5, 1, 3, 1})},
      {"sum too large", varints({1, 5, 9, 15, 0, 5, 1, 3, 1})},
      {"overflow without any", varints({1, 5, 9, 14, 1, 5, 1, 3, 1})},
      {"no buckets", varints({1, 0, 0, 0, 0})},
      {"count of zero", varints({1, 5, 9, 14, 0, 5, 1, 0, 0, 2, 1})},
      {"bucket out of range", varints({1, 5, 5, 5, 0, 5, 1, 3'000, 1})},
      {"huge delta", varints({1, 5, 5, 5, 0, 5, 1, ~std::uint64_t{0}, 1})},
      {"half a pair", varints({1, 5, 9, 14, 0, 5, 1, 3})},
      {"counts beyond 64 bits",
       varints({1, 5, 9, ~std::uint64_t{0}, 0, 5, ~std::uint64_t{0}, 3, 1})},
      {"overlong number", std::string("\x81\x00", 2) + varints({5, 9, 14, 0, 5, 1, 3, 1})},
      {"a number of eleven bytes", std::string(10, '\xff') + "\x01"},
  };
  for (const auto& [label, bytes] : bad)
    EXPECT_FALSE(Histogram::decode(bytes).has_value()) << label;
}

TEST(HistogramEncoding, SurvivesMutatedBytes) {
  Random random(20'051'224);
  const std::string good = some_histogram(6, 200).encode();
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = good;
    const std::int64_t changes = random.between(1, 4);
    for (std::int64_t i = 0; i < changes && !bytes.empty(); ++i) {
      const auto at =
          static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(bytes.size()) - 1));
      switch (random.between(0, 3)) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes.erase(at, 1);
          break;
        case 2:
          bytes.insert(at, 1, static_cast<char>(random()));
          break;
        default:
          bytes.resize(at);
          break;
      }
    }
    const auto h = Histogram::decode(bytes);
    if (!h) continue;
    ++accepted;
    EXPECT_EQ(h->encode(), bytes) << "round " << round;  // only what encode() writes is accepted
    h->quantile(0.5);
    h->count_at_or_below(1'000'000);
  }
  SUCCEED() << accepted;
}

}  // namespace
}  // namespace spate
