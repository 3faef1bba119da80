// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "outrider/kernels/quantize_act/quantize_act_variants.h"

namespace outrider::kernels {
namespace {

inline uint32_t max_u32(__m256i v) noexcept {
  __m128i m = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4E));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xB1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}

// The sum of 16 int8.
inline int32_t sum_i8(__m128i v) noexcept {
  // sad sums unsigned bytes; v ^ 0x80 is v + 128.
  const __m128i sums = _mm_sad_epu8(_mm_xor_si128(v, _mm_set1_epi8(-128)), _mm_setzero_si128());
  return _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 16 * 128;
}

}  // namespace

void quantize_act_avx2(const float* x, uint32_t k, int8_t* q, float* d, int32_t* sum32, int16_t* sum16) noexcept {
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  for (uint32_t b = 0; b < k / 32; ++b, x += 32, q += 32) {
    __m256 v[4];
    __m256i largest = _mm256_setzero_si256();
    for (int i = 0; i < 4; ++i) {
      v[i] = _mm256_loadu_ps(x + 8 * i);
      largest = _mm256_max_epu32(largest, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude));
    }
    const uint32_t amax_bits = max_u32(largest);
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
    const __m256 scale = _mm256_broadcastss_ps(_mm_div_ss(_mm_set_ss(127.0F), amax));
    __m256i code[4];
    for (int i = 0; i < 4; ++i) code[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], scale));
    const __m256i packed =
        _mm256_packs_epi16(_mm256_packs_epi32(code[0], code[1]), _mm256_packs_epi32(code[2], code[3]));
    const __m256i codes = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), codes);
    const int32_t low = sum_i8(_mm256_castsi256_si128(codes));
    const int32_t high = sum_i8(_mm256_extracti128_si256(codes, 1));
    sum16[2 * b] = static_cast<int16_t>(low);
    sum16[2 * b + 1] = static_cast<int16_t>(high);
    sum32[b] = low + high;
  }
}

}  // namespace outrider::kernels
