// SPDX-License-Identifier: Apache-2.0
// The ternary, one- and two-bit formats and NVFP4 as decoded_formats_avx2-inl.h describes formats. Internal linkage.
#pragma once

#include "outrider/kernels/matmul/decoded_formats_avx2-inl.h"

namespace outrider::kernels {
namespace {

inline __m256 scaled(__m128i eight_bytes, float scale) noexcept {
  return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight_bytes)), _mm256_set1_ps(scale));
}
inline __m128i load_64(const void* p) noexcept { return _mm_loadl_epi64(static_cast<const __m128i*>(p)); }

inline void store_256(int8_t* p, __m256i v) noexcept { _mm256_store_si256(reinterpret_cast<__m256i*>(p), v); }
inline void store_128(int8_t* p, __m128i v) noexcept { _mm_store_si128(reinterpret_cast<__m128i*>(p), v); }

struct DecodedTq1 : DecodedBlock<numerics::TQ1_0> {
  using Block = numerics::TQ1_0;
  alignas(32) int8_t bytes[256];
  float d;

  // Less one: the leading base-3 digit of bytes that are fixed-point fractions of 256, 0 up to 85, 2 from 171 on.
  static __m256i digit(__m256i v) noexcept {
    const __m256i s = _mm256_xor_si256(v, _mm256_set1_epi8(-128));  // AVX2 compares signed bytes only
    const __m256i minus_digit = _mm256_add_epi8(_mm256_cmpgt_epi8(s, _mm256_set1_epi8(85 - 128)),
                                                _mm256_cmpgt_epi8(s, _mm256_set1_epi8(170 - 128)));
    return _mm256_xor_si256(minus_digit, _mm256_set1_epi8(-1));
  }
  // The wrap at 256 drops the digit that led.
  static __m256i next(__m256i v) noexcept { return _mm256_add_epi8(v, _mm256_add_epi8(v, v)); }

  void load(const uint8_t* p) noexcept {
    d = half_at(p + Block::kD);
    __m256i v = load_256(p + Block::kQs);
    __m256i w = _mm256_castsi128_si256(load_128(p + Block::kQs + 32));
#pragma GCC unroll 5
    for (uint32_t n = 0; n < 5; ++n) {
      store_256(bytes + 32 * n, digit(v));
      store_128(bytes + 160 + 16 * n, _mm256_castsi256_si128(digit(w)));
      v = next(v);
      w = next(w);
    }
    const __m256i q0 = _mm256_set1_epi32(load_as<int>(p + Block::kQh));
    const __m256i q1 = next(q0);
    const __m256i q2 = next(q1);
    const __m256i low = _mm256_unpacklo_epi32(q0, q1);
    const __m256i high = _mm256_unpacklo_epi32(q2, next(q2));
    store_128(bytes + 240, _mm256_castsi256_si128(digit(_mm256_unpacklo_epi64(low, high))));
    keep_stored(bytes);
  }
  __m256 weights(uint32_t g) const noexcept { return scaled(load_64(bytes + 8 * g), d); }
};

// Two bits of each byte, less one.
inline __m256i two_bits_less_one(__m256i v, int shift) noexcept {
  const __m256i codes = _mm256_and_si256(_mm256_srli_epi16(v, shift), _mm256_set1_epi8(3));
  return _mm256_sub_epi8(codes, _mm256_set1_epi8(1));
}

struct DecodedTq2 : DecodedBlock<numerics::TQ2_0> {
  using Block = numerics::TQ2_0;
  alignas(32) int8_t bytes[256];
  float d;

  void load(const uint8_t* p) noexcept {
    d = half_at(p + Block::kD);
#pragma GCC unroll 2
    for (uint32_t h = 0; h < 2; ++h) {
      const __m256i v = load_256(p + Block::kQs + 32 * h);
      store_256(bytes + 128 * h, two_bits_less_one(v, 0));
      store_256(bytes + 128 * h + 32, two_bits_less_one(v, 2));
      store_256(bytes + 128 * h + 64, two_bits_less_one(v, 4));
      store_256(bytes + 128 * h + 96, two_bits_less_one(v, 6));
    }
    keep_stored(bytes);
  }
  __m256 weights(uint32_t g) const noexcept { return scaled(load_64(bytes + 8 * g), d); }
};

struct DecodedQ2 : DecodedBlock<numerics::Q2_0> {
  using Block = numerics::Q2_0;
  alignas(32) int8_t bytes[64];
  float d;

  void load(const uint8_t* p) noexcept {
    d = half_at(p + Block::kD);
    const __m256i v = _mm256_castsi128_si256(load_128(p + Block::kQs));
    __m128i of[4];  // elements 4 * i + n
    of[0] = _mm256_castsi256_si128(two_bits_less_one(v, 0));
    of[1] = _mm256_castsi256_si128(two_bits_less_one(v, 2));
    of[2] = _mm256_castsi256_si128(two_bits_less_one(v, 4));
    of[3] = _mm256_castsi256_si128(two_bits_less_one(v, 6));
    const __m128i low[2] = {_mm_unpacklo_epi8(of[0], of[1]), _mm_unpackhi_epi8(of[0], of[1])};
    const __m128i high[2] = {_mm_unpacklo_epi8(of[2], of[3]), _mm_unpackhi_epi8(of[2], of[3])};
#pragma GCC unroll 2
    for (uint32_t i = 0; i < 2; ++i) {
      store_128(bytes + 32 * i, _mm_unpacklo_epi16(low[i], high[i]));
      store_128(bytes + 32 * i + 16, _mm_unpackhi_epi16(low[i], high[i]));
    }
    keep_stored(bytes);
  }
  __m256 weights(uint32_t g) const noexcept { return scaled(load_64(bytes + 8 * g), d); }
};

struct DecodedQ1 : DecodedBlock<numerics::Q1_0> {
  using Block = numerics::Q1_0;
  const uint8_t* bits;
  float d;

  void load(const uint8_t* p) noexcept {
    d = half_at(p + Block::kD);
    bits = p + Block::kQs;
  }
  // A set bit is plus.
  __m256 weights(uint32_t g) const noexcept { return negate(_mm256_set1_ps(-d), bits + g / 4 * 4, g); }
};

struct DecodedNvfp4 : DecodedBlock<numerics::NVFP4> {
  using Block = numerics::NVFP4;
  const uint8_t* nibbles;
  alignas(16) float scales[4];

  void load(const uint8_t* p) noexcept {
    nibbles = p + Block::kQs;
    // numerics::ue4m3_half: exponent and mantissa where f32 has them, times 2^119, which fits the subnormal ones as
    // well.
    const __m128i codes = _mm_cvtepu8_epi32(_mm_cvtsi32_si128(load_as<int>(p + Block::kD)));
    const __m128i bits = _mm_slli_epi32(_mm_and_si128(codes, _mm_set1_epi32(0x7F)), 20);
    const __m128 halves = _mm_mul_ps(_mm_castsi128_ps(bits), _mm_set1_ps(0x1p119F));
    const __m128 is_zero = _mm_castsi128_ps(_mm_cmpeq_epi32(codes, _mm_set1_epi32(0x7F)));
    _mm_store_ps(scales, _mm_andnot_ps(is_zero, halves));
    keep_stored(scales);
  }
  __m256 weights(uint32_t g) const noexcept {
    const __m128i v = load_64(nibbles + 8 * (g / 2));
    const __m128i codes = _mm_and_si128(g % 2 != 0 ? _mm_srli_epi16(v, 4) : v, _mm_set1_epi8(15));
    return scaled(_mm_shuffle_epi8(load_128(numerics::kFp4Values), codes), scales[g / 2]);
  }
};

}  // namespace
}  // namespace outrider::kernels
