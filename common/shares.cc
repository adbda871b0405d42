#include "common/shares.h"

#include <algorithm>
#include <numeric>

namespace spate {
namespace {

// total * weight needs up to 128 bits, and so does the sum of the weights.
__extension__ using Wide = unsigned __int128;

}  // namespace

std::vector<std::uint64_t> divide(std::uint64_t total, const std::vector<std::uint64_t>& weights) {
  Wide sum = 0;
  for (const std::uint64_t weight : weights) sum += weight;
  if (sum == 0) return divide_equally(total, weights.size());

  std::vector<std::uint64_t> parts(weights.size());
  std::vector<Wide> remainders(weights.size());
  std::uint64_t given = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Wide product = static_cast<Wide>(total) * weights[i];
    parts[i] = static_cast<std::uint64_t>(product / sum);
    remainders[i] = product % sum;
    given += parts[i];
  }
  // What is left is less than the number of parts with a remainder, so nobody gets two of it, and
  // nobody with weight 0 gets any.
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return remainders[a] > remainders[b]; });
  const auto left = static_cast<std::size_t>(total - given);
  for (std::size_t i = 0; i < left; ++i) ++parts[order[i]];
  return parts;
}

std::vector<std::uint64_t> divide_equally(std::uint64_t total, std::size_t parts) {
  std::vector<std::uint64_t> result(parts);
  for (std::size_t i = 0; i < parts; ++i) result[i] = equal_part(total, parts, i);
  return result;
}

std::uint64_t equal_part(std::uint64_t total, std::size_t parts, std::size_t index) {
  return total / parts + (index < total % parts ? 1 : 0);
}

}  // namespace spate
