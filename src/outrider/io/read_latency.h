// SPDX-License-Identifier: Apache-2.0
// How long the drive took for each read it was asked (at most a piece, docs of Reader): counts by powers of two.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace outrider::io {

inline constexpr uint32_t kLatencyBuckets = 25;

struct ReadLatency {
  // Bucket 0: below 1 us; bucket i: below 2^i us, at least half of that; the last one takes all that is longer.
  std::array<uint64_t, kLatencyBuckets> counts = {};

  static constexpr uint32_t bucket_of(uint64_t ns) noexcept {
    return std::min<uint32_t>(static_cast<uint32_t>(std::bit_width(ns / 1000)), kLatencyBuckets - 1);
  }
  static constexpr uint64_t below_us(uint32_t bucket) noexcept { return uint64_t{1} << bucket; }
  uint64_t n_reads() const noexcept {
    uint64_t n = 0;
    for (const uint64_t count : counts) n += count;
    return n;
  }
  // The least 2^i us that at least `share` (0..1) of the reads stayed below; 0 without reads.
  uint64_t percentile_us(double share) const noexcept {
    const double wanted = share * static_cast<double>(n_reads());
    uint64_t n = 0;
    for (uint32_t i = 0; i < kLatencyBuckets; ++i) {
      n += counts[i];
      if (n > 0 && static_cast<double>(n) >= wanted) return below_us(i);
    }
    return 0;
  }
};

}  // namespace outrider::io
