// SPDX-License-Identifier: Apache-2.0
// The AVX-512 VNNI row kernel of every quantised format: two groups of a row at a time, which join the eight lanes one
// after the other. Internal linkage.
#pragma once

#include "outrider/kernels/matmul/group_avx2-inl.h"
#include "outrider/numerics/blocks.h"

namespace outrider::kernels {
namespace {

// A format of group_avx2-inl.h with, besides,
//   pair(p, j)   the 64 codes of blocks 2 * j and 2 * j + 1 as unsigned bytes: int8 codes get kOffset = 128 added; or
//                codes4(), below
//   kFewTokens   up to so many tokens the rows of this file beat tiles (matmul_bench, Zen 4)

// Two times 16 bytes, `stride` apart, to two times 32 nibbles: of each, the low ones, then the high ones.
inline __m512i nibble_pair(const uint8_t* p, uint32_t stride) noexcept {
  constexpr int64_t kFour = 0x0004000400040004;
  const __m512i shift = _mm512_setr_epi64(0, 0, kFour, kFour, 0, 0, kFour, kFour);
  const __m512i first = _mm512_broadcast_i32x4(load_128(p));
  const __m512i both = _mm512_mask_broadcast_i32x4(first, 0xFF00, load_128(p + stride));
  return _mm512_and_si512(_mm512_srlv_epi16(both, shift), _mm512_set1_epi8(15));
}

// The table for shuffles, with `offset` added to its values.
inline __m512i wide_table(const int8_t (&table)[16], int offset) noexcept {
  const __m128i values = _mm_add_epi8(load_128(table), _mm_set1_epi8(static_cast<char>(offset)));
  return _mm512_broadcast_i32x4(values);
}

// Per 128-bit part the sums of two neighbouring int32 of a, then of b. Of numbers that fit 16 bits, one shuffle and one
// product do it instead of two shuffles and an addition: shuffles are what the row kernels have most of.
template <int64_t kMost>
inline __m512i add_pairs(__m512i a, __m512i b) noexcept {
  if constexpr (kMost <= INT16_MAX) {
    return _mm512_madd_epi16(_mm512_packs_epi32(a, b), _mm512_set1_epi16(1));
  } else {
    const __m512 a_ps = _mm512_castsi512_ps(a);
    const __m512 b_ps = _mm512_castsi512_ps(b);
    return _mm512_add_epi32(_mm512_castps_si512(_mm512_shuffle_ps(a_ps, b_ps, 0x88)),
                            _mm512_castps_si512(_mm512_shuffle_ps(a_ps, b_ps, 0xDD)));
  }
}

// Formats whose codes come in an order of their own, for fewer loads, with codes4(p, out):
//   BlockNibbles  16 bytes of nibbles are a block, the low ones its first half: out[2 * h] has the first halves of
//   blocks
//                 4 * h to 4 * h + 3, out[2 * h + 1] their second halves
//   WideNibbles   32 bytes of nibbles are two blocks: out[2 * h] has the first halves of blocks h, h + 2, h + 4 and h +
//   6,
//                 out[2 * h + 1] their second halves
// Each 128-bit part is of one block then, so that the products with both halves join before they are summed.
template <typename Format>
concept BlockNibbles = requires {
  typename Format::BlockNibblesTag;
};
template <typename Format>
concept WideNibbles = requires {
  typename Format::WideNibblesTag;
};

// Formats with a scale and a minimum for each half of a block. Two groups are taken at once: part 2 * g + h of
// quarters(p0, p1, i, out)'s out[s] is half i of block 4 * h + s of group g, codes of odd s four times as large.
// spread_scales(p0, p1) has the sixteen scales of group g in parts 2 * g and 2 * g + 1, minima(p0, p1) are int16 in the
// order of sum16, and d_of_two(p0, p1) gives d and d_m. Scales join as words in the multiplication that sums products.
template <typename Format>
concept Quarters = requires {
  typename Format::QuartersTag;
};

// Keeps a value in a register: GCC would load it once for each use, and unaligned loads are what the row kernels wait
// for.
inline __m512i once(__m512i v) noexcept {
  asm("" : "+v"(v));
  return v;
}

inline __m512i low_nibbles(__m512i v) noexcept { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }
inline __m512i high_nibbles(__m512i v) noexcept { return low_nibbles(_mm512_srli_epi16(v, 4)); }

struct WordOrder {
  alignas(64) int16_t index[32];
};

// Where the words of four pieces of 16 bytes lie in two loads at bytes `low` and `high`, for pieces at first, first +
// stride, ...: a piece is taken from the load whose words it lies on.
constexpr WordOrder piece_order(uint32_t first, uint32_t stride, uint32_t low, uint32_t high) noexcept {
  WordOrder order = {};
  for (uint32_t i = 0; i < 32; ++i) {
    const uint32_t at = first + i / 8 * stride + i % 8 * 2;
    const bool in_low = at >= low && at + 2 <= low + 64 && (at - low) % 2 == 0;
    order.index[i] = static_cast<int16_t>(in_low ? (at - low) / 2 : 32 + (at - high) / 2);
  }
  return order;
}

// Pieces of 16 bytes at kFirst, kFirst + kStride, ..., of eight blocks: four and four. Reads inside the 8 * kStride
// bytes at p only.
template <uint32_t kFirst, uint32_t kStride>
inline void eight_pieces(const uint8_t* p, __m512i (&out)[2]) noexcept {
  if constexpr (kStride == 16) {
    for (int i = 0; i < 2; ++i) out[i] = once(_mm512_loadu_si512(p + kFirst + 64 * i));
  } else if constexpr (kStride % 2 == 0) {
    static_assert(kFirst + 3 * kStride + 16 <= 128 && 4 * kStride >= 64 && 8 * kStride - 64 <= 128);
    alignas(64) static constexpr WordOrder kLow = piece_order(kFirst, kStride, 0, 64);
    alignas(64) static constexpr WordOrder kHigh = piece_order(kFirst + 4 * kStride, kStride, 64, 8 * kStride - 64);
    const __m512i middle = once(_mm512_loadu_si512(p + 64));
    out[0] = once(_mm512_permutex2var_epi16(_mm512_loadu_si512(p), _mm512_load_si512(kLow.index), middle));
    out[1] = once(
        _mm512_permutex2var_epi16(middle, _mm512_load_si512(kHigh.index), _mm512_loadu_si512(p + 8 * kStride - 64)));
  } else {
    // Every second piece lies on odd bytes: one load for those, one for the others.
    constexpr uint32_t kUpper = kFirst + 4 * kStride;
    static_assert(kFirst + 2 * kStride + 16 <= kFirst + 64 && 3 * kStride + 16 <= 68);
    alignas(64) static constexpr WordOrder kLow = piece_order(kFirst, kStride, kFirst, kFirst + 3);
    alignas(64) static constexpr WordOrder kHigh = piece_order(kUpper, kStride, kUpper, kUpper + 3);
    out[0] = once(_mm512_permutex2var_epi16(_mm512_loadu_si512(p + kFirst), _mm512_load_si512(kLow.index),
                                            _mm512_loadu_si512(p + kFirst + 3)));
    out[1] = once(_mm512_permutex2var_epi16(_mm512_loadu_si512(p + kUpper), _mm512_load_si512(kHigh.index),
                                            _mm512_loadu_si512(p + kUpper + 3)));
  }
}

// Four blocks in two vectors: their first halves and their second halves.
inline void halves(const __m512i (&blocks)[2], __m512i* out) noexcept {
  out[0] = _mm512_shuffle_i64x2(blocks[0], blocks[1], 0x88);
  out[1] = _mm512_shuffle_i64x2(blocks[0], blocks[1], 0xDD);
}

// The activations of a group in the order of Format's codes.
template <typename Format>
inline void order_q(const int8_t* q, __m512i (&out)[4]) noexcept {
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) out[j] = _mm512_loadu_si512(q + 64 * j);
  if constexpr (WideNibbles<Format>) {
    const __m512i even[2] = {_mm512_shuffle_i64x2(out[0], out[1], 0x44), _mm512_shuffle_i64x2(out[2], out[3], 0x44)};
    const __m512i odd[2] = {_mm512_shuffle_i64x2(out[0], out[1], 0xEE), _mm512_shuffle_i64x2(out[2], out[3], 0xEE)};
    halves(even, out);
    halves(odd, out + 2);
  } else if constexpr (BlockNibbles<Format>) {
    const __m512i low[2] = {out[0], out[1]};
    const __m512i high[2] = {out[2], out[3]};
    halves(low, out);
    halves(high, out + 2);
  }
}

// Element 4 * i + j: the sum over part i of v[j], whose elements are at most kMost.
template <int64_t kMost>
inline __m512i sums_of_parts(const __m512i (&v)[4]) noexcept {
  return add_pairs<2 * kMost>(add_pairs<kMost>(v[0], v[1]), add_pairs<kMost>(v[2], v[3]));
}

// The largest sum of four products of Format's unsigned codes.
template <typename Format>
constexpr int64_t kMostOfFour = int64_t{4} * 127 * (Format::kMostCode + Format::kOffset);

// Element 8 * g + b is of block b of group g: the sum of codes times q over its first half and over its second half, or
// over the whole block and nothing.
struct GroupDots {
  __m512i dot0, dot1;
};

// The activations of two groups, q in the order of the codes: read where they are used, or (HeldPair) kept in registers
// for row after row.
struct ActPair {
  const int8_t* q;
  const float* d;
  const int32_t* sum32;

  void q4(uint32_t g, __m512i (&out)[4]) const noexcept {
#pragma GCC unroll 4
    for (uint32_t j = 0; j < 4; ++j) out[j] = _mm512_loadu_si512(q + 256 * g + 64 * j);
  }
  __m512 d16() const noexcept { return _mm512_loadu_ps(d); }
  __m512i sums16() const noexcept { return _mm512_loadu_si512(sum32); }
};

// kGroups groups at p.
template <typename Format, uint32_t kGroups, typename Acts>
[[gnu::always_inline]] inline GroupDots group_dots(const uint8_t* p, const Acts& acts) noexcept {
  GroupDots dots = {};
  if constexpr (BlockNibbles<Format> || WideNibbles<Format>) {
    __m512i v[4] = {};  // part i of v[2 * g + h]: block 4 * h + i, or 2 * i + h, of group g
#pragma GCC unroll 2
    for (uint32_t g = 0; g < kGroups; ++g) {
      __m512i codes[4], q4[4];
      Format::codes4(p + g * Format::kBytes, codes);
      acts.q4(g, q4);
#pragma GCC unroll 2
      for (uint32_t h = 0; h < 2; ++h) {
        v[2 * g + h] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), codes[2 * h], q4[2 * h]);
        v[2 * g + h] = _mm512_dpbusd_epi32(v[2 * g + h], codes[2 * h + 1], q4[2 * h + 1]);
      }
    }
    const __m512i order = WideNibbles<Format> ? _mm512_setr_epi32(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15)
                                              : _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    dots.dot0 = _mm512_permutexvar_epi32(order, sums_of_parts<2 * kMostOfFour<Format>>(v));
  } else {
    __m512i sums[2] = {};
#pragma GCC unroll 2
    for (uint32_t g = 0; g < kGroups; ++g) {
      __m512i v[4], q4[4];
#pragma GCC unroll 4
      for (uint32_t j = 0; j < 4; ++j) v[j] = Format::pair(p + g * Format::kBytes, j);
      acts.q4(g, q4);
#pragma GCC unroll 4
      for (uint32_t j = 0; j < 4; ++j) v[j] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), v[j], q4[j]);
      sums[g] = sums_of_parts<kMostOfFour<Format>>(v);
    }
    // Where the sums of the first halves are; those of the second halves lie four further.
    const __m512i first = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 16, 24, 17, 25, 18, 26, 19, 27);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(4));
    if constexpr (kGroups == 1) {
      dots.dot0 = _mm512_permutexvar_epi32(first, sums[0]);
      dots.dot1 = _mm512_permutexvar_epi32(second, sums[0]);
    } else {
      dots.dot0 = _mm512_permutex2var_epi32(sums[0], first, sums[1]);
      dots.dot1 = _mm512_permutex2var_epi32(sums[0], second, sums[1]);
    }
  }
  return dots;
}

inline __m512 two(__m256 a, __m256 b) noexcept { return _mm512_insertf32x8(_mm512_castps256_ps512(a), b, 1); }
inline __m512i two(__m256i a, __m256i b) noexcept { return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1); }

// GroupScales of two groups; sc and mn are int32 of each block.
struct TwoScales {
  __m512 d, dm;
  __m512i sc, mn;
};

// A format may have scales_of_two(p).
template <typename Format>
inline TwoScales two_scales(const uint8_t* p) noexcept {
  if constexpr (requires { Format::scales_of_two(p); }) {
    return Format::scales_of_two(p);
  } else {
    const GroupScales s0 = Format::scales(p);
    const GroupScales s1 = Format::scales(p + Format::kBytes);
    return {two(s0.d, s1.d), two(s0.dm, s1.dm), two(s0.sc, s1.sc), two(s0.mn, s1.mn)};
  }
}

template <typename Format>
inline __m512i shift_offset(__m512i v) noexcept {
  static_assert((Format::kOffset & (Format::kOffset - 1)) == 0);
  return _mm512_slli_epi32(v, __builtin_ctz(Format::kOffset));
}

inline __m256 half(__m512 v, uint32_t i) noexcept {
  return i == 0 ? _mm512_castps512_ps256(v) : _mm512_extractf32x8_ps(v, 1);
}

// What two groups add to their lanes: factor * scale, then min_factor * min_scale in formats with a minimum.
struct TwoTerms {
  __m512 factor, scale, min_factor, min_scale;
};

template <typename Format, typename Acts>
[[gnu::always_inline]] inline TwoTerms two_terms(const uint8_t* p, const Acts& acts) noexcept {
  const GroupDots dots = group_dots<Format, 2>(p, acts);
  const TwoScales s = two_scales<Format>(p);
  const __m512 d_a = acts.d16();
  const __m512i sum32 = acts.sums16();
  __m512i isum = BlockNibbles<Format> || WideNibbles<Format> ? dots.dot0 : _mm512_add_epi32(dots.dot0, dots.dot1);
  if constexpr (Format::kOffset != 0) isum = _mm512_sub_epi32(isum, shift_offset<Format>(sum32));
  if constexpr (Format::kScale == SubScale::kBlock) isum = _mm512_mullo_epi32(isum, s.sc);
  TwoTerms terms = {_mm512_cvtepi32_ps(isum), _mm512_mul_ps(s.d, d_a), {}, {}};
  if constexpr (Format::kMin != Min::kNone) {
    __m512i msum = sum32;
    if constexpr (Format::kMin == Min::kBlock) msum = _mm512_mullo_epi32(s.mn, sum32);
    terms.min_factor = _mm512_cvtepi32_ps(msum);
    terms.min_scale = _mm512_mul_ps(s.dm, d_a);
  }
  return terms;
}

// join_group() of two groups, one after the other.
template <typename Format, typename Acts>
[[gnu::always_inline]] inline __m256 join_groups(__m256 acc, const uint8_t* p, const Acts& acts) noexcept {
  const TwoTerms terms = two_terms<Format>(p, acts);
#pragma GCC unroll 2
  for (uint32_t g = 0; g < 2; ++g) {
    acc = _mm256_fmadd_ps(half(terms.factor, g), half(terms.scale, g), acc);
    if constexpr (Format::kMin != Min::kNone) {
      acc = _mm256_fmadd_ps(half(terms.min_factor, g), half(terms.min_scale, g), acc);
    }
  }
  return acc;
}

// The activations of two groups in the order of quarters(): those of half 0, then those of half 1.
inline void order_quarters(const int8_t* q0, const int8_t* q1, int8_t* to) noexcept {
#pragma GCC unroll 4
  for (int s = 0; s < 4; ++s) {
    const auto blocks = [s](const int8_t* q) {
      return _mm512_inserti64x4(_mm512_castsi256_si512(load_256(q + 32 * s)), load_256(q + 32 * (4 + s)), 1);
    };
    const __m512i first = blocks(q0);
    const __m512i second = blocks(q1);
    _mm512_storeu_si512(to + 64 * s, _mm512_shuffle_i64x2(first, second, 0x88));
    _mm512_storeu_si512(to + 64 * (4 + s), _mm512_shuffle_i64x2(first, second, 0xDD));
  }
}

// Scale words of blocks s and s + 1 for half i: 256 times the scale, 1024 times it for even s.
template <uint32_t kS, uint32_t kI>
inline __m512i scale_words(__m512i spread) noexcept {
  // Half i of block 4 * h + s has scale 8 * h + 2 * s + i. It goes to the upper byte of its words, which keeps the
  // sign.
  constexpr int64_t kUpper = 0x0100010001000100;
  constexpr int64_t kAt = (2 * kS + kI) * kUpper + 0x0080008000800080;
  const __m512i order = _mm512_setr_epi64(kAt, kAt + 2 * kUpper, kAt + 8 * kUpper, kAt + 10 * kUpper, kAt,
                                          kAt + 2 * kUpper, kAt + 8 * kUpper, kAt + 10 * kUpper);
  return _mm512_shuffle_epi8(spread, order);
}

// isum of the blocks of two groups.
template <typename Format>
inline __m512i quarter_sums(const uint8_t* p0, const uint8_t* p1, const int8_t* q) noexcept {
  static_assert(4 * kMostOfFour<Format> <= INT16_MAX && Format::kOffset == 0);
  const __m512i plain = Format::spread_scales(p0, p1);
  const __m512i even = _mm512_set1_epi32(0x0000FCFC);  // bytes of even s; they take up what odd s has in its codes
  const __m512i scales = _mm512_or_si512(_mm512_and_si512(_mm512_slli_epi16(plain, 2), even),
                                         _mm512_and_si512(plain, _mm512_set1_epi32(INT32_MIN >> 15)));
  __m512i words[2][2];
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    __m512i v[4];
    Format::quarters(p0, p1, i, v);
#pragma GCC unroll 4
    for (int s = 0; s < 4; ++s) {
      v[s] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), v[s], _mm512_loadu_si512(q + 64 * (4 * i + s)));
    }
    words[i][0] = _mm512_packs_epi32(v[0], v[1]);
    words[i][1] = _mm512_packs_epi32(v[2], v[3]);
  }
  const __m512i low = _mm512_dpwssd_epi32(_mm512_madd_epi16(words[0][0], scale_words<0, 0>(scales)), words[1][0],
                                          scale_words<0, 1>(scales));
  const __m512i high = _mm512_dpwssd_epi32(_mm512_madd_epi16(words[0][1], scale_words<2, 0>(scales)), words[1][1],
                                           scale_words<2, 1>(scales));
  return _mm512_srai_epi32(add_pairs<INT32_MAX>(low, high), 10);
}

template <bool kPair>
inline __m512i load_one_or_two(const void* p) noexcept {
  return kPair ? _mm512_loadu_si512(p) : _mm512_zextsi256_si512(load_256(p));
}

// The lanes after two more groups, or one.
template <typename Format, bool kPair>
inline __m256 join_quarters(__m256 acc, const uint8_t* p, const int8_t* q, const ActGroup& a) noexcept {
  const uint8_t* p1 = kPair ? p + Format::kBytes : p;
  const __m512 d_a = _mm512_castsi512_ps(load_one_or_two<kPair>(a.d));
  const __m512i msum = _mm512_madd_epi16(Format::minima(p, p1), load_one_or_two<kPair>(a.sum16));
  const auto [d, dm] = Format::d_of_two(p, p1);
  const __m512 factor = _mm512_cvtepi32_ps(quarter_sums<Format>(p, p1, q));
  const __m512 scale = _mm512_mul_ps(d, d_a);
  const __m512 min_factor = _mm512_cvtepi32_ps(msum);
  const __m512 min_scale = _mm512_mul_ps(dm, d_a);
#pragma GCC unroll 2
  for (uint32_t g = 0; g < (kPair ? 2 : 1); ++g) {
    acc = _mm256_fmadd_ps(half(factor, g), half(scale, g), acc);
    acc = _mm256_fmadd_ps(half(min_factor, g), half(min_scale, g), acc);
  }
  return acc;
}

template <typename Format>
inline __m256 join_one_group(__m256 acc, const uint8_t* p, const int8_t* q, const ActGroup& a) noexcept {
  const GroupDots dots = group_dots<Format, 1>(p, ActPair{q, a.d, a.sum32});
  return join_group<Format>(acc, _mm512_castsi512_si256(dots.dot0), _mm512_castsi512_si256(dots.dot1),
                            Format::scales(p), a);
}

constexpr uint32_t kMostRowGroups = 64;  // rows of more elements than 64 * 256 go by tiles

// One token's activations, q in the order of Format's codes.
template <typename Format>
struct RowActs {
  static constexpr bool kOrdered = BlockNibbles<Format> || WideNibbles<Format> || Quarters<Format>;
  ActGroup act;
  const int8_t* q;
  ActTail tail;
  alignas(64) int8_t ordered[kOrdered ? 256 * kMostRowGroups : 64];

  void fill(const ActGroup& from, uint32_t n_groups, uint32_t n_left) noexcept {
    act = from;
    q = kOrdered ? ordered : from.q;
    if constexpr (Quarters<Format>) {
      static_assert(kMostRowGroups % 2 == 0);
      alignas(64) static constexpr int8_t kNone[256] = {};
      for (uint32_t g = 0; g < n_groups; g += 2) {
        const int8_t* at = from.q + 256 * g;
        order_quarters(at, g + 1 < n_groups ? at + 256 : kNone, ordered + 256 * g);
      }
    } else {
      for (uint32_t g = 0; kOrdered && g < n_groups; ++g) order(from.q + 256 * g, ordered + 256 * g);
    }
    if (n_left == 0) return;
    tail.fill(act_at(from, n_groups), n_left);
    if (kOrdered) order(tail.q, tail.q);
  }

 private:
  static void order(const int8_t* from, int8_t* to) noexcept {
    __m512i v[4];
    order_q<Format>(from, v);
    for (int j = 0; j < 4; ++j) _mm512_storeu_si512(to + 64 * j, v[j]);
  }
};

// One row times one token, with the n_left < 8 blocks that end the row.
template <typename Format>
inline float dot_token(const uint8_t* p, uint32_t n_groups, const RowActs<Format>& acts, uint32_t n_left) noexcept {
  __m256 acc = _mm256_setzero_ps();
  uint32_t g = 0;
  if constexpr (Quarters<Format>) {
    for (; g + 2 <= n_groups; g += 2, p += 2 * Format::kBytes) {
      prefetch_group<2 * Format::kBytes>(p + kPrefetchBytes);
      acc = join_quarters<Format, true>(acc, p, acts.q + 256 * g, act_at(acts.act, g));
    }
    if (g < n_groups) acc = join_quarters<Format, false>(acc, p, acts.q + 256 * g, act_at(acts.act, g));
    return fold_lanes(acc);
  }
  if constexpr (Format::kScale != SubScale::kHalf) {  // whose 256-bit step is the faster one
    for (; g + 2 <= n_groups; g += 2, p += 2 * Format::kBytes) {
      prefetch_group<2 * Format::kBytes>(p + kPrefetchBytes);
      const ActGroup a = act_at(acts.act, g);
      acc = join_groups<Format>(acc, p, ActPair{acts.q + 256 * g, a.d, a.sum32});
    }
  }
  for (; g < n_groups; ++g, p += Format::kBytes) {
    prefetch_group<Format::kBytes>(p + kPrefetchBytes);
    acc = join_one_group<Format>(acc, p, acts.q + 256 * g, act_at(acts.act, g));
  }
  if (n_left != 0) {
    uint8_t padded[Format::kBytes] = {};
    __builtin_memcpy(padded, p, Format::kBytes / 8 * n_left);
    acc = keep_lanes(acc, join_one_group<Format>(acc, padded, acts.tail.q, acts.tail.group()), n_left);
  }
  return fold_lanes(acc);
}

// All rows of the call for at most kMostTokens tokens, k at most kMostRowGroups groups.
template <typename Format, uint32_t kMostTokens>
void run_rows(const MatmulArgs& args) noexcept {
  prefetch_begin(args);
  const uint32_t n_groups = args.weights.k / 256;
  const uint32_t n_left = Format::kBlocksApart ? args.weights.k / 32 % 8 : 0;
  RowActs<Format> acts[kMostTokens];
  for (uint32_t i = 0; i < args.n_tokens; ++i) acts[i].fill(act_of(args, i), n_groups, n_left);
  for (uint32_t r = args.row_begin; r < args.row_end; ++r) {
    const auto* p = reinterpret_cast<const uint8_t*>(args.weights.data) + r * args.weights.row_bytes;
    for (uint32_t i = 0; i < args.n_tokens; ++i) {
      args.out[i * args.out_stride + r] = dot_token<Format>(p, n_groups, acts[i], n_left);
    }
  }
}

// What of_nibbles() makes of nibbles: numerics::kIq4Values with what makes them unsigned added.
struct Iq4Codes {
  static constexpr int kOffset = 128;
  static __m512i of(__m512i v) noexcept { return _mm512_shuffle_epi8(wide_table(numerics::kIq4Values, kOffset), v); }
};

// Formats whose piece of nibbles (tile_avx512-inl.h) is one block: blocks kStride bytes apart, nibbles from byte kFirst
// on.
template <typename Codes, uint32_t kFirst, uint32_t kStride>
struct NibbleBlocks {
  using BlockNibblesTag = void;
  static constexpr uint32_t nibbles_at(uint32_t piece) noexcept { return kFirst + kStride * piece; }
  static constexpr uint32_t low_column(uint32_t piece) noexcept { return 8 * piece; }
  static constexpr uint32_t high_column(uint32_t piece) noexcept { return 8 * piece + 4; }
  static __m512i of_nibbles(__m512i v) noexcept { return Codes::of(v); }
  static void codes4(const uint8_t* p, __m512i (&out)[4]) noexcept {
    __m512i pieces[2];
    eight_pieces<kFirst, kStride>(p, pieces);
    for (int h = 0; h < 2; ++h) {
      out[2 * h] = Codes::of(low_nibbles(pieces[h]));
      out[2 * h + 1] = Codes::of(high_nibbles(pieces[h]));
    }
  }
};

}  // namespace
}  // namespace outrider::kernels
