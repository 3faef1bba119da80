// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "outrider/whatif/arithmetic.h"

namespace outrider::whatif {

// The inner loops are unrolled by hand: at -O2 the accumulators would be an array in memory, and that would be
// measured. Without VNNI a product of bytes is maddubs, madd by ones and add: three instructions.
uint64_t int8_loop_avx2(uint64_t rounds) noexcept {
  __m256i acc[kAccumulators];
  for (uint32_t i = 0; i < kAccumulators; ++i) acc[i] = _mm256_set1_epi32(static_cast<int>(i));
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(-2);
  for (uint64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (uint32_t i = 0; i < kAccumulators; ++i) {
      asm volatile("" : "+x"(a), "+x"(b));  // each product is made anew
      const __m256i product = _mm256_maddubs_epi16(a, b);
      acc[i] = _mm256_add_epi32(acc[i], _mm256_madd_epi16(product, ones));
    }
  }
  __m256i sum = acc[0];
  for (uint32_t i = 1; i < kAccumulators; ++i) sum = _mm256_xor_si256(sum, acc[i]);
  return static_cast<uint64_t>(_mm256_extract_epi64(sum, 0));
}

uint64_t f32_loop_avx2(uint64_t rounds) noexcept {
  __m256 acc[kAccumulators];
  for (uint32_t i = 0; i < kAccumulators; ++i) acc[i] = _mm256_set1_ps(static_cast<float>(i));
  __m256 a = _mm256_set1_ps(0.5F), b = _mm256_set1_ps(0.25F);
  for (uint64_t round = 0; round < rounds; ++round) {
    asm volatile("" : "+x"(a), "+x"(b));
#pragma GCC unroll 12
    for (uint32_t i = 0; i < kAccumulators; ++i) acc[i] = _mm256_fmadd_ps(acc[i], a, b);
  }
  __m256 sum = acc[0];
  for (uint32_t i = 1; i < kAccumulators; ++i) sum = _mm256_add_ps(sum, acc[i]);
  return static_cast<uint64_t>(_mm256_cvtss_f32(sum) * 1e6F);
}

}  // namespace outrider::whatif
