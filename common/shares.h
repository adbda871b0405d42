#pragma once

// How a total is divided among agents. Pure.

#include <cstdint>
#include <vector>

namespace spate {

// Divides `total` among weights by largest remainder (Hamilton's method; ties go to the lower
// index). The parts add up to exactly `total`. A weight of 0 gets 0 unless all are 0, which counts
// as all equal.
std::vector<std::uint64_t> divide(std::uint64_t total, const std::vector<std::uint64_t>& weights);

// Equal weights.
std::vector<std::uint64_t> divide_equally(std::uint64_t total, std::size_t parts);

// The part of `index` in divide_equally().
std::uint64_t equal_part(std::uint64_t total, std::size_t parts, std::size_t index);

}  // namespace spate
