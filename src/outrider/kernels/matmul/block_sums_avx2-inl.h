// SPDX-License-Identifier: Apache-2.0
// The integers of one group (group_avx2-inl.h) for the AVX2 row kernels: products of codes and activations, summed to
// isum of matmul_law.h. Blocks go in pairs (i, i + 4), one in each 128-bit part, so that four registers of sums fold
// into eight lanes in the order of the law, and both halves of a block join before they fold. Shuffles have two of this
// processor's four vector pipes and multiplications have the other two, so folds mix them with blends. Internal
// linkage.
//
// A format of group_avx2-inl.h has, besides, two_blocks(p, i, out): the codes of blocks i and i + 4 of the group at p,
// out[0] their first halves and out[1] their second halves. The activations come in the same order (order_q).
#pragma once

#include "outrider/kernels/matmul/group_avx2-inl.h"

namespace outrider::kernels {
namespace {

// The 16 bytes at a, then those at b.
inline __m256i load_two(const uint8_t* a, const uint8_t* b) noexcept {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(load_128(a)), load_128(b), 1);
}

inline void order_q(const int8_t* q, int8_t* to) noexcept {
#pragma GCC unroll 4
  for (uint32_t i = 0; i < 4; ++i) {
    const __m256i a = load_256(q + 32 * i);
    const __m256i b = load_256(q + 32 * (i + 4));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 64 * i), _mm256_permute2x128_si256(a, b, 0x20));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 64 * i + 32), _mm256_permute2x128_si256(a, b, 0x31));
  }
}

// Per 128-bit part: a's upper half added to its lower one, then b's; of int16 or of int32.
template <int kBits>
inline __m256i add_halves(__m256i a, __m256i b) noexcept {
  const __m256i straight = _mm256_blend_epi32(a, b, 0xCC);
  const __m256i crossed = _mm256_alignr_epi8(b, a, 8);
  return kBits == 16 ? _mm256_add_epi16(straight, crossed) : _mm256_add_epi32(straight, crossed);
}

// Per 128-bit part: the sums of neighbouring int32, or of neighbouring pairs of int16, of a, then of b.
template <int kBits>
inline __m256i add_neighbours(__m256i a, __m256i b) noexcept {
  const __m256 a_ps = _mm256_castsi256_ps(a);
  const __m256 b_ps = _mm256_castsi256_ps(b);
  const __m256i even = _mm256_castps_si256(_mm256_shuffle_ps(a_ps, b_ps, 0x88));
  const __m256i odd = _mm256_castps_si256(_mm256_shuffle_ps(a_ps, b_ps, 0xDD));
  return kBits == 16 ? _mm256_add_epi16(even, odd) : _mm256_add_epi32(even, odd);
}

inline __m256i add_words(__m256i v) noexcept { return _mm256_madd_epi16(v, _mm256_set1_epi16(1)); }

// Element 4 * part + i: the sum over that part of v[i].
inline __m256i fold_dwords(const __m256i (&v)[4]) noexcept {
  return add_neighbours<32>(add_halves<32>(v[0], v[1]), add_halves<32>(v[2], v[3]));
}

// The same of int16 that are at most kMost; as far as they stay below 2^15 they are added before they are widened.
template <int64_t kMost>
inline __m256i fold_words(const __m256i (&v)[4]) noexcept {
  if constexpr (4 * kMost <= INT16_MAX) {
    return add_words(add_neighbours<16>(add_halves<16>(v[0], v[1]), add_halves<16>(v[2], v[3])));
  } else if constexpr (2 * kMost <= INT16_MAX) {
    return add_neighbours<32>(add_words(add_halves<16>(v[0], v[1])), add_words(add_halves<16>(v[2], v[3])));
  } else {
    const __m256i wide[4] = {add_words(v[0]), add_words(v[1]), add_words(v[2]), add_words(v[3])};
    return fold_dwords(wide);
  }
}

// Products of codes and q, two to an int16: at most 2 * 63 * 127 for unsigned codes, 2 * 128 * 127 = 32,512 for signed
// ones, so maddubs never saturates.
template <typename Format>
inline __m256i products(__m256i codes, const int8_t* q) noexcept {
  if constexpr (Format::kSigned) {
    return _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(load_256(q), codes));
  } else {
    return _mm256_maddubs_epi16(codes, load_256(q));
  }
}

// kOffset * v for |v| < 2^15.
template <typename Format>
inline __m256i offset_times(__m256i v) noexcept {
  return _mm256_madd_epi16(v, _mm256_set1_epi32(Format::kOffset));
}

// isum of formats with a scale for each half, whose halves sum to int16: codes(i, out) is two_blocks().
template <typename Format, typename Codes>
[[gnu::always_inline]] inline __m256i sum_halves_narrow(const Codes& codes, const int8_t* q, const GroupScales& s,
                                                        const ActGroup& a) noexcept {
  static_assert(16 * Format::kMostCode * 127 <= INT16_MAX && 16 * Format::kOffset * 127 <= INT16_MAX);
  __m256i halves[4];  // of block i: first, first, second, second
#pragma GCC unroll 4
  for (uint32_t i = 0; i < 4; ++i) {
    __m256i c[2];
    codes(i, c);
    halves[i] = add_halves<16>(products<Format>(c[0], q + 64 * i), products<Format>(c[1], q + 64 * i + 32));
  }
  const __m256i low = add_words(add_neighbours<16>(halves[0], halves[1]));
  const __m256i high = add_words(add_neighbours<16>(halves[2], halves[3]));
  __m256i words = _mm256_packs_epi32(low, high);
  if constexpr (Format::kOffset != 0) {
    static_assert((Format::kOffset & (Format::kOffset - 1)) == 0);
    words = _mm256_sub_epi16(words, _mm256_slli_epi16(load_256(a.sum16), __builtin_ctz(Format::kOffset)));
  }
  return _mm256_madd_epi16(words, s.sc);
}

// The same where halves need more than int16: scales join when products are widened.
template <typename Format, typename Codes>
[[gnu::always_inline]] inline __m256i sum_halves_wide(const Codes& codes, const int8_t* q, const GroupScales& s,
                                                      const ActGroup& a) noexcept {
  __m256i v[4];
#pragma GCC unroll 4
  for (uint32_t i = 0; i < 4; ++i) {
    __m256i c[2];
    codes(i, c);
    const auto scale = [&](uint32_t half) {  // that of block i, or i + 4, in every word
      const auto at = static_cast<short>(0x0100 + 0x0202 * (2 * i + half));
      return _mm256_shuffle_epi8(s.sc, _mm256_set1_epi16(at));
    };
    v[i] = _mm256_add_epi32(_mm256_madd_epi16(products<Format>(c[0], q + 64 * i), scale(0)),
                            _mm256_madd_epi16(products<Format>(c[1], q + 64 * i + 32), scale(1)));
  }
  const __m256i offset = _mm256_slli_epi32(_mm256_madd_epi16(s.sc, load_256(a.sum16)), __builtin_ctz(Format::kOffset));
  return _mm256_sub_epi32(fold_dwords(v), offset);
}

template <typename Format, typename Codes>
[[gnu::always_inline]] inline __m256i sum_blocks(const Codes& codes, const int8_t* q, const GroupScales& s,
                                                 const ActGroup& a) noexcept {
  if constexpr (Format::kScale == SubScale::kHalf) {
    if constexpr (16 * Format::kMostCode * 127 <= INT16_MAX) {
      return sum_halves_narrow<Format>(codes, q, s, a);
    } else {
      return sum_halves_wide<Format>(codes, q, s, a);
    }
  } else {
    constexpr int64_t kMost = int64_t{4} * Format::kMostCode * 127;
    __m256i v[4];
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; ++i) {
      __m256i c[2];
      codes(i, c);
      const __m256i first = products<Format>(c[0], q + 64 * i);
      const __m256i second = products<Format>(c[1], q + 64 * i + 32);
      if constexpr (kMost <= INT16_MAX) {
        v[i] = _mm256_add_epi16(first, second);
      } else {
        v[i] = _mm256_add_epi32(add_words(first), add_words(second));
      }
    }
    __m256i isum;
    if constexpr (kMost <= INT16_MAX) {
      isum = fold_words<kMost>(v);
    } else {
      isum = fold_dwords(v);
    }
    if constexpr (Format::kOffset != 0) isum = _mm256_sub_epi32(isum, offset_times<Format>(load_256(a.sum32)));
    if constexpr (Format::kScale == SubScale::kBlock) isum = _mm256_mullo_epi32(isum, s.sc);
    return isum;
  }
}

// The lanes after one more group.
template <typename Format, typename Codes>
[[gnu::always_inline]] inline __m256 join_sums(__m256 acc, const Codes& codes, const int8_t* q, const GroupScales& s,
                                               const ActGroup& a) noexcept {
  const __m256 d_a = _mm256_loadu_ps(a.d);
  acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum_blocks<Format>(codes, q, s, a)), _mm256_mul_ps(s.d, d_a), acc);
  if constexpr (Format::kMin != Min::kNone) {
    __m256i msum;
    if constexpr (Format::kMin == Min::kFloat) {
      msum = load_256(a.sum32);
    } else if constexpr (Format::kMin == Min::kBlock) {
      msum = _mm256_madd_epi16(s.mn, load_256(a.sum32));  // both fit their lower words
    } else {
      msum = _mm256_madd_epi16(s.mn, load_256(a.sum16));
    }
    acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(msum), _mm256_mul_ps(s.dm, d_a), acc);
  }
  return acc;
}

}  // namespace
}  // namespace outrider::kernels
