#pragma once

// A small, fast, seedable generator for the request path (xoshiro256**, Blackman and Vigna 2018;
// seeded through splitmix64). Not for secrets. Models std::uniform_random_bit_generator. One
// thread.

#include <array>
#include <cstdint>
#include <limits>

namespace spate {

class Random {
 public:
  using result_type = std::uint64_t;

  explicit Random(std::uint64_t seed);

  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return std::numeric_limits<result_type>::max(); }

  result_type operator()() {
    const std::uint64_t result = rotl(state_[1] * 5, 7) * 9;
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = rotl(state_[3], 45);
    return result;
  }

  // Uniform in [low, high], both included; low <= high. Multiply-shift (Lemire 2019) without the
  // rejection step: the bias is below range / 2^64.
  std::int64_t between(std::int64_t low, std::int64_t high) {
    const auto range = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) + 1;
    const std::uint64_t draw = (*this)();
    if (range == 0) return static_cast<std::int64_t>(draw);
    __extension__ using Wide = unsigned __int128;
    const auto offset = static_cast<std::uint64_t>((static_cast<Wide>(draw) * range) >> 64);
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + offset);
  }

  // Uniform in [0, 1).
  double unit() { return static_cast<double>((*this)() >> 11) * 0x1.0p-53; }

 private:
  static constexpr std::uint64_t rotl(std::uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
  std::array<std::uint64_t, 4> state_{};
};

}  // namespace spate
