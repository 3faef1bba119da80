// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "outrider/kernels/quantize_act/quantize_act_variants.h"

namespace outrider::kernels {
namespace {

// The sum of 16 int8.
inline int32_t sum_i8(__m128i v) noexcept {
  const __m128i sums = _mm_sad_epu8(_mm_xor_si128(v, _mm_set1_epi8(-128)), _mm_setzero_si128());
  return _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 16 * 128;
}

}  // namespace

void quantize_act_avx512(const float* x, uint32_t k, int8_t* q, float* d, int32_t* sum32, int16_t* sum16) noexcept {
  const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
  for (uint32_t b = 0; b < k / 32; ++b, x += 32, q += 32) {
    const __m512 v0 = _mm512_loadu_ps(x);
    const __m512 v1 = _mm512_loadu_ps(x + 16);
    const uint32_t amax_bits = _mm512_reduce_max_epu32(_mm512_max_epu32(
        _mm512_and_si512(_mm512_castps_si512(v0), magnitude), _mm512_and_si512(_mm512_castps_si512(v1), magnitude)));
    if (amax_bits >= 0x7F800000U || amax_bits < 0x03000000U) {  // not finite, or below 2^-121
      const uint32_t bits = amax_bits >= 0x7F800000U ? 0x7FC00000U : 0U;
      _mm_store_ss(d + b, _mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(bits))));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), _mm256_setzero_si256());
      sum16[2 * b] = sum16[2 * b + 1] = 0;
      sum32[b] = 0;
      continue;
    }
    const __m128 amax = _mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(amax_bits)));
    _mm_store_ss(d + b, _mm_div_ss(amax, _mm_set_ss(127.0F)));
    const __m512 scale = _mm512_broadcastss_ps(_mm_div_ss(_mm_set_ss(127.0F), amax));
    const __m128i low_codes = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(v0, scale)));
    const __m128i high_codes = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(v1, scale)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q), low_codes);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16), high_codes);
    const int32_t low = sum_i8(low_codes);
    const int32_t high = sum_i8(high_codes);
    sum16[2 * b] = static_cast<int16_t>(low);
    sum16[2 * b + 1] = static_cast<int16_t>(high);
    sum32[b] = low + high;
  }
}

}  // namespace outrider::kernels
