// SPDX-License-Identifier: Apache-2.0
// Eight f32 with AVX2, FMA and F16C, under the names that the shared kernel bodies (*_vec-inl.h) use. Each operation is
// one IEEE operation per lane. `part` forms touch the first n lanes only: loads give 0 above, fma_part keeps acc there.
// Internal linkage and no inline function of another header, so that no copy built with these flags reaches plain
// callers.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace outrider::kernels {
namespace {

struct VecAvx2 {
  using F = __m256;
  using I = __m256i;
  static constexpr uint32_t kWidth = 8;
  // attention: heads that share a widened key or value, and keys at once; a dot product takes four registers
  static constexpr uint32_t kHeadsOfAGroup = 2, kKeysOfAGroup = 1, kKeysOfOneHead = 2;

  static F zero() noexcept { return _mm256_setzero_ps(); }
  static F set1(float v) noexcept { return _mm256_set1_ps(v); }
  static F load(const float* p) noexcept { return _mm256_loadu_ps(p); }
  static void store(float* p, F v) noexcept { _mm256_storeu_ps(p, v); }
  static I first(uint32_t n) noexcept {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static F load_part(const float* p, uint32_t n) noexcept { return _mm256_maskload_ps(p, first(n)); }
  static void store_part(float* p, F v, uint32_t n) noexcept { _mm256_maskstore_ps(p, first(n), v); }

  static F add(F a, F b) noexcept { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) noexcept { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) noexcept { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) noexcept { return _mm256_div_ps(a, b); }
  static F fma(F a, F b, F c) noexcept { return _mm256_fmadd_ps(a, b, c); }
  static F fms(F a, F b, F c) noexcept { return _mm256_fmsub_ps(a, b, c); }
  static F fma_part(F a, F b, F acc, uint32_t n) noexcept {
    return _mm256_blendv_ps(acc, _mm256_fmadd_ps(a, b, acc), _mm256_castsi256_ps(first(n)));
  }
  static F greater_or_second(F a, F b) noexcept { return _mm256_max_ps(a, b); }  // a > b ? a : b
  static F smaller_or_second(F a, F b) noexcept { return _mm256_min_ps(a, b); }  // a < b ? a : b
  static F negate(F v) noexcept { return _mm256_xor_ps(v, _mm256_set1_ps(-0.0F)); }
  static bool all_finite(F v) noexcept {
    const F zeros = _mm256_sub_ps(v, v);  // NaN for NaN and infinity
    return _mm256_movemask_ps(_mm256_cmp_ps(zeros, zeros, _CMP_ORD_Q)) == 0xFF;
  }

  static I bits(F v) noexcept { return _mm256_castps_si256(v); }
  static I isub(I a, I b) noexcept { return _mm256_sub_epi32(a, b); }
  static I half(I v) noexcept { return _mm256_srai_epi32(v, 1); }
  static F pow2(I e) noexcept {  // 2^e for e in [-126, 127]
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(e, _mm256_set1_epi32(127)), 23));
  }

  // (p[0], p[2], ...) and (p[1], p[3], ...) of two registers, and back.
  static void split_pairs(F low, F high, F& even, F& odd) noexcept {
    const auto in_order = [](F v) { return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xD8)); };
    even = in_order(_mm256_shuffle_ps(low, high, 0x88));
    odd = in_order(_mm256_shuffle_ps(low, high, 0xDD));
  }
  static void join_pairs(F even, F odd, F& low, F& high) noexcept {
    const F a = _mm256_unpacklo_ps(even, odd);
    const F b = _mm256_unpackhi_ps(even, odd);
    low = _mm256_permute2f128_ps(a, b, 0x20);
    high = _mm256_permute2f128_ps(a, b, 0x31);
  }

  static F load_f16(const std::byte* p) noexcept {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static F load_i8(const std::byte* p) noexcept {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  static F set1_f16(const std::byte* p) noexcept {
    uint16_t h = 0;
    __builtin_memcpy(&h, p, 2);
    return _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
  }

  static F keep(F v) noexcept { return v; }  // of sixteen registers none is to spare

  // The folds 16 and 8 of 32 lanes held in acc[0..3].
  static __m256 fold_to_8(const F* acc) noexcept {
    return _mm256_add_ps(_mm256_add_ps(acc[0], acc[2]), _mm256_add_ps(acc[1], acc[3]));
  }
};

}  // namespace
}  // namespace outrider::kernels
