// SPDX-License-Identifier: Apache-2.0
// The AVX-512 VNNI row kernel of every quantised format: a group of eight blocks at a time into the eight lanes.
// Internal linkage.
#pragma once

#include "outrider/kernels/matmul/group_avx2-inl.h"

namespace outrider::kernels {
namespace {

// A format of group_avx2-inl.h with, besides,
//   pair(p, j)   the 64 codes of blocks 2 * j and 2 * j + 1 as unsigned bytes: int8 codes get kOffset = 128 added
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

// Per 128-bit part: (sum of a, sum of b) of the four int32 each, twice: a, b, a, b in pairs of partial sums.
inline __m512i add_pairs(__m512i a, __m512i b) noexcept {
  return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}

template <typename Format>
inline __m256 join_pairs(__m256 acc, const __m512i (&codes)[4], const GroupScales& s, const ActGroup& a) noexcept {
  __m512i v[4];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    v[j] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), codes[j], _mm512_loadu_si512(a.q + 64 * j));
  }
  const __m512i low = add_pairs(v[0], v[1]);
  const __m512i high = add_pairs(v[2], v[3]);
  // Parts: first half of the even blocks, second half of them, first half of the odd blocks, second half.
  const __m512i sums = _mm512_add_epi32(_mm512_unpacklo_epi64(low, high), _mm512_unpackhi_epi64(low, high));
  const __m512i order = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
  const __m512i dots = _mm512_permutexvar_epi32(order, sums);
  return join_group<Format>(acc, _mm512_castsi512_si256(dots), _mm512_extracti64x4_epi64(dots, 1), s, a);
}

template <typename Format>
inline void unpack_pairs(const uint8_t* p, __m512i (&codes)[4]) noexcept {
#pragma GCC unroll 4
  for (uint32_t j = 0; j < 4; ++j) codes[j] = Format::pair(p, j);
}

// One row times one token; `tail` holds the last n_left < 8 blocks of the token.
template <typename Format>
inline float dot_token(const uint8_t* p, uint32_t n_groups, const ActGroup& act, uint32_t n_left,
                       const ActTail& tail) noexcept {
  __m256 acc = _mm256_setzero_ps();
  __m512i codes[4];
  for (uint32_t g = 0; g < n_groups; ++g, p += Format::kBytes) {
    prefetch_group<Format::kBytes>(p + kPrefetchBytes);
    unpack_pairs<Format>(p, codes);
    acc = join_pairs<Format>(acc, codes, Format::scales(p), act_at(act, g));
  }
  if (n_left != 0) {
    uint8_t padded[Format::kBytes] = {};
    __builtin_memcpy(padded, p, Format::kBytes / 8 * n_left);
    unpack_pairs<Format>(padded, codes);
    acc = keep_lanes(acc, join_pairs<Format>(acc, codes, Format::scales(padded), tail.group()), n_left);
  }
  return fold_lanes(acc);
}

// All rows of the call for at most kMostTokens tokens.
template <typename Format, uint32_t kMostTokens>
void run_rows(const MatmulArgs& args) noexcept {
  const uint32_t n_groups = args.weights.k / 256;
  const uint32_t n_left = Format::kBlocksApart ? args.weights.k / 32 % 8 : 0;
  ActGroup acts[kMostTokens];
  ActTail tails[kMostTokens];
  for (uint32_t i = 0; i < args.n_tokens; ++i) {
    acts[i] = act_of(args, i);
    if (n_left != 0) tails[i].fill(act_at(acts[i], n_groups), n_left);
  }
  for (uint32_t r = args.row_begin; r < args.row_end; ++r) {
    const auto* p = reinterpret_cast<const uint8_t*>(args.weights.data) + r * args.weights.row_bytes;
    for (uint32_t i = 0; i < args.n_tokens; ++i) {
      args.out[i * args.out_stride + r] = dot_token<Format>(p, n_groups, acts[i], n_left, tails[i]);
    }
  }
}

// Pieces of nibbles (tile_avx512-inl.h) of formats whose piece is one block.
struct NibbleBlocks {
  static constexpr uint32_t low_column(uint32_t piece) noexcept { return 8 * piece; }
  static constexpr uint32_t high_column(uint32_t piece) noexcept { return 8 * piece + 4; }
};

}  // namespace
}  // namespace outrider::kernels
