// SPDX-License-Identifier: Apache-2.0
// The formats with blocks of 256 elements for the AVX-512 kernels (rows_avx512-inl.h says what a format is there).
#pragma once

#include "outrider/kernels/matmul/formats_256_avx2-inl.h"
#include "outrider/kernels/matmul/rows_avx512-inl.h"

namespace outrider::kernels {
namespace {

// 32 bytes twice.
inline __m512i twice(const uint8_t* p) noexcept { return _mm512_broadcast_i64x4(load_256(p)); }

// `low` in every byte of the first block, `high` in those of the second.
inline __m512i byte_pair(int low, int high) noexcept {
  return _mm512_inserti64x4(_mm512_set1_epi8(static_cast<char>(low)), _mm256_set1_epi8(static_cast<char>(high)), 1);
}

// `low` in every byte of the first half, `high` in those of the second.
inline __m256i two_bytes(int low, int high) noexcept {
  return _mm256_inserti128_si256(_mm256_set1_epi8(static_cast<char>(low)), _mm_set1_epi8(static_cast<char>(high)), 1);
}

// Bits [shift, ...) of each byte of the first block, [shift + step, ...) of the second, under `mask`.
inline __m512i shift_pair(__m512i v, uint32_t shift, uint32_t step, int mask) noexcept {
  const auto low = static_cast<short>(shift);
  const auto high = static_cast<short>(shift + step);
  const __m512i counts = _mm512_inserti64x4(_mm512_set1_epi16(low), _mm256_set1_epi16(high), 1);
  return _mm512_and_si512(_mm512_srlv_epi16(v, counts), _mm512_set1_epi8(static_cast<char>(mask)));
}

// Adds `value` where the bit of block 2 * j or 2 * j + 1 is set in the 32 bytes at p.
inline __m512i add_high_bit(__m512i codes, const uint8_t* p, uint32_t j, int value) noexcept {
  const __mmask64 set = _mm512_test_epi8_mask(twice(p), byte_pair(1 << (2 * j), 2 << (2 * j)));
  return _mm512_mask_add_epi8(codes, set, codes, _mm512_set1_epi8(static_cast<char>(value)));
}

// The four two-bit codes of 64 bytes, those of odd ones times four.
inline void two_bit_quarters(__m512i v, __m512i (&out)[4]) noexcept {
  const __m512i low = _mm512_set1_epi8(3);
  const __m512i high = _mm512_set1_epi8(12);
  const __m512i upper = _mm512_srli_epi16(v, 4);
  out[0] = _mm512_and_si512(v, low);
  out[1] = _mm512_and_si512(v, high);
  out[2] = _mm512_and_si512(upper, low);
  out[3] = _mm512_and_si512(upper, high);
}

// Half i of 64 bytes at p0 and at p1, which are two halves twice.
inline __m512i half_of_two(const uint8_t* p0, const uint8_t* p1, int i) noexcept {
  const __m512i first = _mm512_loadu_si512(p0);
  const __m512i second = _mm512_loadu_si512(p1);
  return i == 0 ? _mm512_shuffle_i64x2(first, second, 0x88) : _mm512_shuffle_i64x2(first, second, 0xDD);
}

// d and d_m of two groups.
struct TwoD {
  __m512 d, dm;
};

struct WideQ2K : GroupQ2K {
  using QuartersTag = void;
  static __m512i pair(const uint8_t* p, uint32_t j) noexcept {
    return shift_pair(twice(p + Block::kQs + 32 * (j / 2)), 4 * (j % 2), 2, 3);
  }
  static void quarters(const uint8_t* p0, const uint8_t* p1, int i, __m512i (&out)[4]) noexcept {
    two_bit_quarters(half_of_two(p0 + Block::kQs, p1 + Block::kQs, i), out);
  }
  static __m512i spread_scales(const uint8_t* p0, const uint8_t* p1) noexcept {
    const __m512i first = _mm512_broadcast_i32x4(load_128(p0 + Block::kScales));
    const __m512i packed = _mm512_mask_broadcast_i32x4(first, 0xFF00, load_128(p1 + Block::kScales));
    return _mm512_and_si512(packed, _mm512_set1_epi8(15));
  }
  static __m512i minima(const uint8_t* p0, const uint8_t* p1) noexcept {
    const __m256i packed = _mm256_inserti128_si256(_mm256_castsi128_si256(load_128(p0)), load_128(p1), 1);
    return _mm512_cvtepu8_epi16(_mm256_and_si256(_mm256_srli_epi16(packed, 4), _mm256_set1_epi8(15)));
  }
  static TwoD d_of_two(const uint8_t* p0, const uint8_t* p1) noexcept {
    static_assert(Block::kScales == 0 && Block::kDmin == Block::kD + 2);
    const __m128i halfs = _mm_insert_epi32(_mm_cvtsi32_si128(static_cast<int>(load_dword(p0 + Block::kD))),
                                           static_cast<int>(load_dword(p1 + Block::kD)), 1);
    const __m128 d = _mm_xor_ps(_mm_cvtph_ps(halfs), _mm_setr_ps(0.0F, -0.0F, 0.0F, -0.0F));
    const __m512i of_d = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2);
    const __m512i of_dm = _mm512_or_si512(of_d, _mm512_set1_epi32(1));
    return {_mm512_permutexvar_ps(of_d, _mm512_castps128_ps512(d)),
            _mm512_permutexvar_ps(of_dm, _mm512_castps128_ps512(d))};
  }
};

struct WideQ3K : GroupQ3K {
  static __m512i pair(const uint8_t* p, uint32_t j) noexcept {
    const __m512i low = shift_pair(twice(p + Block::kQs + 32 * (j / 2)), 4 * (j % 2), 2, 3);
    return add_high_bit(low, p + Block::kHmask, j, 4);
  }
};

// The codes of Q4_K and the low bits of Q5_K as WideNibbles.
inline void wide_nibbles(const uint8_t* qs, __m512i (&out)[4]) noexcept {
  const __m512i pairs[2] = {once(_mm512_loadu_si512(qs)), once(_mm512_loadu_si512(qs + 64))};
  __m512i parts[2];
  halves(pairs, parts);
  for (int i = 0; i < 2; ++i) {
    out[i] = low_nibbles(parts[i]);
    out[2 + i] = high_nibbles(parts[i]);
  }
}

// d, dmin and the twelve bytes of scales and mins (numerics::k4_scale_min), which are the first 16 bytes of Q4_K and
// Q5_K, of two blocks at once.
template <typename Block>
inline TwoScales k4_scales_of_two(const uint8_t* p) noexcept {
  static_assert(Block::kD == 0 && Block::kDmin == 2 && Block::kScales == 4);
  const __m256i heads = _mm256_inserti128_si256(_mm256_castsi128_si256(load_128(p)), load_128(p + Block::kBytes), 1);
  // Dwords of a block: scales 0-3, scales 4-7, mins 0-3, mins 4-7; of these the low bits, then two high bits of the
  // fours that have them elsewhere.
  const __m256i low = _mm256_srlv_epi32(_mm256_shuffle_epi32(heads, 0xED), _mm256_setr_epi32(0, 0, 0, 4, 0, 0, 0, 4));
  const __m256i high = _mm256_srli_epi32(_mm256_shuffle_epi32(heads, 0xA5), 2);
  const __m256i low_mask = _mm256_set1_epi64x(0x0F0F0F0F3F3F3F3F);
  const __m256i high_mask = _mm256_set1_epi64x(0x3030303000000000);
  constexpr int kOrAnd = 0xF8;  // a | (b & c)
  const __m256i bytes = _mm256_ternarylogic_epi32(_mm256_and_si256(low, low_mask), high, high_mask, kOrAnd);
  const __m256i ordered = _mm256_permute4x64_epi64(bytes, 0xD8);
  const __m256i halfs = _mm256_permutevar8x32_epi32(heads, _mm256_setr_epi32(0, 4, 0, 4, 0, 4, 0, 4));
  const __m128 d = _mm_xor_ps(_mm_cvtph_ps(_mm256_castsi256_si128(halfs)), _mm_setr_ps(0.0F, -0.0F, 0.0F, -0.0F));
  const __m512 d_all = _mm512_castps128_ps512(d);
  const __m512i of_d = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2);
  return {_mm512_permutexvar_ps(of_d, d_all), _mm512_permutexvar_ps(_mm512_or_si512(of_d, _mm512_set1_epi32(1)), d_all),
          _mm512_cvtepu8_epi32(_mm256_castsi256_si128(ordered)),
          _mm512_cvtepu8_epi32(_mm256_extracti128_si256(ordered, 1))};
}

struct WideQ4K : GroupQ4K {
  using WideNibblesTag = void;
  using K4ScalesTag = void;
  static constexpr uint32_t nibbles_at(uint32_t piece) noexcept { return Block::kQs + 16 * piece; }
  static constexpr uint32_t low_column(uint32_t piece) noexcept { return 16 * (piece / 2) + 4 * (piece % 2); }
  static constexpr uint32_t high_column(uint32_t piece) noexcept { return low_column(piece) + 8; }
  static __m512i of_nibbles(__m512i v) noexcept { return v; }
  static void codes4(const uint8_t* p, __m512i (&out)[4]) noexcept { wide_nibbles(p + Block::kQs, out); }
  static TwoScales scales_of_two(const uint8_t* p) noexcept { return k4_scales_of_two<Block>(p); }
};

struct WideQ5K : GroupQ5K {
  using WideNibblesTag = void;
  using K4ScalesTag = void;
  static __m512i pair(const uint8_t* p, uint32_t j) noexcept {
    return add_high_bit(shift_pair(twice(p + Block::kQs + 32 * j), 0, 4, 15), p + Block::kQh, j, 16);
  }
  static TwoScales scales_of_two(const uint8_t* p) noexcept { return k4_scales_of_two<Block>(p); }
  static void codes4(const uint8_t* p, __m512i (&out)[4]) noexcept {
    wide_nibbles(p + Block::kQs, out);
    const __m512i even_bits = _mm512_inserti64x4(_mm512_castsi256_si512(two_bytes(1, 4)), two_bytes(16, 64), 1);
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const __m512i high = _mm512_broadcast_i32x4(load_128(p + Block::kQh + 16 * i));
      const __mmask64 even = _mm512_test_epi8_mask(high, even_bits);
      const __mmask64 odd = _mm512_test_epi8_mask(high, _mm512_add_epi8(even_bits, even_bits));
      out[i] = _mm512_mask_add_epi8(out[i], even, out[i], _mm512_set1_epi8(16));
      out[2 + i] = _mm512_mask_add_epi8(out[2 + i], odd, out[2 + i], _mm512_set1_epi8(16));
    }
  }
};

struct WideQ6K : GroupQ6K {
  using Q6LayoutTag = void;
  static constexpr uint32_t kFewTokens = 6;
  static __m512i pair(const uint8_t* p, uint32_t j) noexcept {
    // Both blocks of a pair use the same nibble of 64 bytes in a row; their upper two bits come from 32 bytes.
    const uint32_t half = j / 2;
    const bool is_upper = j % 2 != 0;
    const __m512i ql = _mm512_loadu_si512(p + Block::kQl + 64 * half);
    const __m512i low = _mm512_and_si512(is_upper ? _mm512_srli_epi16(ql, 4) : ql, _mm512_set1_epi8(15));
    // Rotating dwords moves the two bits to bits 4 and 5 of their own byte; the mask drops what came from others.
    const __m512i counts = is_upper ? _mm512_inserti64x4(_mm512_set1_epi32(0), _mm256_set1_epi32(30), 1)
                                    : _mm512_inserti64x4(_mm512_set1_epi32(4), _mm256_set1_epi32(2), 1);
    const __m512i high = _mm512_rolv_epi32(twice(p + Block::kQh + 32 * half), counts);
    return _mm512_or_si512(low, _mm512_and_si512(high, _mm512_set1_epi8(0x30)));
  }
};

struct WideIq4Xs : GroupIq4Xs, NibbleBlocks<Iq4Codes, numerics::IQ4_XS::kQs, 16> {
  static constexpr int kOffset = Iq4Codes::kOffset;
};

}  // namespace
}  // namespace outrider::kernels
