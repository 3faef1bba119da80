// SPDX-License-Identifier: Apache-2.0
// The integers of one group (group_avx2-inl.h) for the AVX2 row kernels: products of codes and activations, summed to
// isum of matmul_law.h. A register holds codes of several blocks, so that four registers of sums fold into eight lanes,
// and all that can join before they fold has joined. Shuffles have two of this processor's four vector pipes and
// multiplications have the other two, so folds mix them with blends. Internal linkage.
//
// A format of group_avx2-inl.h has, besides, two_blocks(p, i, out): registers 2 i and 2 i + 1 of the group's codes in
// the order that its kOrder tells, kPairs without one. The activations come in the same order (order_q).
#pragma once

#include "outrider/kernels/matmul/group_avx2-inl.h"

namespace outrider::kernels {
namespace {

// The 16 bytes at a, then those at b.
inline __m256i load_two(const uint8_t* a, const uint8_t* b) noexcept {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(load_128(a)), load_128(b), 1);
}

// A load alone; of _mm256_set1_epi32 of what lies in memory GCC makes a load and a shuffle.
inline __m256i broadcast_dword(const uint8_t* p) noexcept {
  return _mm256_castps_si256(_mm256_broadcast_ss(reinterpret_cast<const float*>(p)));
}

// What the two registers `out` hold, and the order of lanes that follows from it.
//   kPairs   a half of block i and of block i + 4; first halves, then second ones     lanes 0 1 2 3 4 5 6 7
//   kBeside  the same of blocks 2 i and 2 i + 1                                       lanes 0 2 4 6 1 3 5 7
//   kOcts    elements 8 i to 8 i + 7 of blocks 0 to 3; of blocks 4 to 7               lanes 0 1 4 5 2 3 6 7
enum class Order : uint8_t { kPairs, kBeside, kOcts };

template <typename Format>
constexpr Order order_of() noexcept {
  if constexpr (requires { Format::kOrder; }) {
    return Format::kOrder;
  } else {
    return Order::kPairs;
  }
}

// From the order of blocks to that of lanes.
template <Order kOrder>
inline __m256i to_lanes(__m256i blocks) noexcept {
  if constexpr (kOrder == Order::kPairs) {
    return blocks;
  } else if constexpr (kOrder == Order::kBeside) {
    return _mm256_permutevar8x32_epi32(blocks, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
  } else {
    return _mm256_permute4x64_epi64(blocks, 0xD8);
  }
}

template <Order kOrder>
inline __m256 from_lanes(__m256 lanes) noexcept {
  if constexpr (kOrder == Order::kPairs) {
    return lanes;
  } else if constexpr (kOrder == Order::kBeside) {
    return _mm256_permutevar8x32_ps(lanes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  } else {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(lanes), 0xD8));
  }
}

// Whether codes take the signs of q, so that |q|, laid beside q, is the unsigned factor: it spares |code|. Not for
// codes of -128, which have no negative.
template <typename Format>
constexpr bool kSignsToCodes = Format::kMostCode <= 127 && Format::kSigned;

// How halves with scales of their own are summed: packed to pairs of int16 where the sums of whole halves fit, else
// first and second halves apart.
enum class Halves : uint8_t { kNone, kPacked, kApart };

template <typename Format>
constexpr Halves halves_of() noexcept {
  if (Format::kScale != SubScale::kHalf) return Halves::kNone;
  const bool fits = 16 * Format::kMostCode * 127 <= INT16_MAX && order_of<Format>() != Order::kOcts;
  return fits ? Halves::kPacked : Halves::kApart;
}

// Whether what kOffset takes off halves apart lies behind a group's q.
template <typename Format>
constexpr bool has_start() noexcept {
  return halves_of<Format>() == Halves::kApart && Format::kOffset != 0;
}

template <typename Format>
constexpr uint32_t kUnitBytes = kSignsToCodes<Format> ? 64 : 32;  // of activations for one register of codes
template <typename Format>
constexpr uint32_t kGroupBytes = 8 * kUnitBytes<Format> + (has_start<Format>() ? 64 : 0);

template <typename Format>
inline void store_unit(__m256i q, int8_t* to) noexcept {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), q);
  if constexpr (kSignsToCodes<Format>) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 32), _mm256_abs_epi8(q));
  }
}

// q of a group in the order of two_blocks().
template <typename Format>
inline void order_q(const int8_t* q, int8_t* to) noexcept {
  constexpr uint32_t kStep = kUnitBytes<Format>;
  if constexpr (order_of<Format>() == Order::kOcts) {
#pragma GCC unroll 2
    for (uint32_t h = 0; h < 2; ++h) {
      const int8_t* from = q + 128 * h;
      const __m256i even0 = _mm256_unpacklo_epi64(load_256(from), load_256(from + 32));
      const __m256i odd0 = _mm256_unpackhi_epi64(load_256(from), load_256(from + 32));
      const __m256i even1 = _mm256_unpacklo_epi64(load_256(from + 64), load_256(from + 96));
      const __m256i odd1 = _mm256_unpackhi_epi64(load_256(from + 64), load_256(from + 96));
      store_unit<Format>(_mm256_permute2x128_si256(even0, even1, 0x20), to + kStep * h);
      store_unit<Format>(_mm256_permute2x128_si256(odd0, odd1, 0x20), to + kStep * (2 + h));
      store_unit<Format>(_mm256_permute2x128_si256(even0, even1, 0x31), to + kStep * (4 + h));
      store_unit<Format>(_mm256_permute2x128_si256(odd0, odd1, 0x31), to + kStep * (6 + h));
    }
  } else {
    constexpr bool kBeside = order_of<Format>() == Order::kBeside;
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; ++i) {
      const __m256i a = load_256(q + 32 * (kBeside ? 2 * i : i));
      const __m256i b = load_256(q + 32 * (kBeside ? 2 * i + 1 : i + 4));
      store_unit<Format>(_mm256_permute2x128_si256(a, b, 0x20), to + kStep * 2 * i);
      store_unit<Format>(_mm256_permute2x128_si256(a, b, 0x31), to + kStep * (2 * i + 1));
    }
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
  if constexpr (kSignsToCodes<Format>) {
    return _mm256_maddubs_epi16(load_256(q + 32), _mm256_sign_epi8(codes, load_256(q)));
  } else if constexpr (Format::kSigned) {
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

// For halves apart: sc and sc1 are the scales of first and second halves, twice as int16.
struct HalfScales : GroupScales {
  __m256i sc1 = _mm256_setzero_si256();
};

// Sums of products of a group, which fold_group() makes isum of. Of halves apart: v[0] and v[1] of first ones, v[2] and
// v[3] of second ones.
struct Sums {
  __m256i v[4];
};

// The codes of a group where they are used.
template <typename Format>
struct CodesAt {
  const uint8_t* p;
  void operator()(uint32_t i, __m256i (&out)[2]) const noexcept { Format::two_blocks(p, i, out); }
};

template <typename Format, typename Codes>
[[gnu::always_inline]] inline Sums sum_products(const Codes& codes, const int8_t* q) noexcept {
  Sums sums;
  __m256i before[2];  // the products of the last i
#pragma GCC unroll 4
  for (uint32_t i = 0; i < 4; ++i) {
    __m256i c[2];
    codes(i, c);
    const __m256i first = products<Format>(c[0], q + 2 * i * kUnitBytes<Format>);
    const __m256i second = products<Format>(c[1], q + (2 * i + 1) * kUnitBytes<Format>);
    if constexpr (halves_of<Format>() == Halves::kPacked) {
      sums.v[i] = add_halves<16>(first, second);
    } else if constexpr (halves_of<Format>() == Halves::kApart) {
      if (i % 2 == 0) {
        before[0] = first;
        before[1] = second;
      } else if constexpr (order_of<Format>() == Order::kOcts) {  // blocks 0 to 3, then 4 to 7
        sums.v[i - 1] = _mm256_add_epi16(before[0], first);
        sums.v[i] = _mm256_add_epi16(before[1], second);
      } else {
        sums.v[i / 2] = add_halves<16>(before[0], first);
        sums.v[2 + i / 2] = add_halves<16>(before[1], second);
      }
    } else if constexpr (int64_t{4} * Format::kMostCode * 127 <= INT16_MAX) {
      sums.v[i] = _mm256_add_epi16(first, second);
    } else {
      sums.v[i] = _mm256_add_epi32(add_words(first), add_words(second));
    }
  }
  return sums;
}

// Lanes of two int16, of eight elements each: they are exact when less kOffset, even if they are not before.
template <typename Format>
inline void fold_halves(const Sums& sums, __m256i (&out)[2]) noexcept {
  constexpr int kMost =
      Format::kMostCode - Format::kOffset > Format::kOffset ? Format::kMostCode - Format::kOffset : Format::kOffset;
  static_assert(8 * kMost * 127 <= INT16_MAX);
  out[0] = add_neighbours<16>(sums.v[0], sums.v[1]);
  out[1] = add_neighbours<16>(sums.v[2], sums.v[3]);
}

template <typename Format, typename Scales>
[[gnu::always_inline]] inline __m256i fold_group(const Sums& sums, const int8_t* q, const Scales& s,
                                                 const ActGroup& a) noexcept {
  if constexpr (halves_of<Format>() == Halves::kPacked) {
    static_assert(16 * Format::kOffset * 127 <= INT16_MAX && (Format::kOffset & (Format::kOffset - 1)) == 0);
    const __m256i low = add_words(add_neighbours<16>(sums.v[0], sums.v[1]));
    const __m256i high = add_words(add_neighbours<16>(sums.v[2], sums.v[3]));
    const __m256i offset = _mm256_slli_epi16(load_256(a.sum16), __builtin_ctz(Format::kOffset));
    return _mm256_madd_epi16(_mm256_sub_epi16(_mm256_packs_epi32(low, high), offset), s.sc);
  } else if constexpr (halves_of<Format>() == Halves::kApart) {
    __m256i halves[2];
    fold_halves<Format>(sums, halves);
    if constexpr (has_start<Format>()) {
      halves[0] = _mm256_sub_epi16(halves[0], load_256(q + 8 * kUnitBytes<Format>));
      halves[1] = _mm256_sub_epi16(halves[1], load_256(q + 8 * kUnitBytes<Format> + 32));
    }
    return _mm256_add_epi32(_mm256_madd_epi16(halves[0], s.sc), _mm256_madd_epi16(halves[1], s.sc1));
  } else {
    constexpr int64_t kMost = int64_t{4} * Format::kMostCode * 127;
    __m256i isum;
    if constexpr (kMost <= INT16_MAX) {
      isum = fold_words<kMost>(sums.v);
    } else {
      isum = fold_dwords(sums.v);
    }
    if constexpr (Format::kOffset != 0) isum = _mm256_sub_epi32(isum, offset_times<Format>(load_256(a.sum32)));
    if constexpr (Format::kScale == SubScale::kBlock) isum = _mm256_mullo_epi32(isum, s.sc);
    return isum;
  }
}

// The activations of a group in the order of two_blocks().
template <typename Format>
inline void order_group(const int8_t* q, int8_t* to) noexcept {
  order_q<Format>(q, to);
  if constexpr (has_start<Format>()) {
    const auto offsets = [](uint32_t, __m256i(&out)[2]) { out[0] = out[1] = _mm256_set1_epi8(Format::kOffset); };
    __m256i halves[2];
    fold_halves<Format>(sum_products<Format>(offsets, to), halves);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 8 * kUnitBytes<Format>), halves[0]);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 8 * kUnitBytes<Format> + 32), halves[1]);
  }
}

// The lanes after one more group.
template <typename Format, typename Scales>
[[gnu::always_inline]] inline __m256 join_sums(__m256 acc, const Sums& sums, const int8_t* q, const Scales& s,
                                               const ActGroup& a) noexcept {
  const __m256 d_a = _mm256_loadu_ps(a.d);
  acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(fold_group<Format>(sums, q, s, a)), _mm256_mul_ps(s.d, d_a), acc);
  if constexpr (Format::kMin != Min::kNone) {
    __m256i msum;
    if constexpr (Format::kMin == Min::kFloat) {
      msum = load_256(a.sum32);
    } else if constexpr (Format::kMin == Min::kBlock) {
      msum = _mm256_madd_epi16(s.mn, load_256(a.sum32));  // both fit their lower words
    } else {
      msum = _mm256_madd_epi16(s.mn, load_256(a.sum16));
    }
    const __m256 scale = _mm256_mul_ps(s.dm, d_a);
    if constexpr (Format::kMin == Min::kFloat) {
      acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(msum), scale, acc);
    } else {
      acc = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(msum), scale, acc);
    }
  }
  return acc;
}

// The same of the group at p. Scales come after the products, but before them for Q2_K and Q3_K: as it was measured, 2
// to 9 %.
template <typename Format>
[[gnu::always_inline]] inline __m256 join_group(__m256 acc, const uint8_t* p, const int8_t* q,
                                                const ActGroup& a) noexcept {
  if constexpr (Format::kScale == SubScale::kHalf && !has_start<Format>()) {
    const auto s = Format::scales(p);
    return join_sums<Format>(acc, sum_products<Format>(CodesAt<Format>{p}, q), q, s, a);
  } else {
    const Sums sums = sum_products<Format>(CodesAt<Format>{p}, q);
    return join_sums<Format>(acc, sums, q, Format::scales(p), a);
  }
}

}  // namespace
}  // namespace outrider::kernels
