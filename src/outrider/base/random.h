// SPDX-License-Identifier: Apache-2.0
// Reproducible random numbers: SplitMix64 (Steele, Lea, Flood 2014). The same seed gives the same draws everywhere,
// which std:: distributions do not promise.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace outrider {

__extension__ typedef unsigned __int128 Uint128;

class Random {
 public:
  explicit Random(uint64_t seed) noexcept : state_(seed) {}

  uint64_t next_u64() noexcept {
    state_ += 0x9E3779B97F4A7C15ULL;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }

  // Uniform in [0, 1), 53 bits.
  double uniform() noexcept { return static_cast<double>(next_u64() >> 11) * 0x1.0p-53; }
  float uniform(float low, float high) noexcept { return low + (high - low) * static_cast<float>(uniform()); }

  // Uniform in [0, n), n > 0, without bias (Lemire's method).
  uint64_t below(uint64_t n) noexcept {
    for (;;) {
      const auto product = static_cast<Uint128>(next_u64()) * n;
      if (static_cast<uint64_t>(product) >= (0 - n) % n) return static_cast<uint64_t>(product >> 64);
    }
  }

  // Standard normal (Box-Muller, one of the pair).
  double normal() noexcept {
    const double u = 1.0 - uniform();
    return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * uniform());
  }

 private:
  uint64_t state_;
};

}  // namespace outrider
