#include "common/random.h"

namespace spate {

// splitmix64 spreads seeds that differ in few bits (0, 1, 2 …) over the whole state, and never
// yields the all-zero state that xoshiro cannot leave.
Random::Random(std::uint64_t seed) {
  for (auto& word : state_) {
    seed += 0x9e3779b97f4a7c15ULL;
    std::uint64_t z = seed;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    word = z ^ (z >> 31);
  }
}

}  // namespace spate
