// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "outrider/kernels/attention/attention_variants.h"

namespace outrider::kernels {
namespace {

void store_f16(const float* x, uint32_t width, std::byte* row) noexcept {
  for (uint32_t i = 0; i < width; i += 8) {
    const uint32_t n = width - i < 8 ? width - i : 8;
    float part[8] = {};
    __builtin_memcpy(part, x + i, 4ULL * n);
    const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(part), _MM_FROUND_TO_NEAREST_INT);
    __builtin_memcpy(row + 2ULL * i, &half, 2ULL * n);
  }
}

// See store_kv_ref.cc for the faults: NaN fails every ordered comparison.
void store_q8_0_block(const float* x, std::byte* block) noexcept {
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
  const __m256 largest_finite = _mm256_set1_ps(0x1.fffffep+127F);
  __m256 v[4];
  __m256 most = _mm256_setzero_ps();
  int finite = 0xFF;
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_loadu_ps(x + 8 * i);
    const __m256 m = _mm256_and_ps(v[i], magnitude);
    finite &= _mm256_movemask_ps(_mm256_cmp_ps(m, largest_finite, _CMP_LE_OQ));
    most = _mm256_max_ps(m, most);
  }
  float lanes[8];
  _mm256_storeu_ps(lanes, most);
  float amax = 0;
  for (const float lane : lanes) amax = lane > amax ? lane : amax;
  const __m128i d =
      finite == 0xFF ? _mm_cvtps_ph(_mm_set_ss(amax / 127.0F), _MM_FROUND_TO_NEAREST_INT) : _mm_cvtsi32_si128(0x7E00);
  const auto d_bits = static_cast<uint16_t>(_mm_cvtsi128_si32(d));
  __builtin_memcpy(block, &d_bits, 2);
  if (finite != 0xFF || d_bits == 0) {
    __builtin_memset(block + 2, 0, 32);
    return;
  }
  const __m256 scale = _mm256_set1_ps(127.0F / amax);
  __m256i q[4];
  for (int i = 0; i < 4; ++i) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], scale));  // nearest even
  const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
  const __m256i in_order = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(block + 2), in_order);
}

}  // namespace

void store_kv_avx2(const float* x, uint32_t width, KvType type, std::byte* row) noexcept {
  switch (type) {
    case KvType::kF16:
      store_f16(x, width, row);
      return;
    case KvType::kF32:
      __builtin_memcpy(row, x, 4ULL * width);
      return;
    case KvType::kQ8_0:
      for (uint32_t b = 0; b < width / 32; ++b) store_q8_0_block(x + 32ULL * b, row + 34ULL * b);
      return;
  }
}

}  // namespace outrider::kernels
