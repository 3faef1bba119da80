// SPDX-License-Identifier: Apache-2.0
// Sixteen f32 with AVX-512 (F, BW, DQ, VL), under the names of vec_avx2-inl.h, which says what they mean.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace outrider::kernels {
namespace {

struct VecAvx512 {
  using F = __m512;
  using I = __m512i;
  static constexpr uint32_t kWidth = 16;
  static constexpr uint32_t kHeadsOfAGroup = 4, kKeysOfAGroup = 2, kKeysOfOneHead = 8;

  static F zero() noexcept { return _mm512_setzero_ps(); }
  static F set1(float v) noexcept { return _mm512_set1_ps(v); }
  static F load(const float* p) noexcept { return _mm512_loadu_ps(p); }
  static void store(float* p, F v) noexcept { _mm512_storeu_ps(p, v); }
  static __mmask16 first(uint32_t n) noexcept { return static_cast<__mmask16>((1U << n) - 1U); }
  static F load_part(const float* p, uint32_t n) noexcept { return _mm512_maskz_loadu_ps(first(n), p); }
  static void store_part(float* p, F v, uint32_t n) noexcept { _mm512_mask_storeu_ps(p, first(n), v); }

  static F add(F a, F b) noexcept { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) noexcept { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) noexcept { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) noexcept { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) noexcept { return _mm512_fmadd_ps(a, b, c); }
  static F fms(F a, F b, F c) noexcept { return _mm512_fmsub_ps(a, b, c); }
  static F fma_part(F a, F b, F acc, uint32_t n) noexcept { return _mm512_mask3_fmadd_ps(a, b, acc, first(n)); }
  static F greater_or_second(F a, F b) noexcept { return _mm512_max_ps(a, b); }
  static F smaller_or_second(F a, F b) noexcept { return _mm512_min_ps(a, b); }
  static F negate(F v) noexcept { return _mm512_xor_ps(v, _mm512_set1_ps(-0.0F)); }
  static bool all_finite(F v) noexcept {
    const F zeros = _mm512_sub_ps(v, v);
    return _mm512_cmp_ps_mask(zeros, zeros, _CMP_ORD_Q) == 0xFFFF;
  }

  static I bits(F v) noexcept { return _mm512_castps_si512(v); }
  static I isub(I a, I b) noexcept { return _mm512_sub_epi32(a, b); }
  static I half(I v) noexcept { return _mm512_srai_epi32(v, 1); }
  static F pow2(I e) noexcept {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(e, _mm512_set1_epi32(127)), 23));
  }

  static void split_pairs(F low, F high, F& even, F& odd) noexcept {
    const I evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    even = _mm512_permutex2var_ps(low, evens, high);
    odd = _mm512_permutex2var_ps(low, _mm512_add_epi32(evens, _mm512_set1_epi32(1)), high);
  }
  static void join_pairs(F even, F odd, F& low, F& high) noexcept {
    const I lows = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    low = _mm512_permutex2var_ps(even, lows, odd);
    high = _mm512_permutex2var_ps(even, _mm512_add_epi32(lows, _mm512_set1_epi32(8)), odd);
  }

  static F load_f16(const std::byte* p) noexcept {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F load_i8(const std::byte* p) noexcept {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  static F set1_f16(const std::byte* p) noexcept {
    uint16_t h = 0;
    __builtin_memcpy(&h, p, 2);
    return _mm512_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
  }

  // Keeps a value that is used several times in a register: GCC would load it once for each use.
  static F keep(F v) noexcept {
    asm("" : "+v"(v));
    return v;
  }

  // The folds 16, 8, 4 and 2 of eight times 32 lanes at once: what is left of acc[i] are elements 4 * (i / 2) + 2 * (i
  // mod 2) and the next. Adding is commutative, so it does not matter which half is which.
  using FoldsTogether = void;
  static F fold_to_pairs(const F (&acc)[8][2]) noexcept {
    const auto eights = [&acc](int a, int b) {
      const F first = _mm512_add_ps(acc[a][0], acc[a][1]);
      const F second = _mm512_add_ps(acc[b][0], acc[b][1]);
      return _mm512_add_ps(_mm512_shuffle_f32x4(first, second, 0x44), _mm512_shuffle_f32x4(first, second, 0xEE));
    };
    const auto fours = [](F a, F b) {
      return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
    };
    const F even = fours(eights(0, 2), eights(4, 6));
    const F odd = fours(eights(1, 3), eights(5, 7));
    return _mm512_add_ps(_mm512_shuffle_ps(even, odd, 0x44), _mm512_shuffle_ps(even, odd, 0xEE));
  }
  // The last fold: of each 128-bit part the two sums in a, then the two in b.
  static F fold_pairs(F a, F b) noexcept {
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xDD));
  }
  // 128-bit part i to to + i * stride.
  static void store_quarters(float* to, size_t stride, F v) noexcept {
    _mm_storeu_ps(to, _mm512_castps512_ps128(v));
    _mm_storeu_ps(to + stride, _mm512_extractf32x4_ps(v, 1));
    _mm_storeu_ps(to + 2 * stride, _mm512_extractf32x4_ps(v, 2));
    _mm_storeu_ps(to + 3 * stride, _mm512_extractf32x4_ps(v, 3));
  }

  static __m256 fold_to_8(const F* acc) noexcept {
    const F sum = _mm512_add_ps(acc[0], acc[1]);
    return _mm256_add_ps(_mm512_castps512_ps256(sum), _mm512_extractf32x8_ps(sum, 1));
  }
};

}  // namespace
}  // namespace outrider::kernels
