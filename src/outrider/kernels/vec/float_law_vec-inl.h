// SPDX-License-Identifier: Apache-2.0
// The float law on vectors: 32 lanes in kFloatLanes / V::kWidth registers, lane i mod 32 in its place. The folds 4, 2,
// 1 work on one 256-bit register on every instruction set. Include after a vec_*-inl.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace outrider::kernels {
namespace {

template <typename V>
inline constexpr uint32_t kLaneRegs = 32 / V::kWidth;

// The first n <= kWidth elements. A masked store of a whole register costs far more than a plain one (Zen 4, AVX2).
template <typename V>
typename V::F load_upto(const float* p, uint32_t n) noexcept {
  return n == V::kWidth ? V::load(p) : V::load_part(p, n);
}
template <typename V>
void store_upto(float* p, typename V::F v, uint32_t n) noexcept {
  if (n == V::kWidth) {
    V::store(p, v);
  } else {
    V::store_part(p, v, n);
  }
}

// The folds 4, 2, 1 of eight lanes.
[[maybe_unused]] inline float fold_8(__m256 v) noexcept {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// The folds 4, 2, 1 of eight rows at once: result lane i is fold_8(rows[i]).
[[maybe_unused]] inline __m256 fold_8_rows(const __m256* rows) noexcept {
  __m256 four[4];
  for (int i = 0; i < 4; ++i) {
    four[i] = _mm256_add_ps(_mm256_permute2f128_ps(rows[i], rows[i + 4], 0x20),
                            _mm256_permute2f128_ps(rows[i], rows[i + 4], 0x31));
  }
  const auto two = [](__m256 a, __m256 b) {
    return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xEE));
  };
  const __m256 low = two(four[0], four[1]);
  const __m256 high = two(four[2], four[3]);
  return _mm256_add_ps(_mm256_shuffle_ps(low, high, 0x88), _mm256_shuffle_ps(low, high, 0xDD));
}

}  // namespace
}  // namespace outrider::kernels
