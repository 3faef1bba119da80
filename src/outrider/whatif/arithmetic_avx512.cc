// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "outrider/whatif/arithmetic.h"

namespace outrider::whatif {

// The inner loops are unrolled by hand: at -O2 the accumulators would be an array in memory, and that would be
// measured.
uint64_t int8_loop_avx512(uint64_t rounds) noexcept {
  __m512i acc[kAccumulators];
  for (uint32_t i = 0; i < kAccumulators; ++i) acc[i] = _mm512_set1_epi32(static_cast<int>(i));
  __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-2);
  for (uint64_t round = 0; round < rounds; ++round) {
    asm volatile("" : "+v"(a), "+v"(b));  // each round multiplies anew
#pragma GCC unroll 12
    for (uint32_t i = 0; i < kAccumulators; ++i) acc[i] = _mm512_dpbusd_epi32(acc[i], a, b);
  }
  __m512i sum = acc[0];
  for (uint32_t i = 1; i < kAccumulators; ++i) sum = _mm512_xor_si512(sum, acc[i]);
  return static_cast<uint64_t>(_mm512_reduce_add_epi32(sum));
}

uint64_t f32_loop_avx512(uint64_t rounds) noexcept {
  __m512 acc[kAccumulators];
  for (uint32_t i = 0; i < kAccumulators; ++i) acc[i] = _mm512_set1_ps(static_cast<float>(i));
  __m512 a = _mm512_set1_ps(0.5F), b = _mm512_set1_ps(0.25F);
  for (uint64_t round = 0; round < rounds; ++round) {
    asm volatile("" : "+v"(a), "+v"(b));
#pragma GCC unroll 12
    for (uint32_t i = 0; i < kAccumulators; ++i) acc[i] = _mm512_fmadd_ps(acc[i], a, b);
  }
  __m512 sum = acc[0];
  for (uint32_t i = 1; i < kAccumulators; ++i) sum = _mm512_add_ps(sum, acc[i]);
  return static_cast<uint64_t>(_mm512_reduce_add_ps(sum) * 1e6F);
}

}  // namespace outrider::whatif
