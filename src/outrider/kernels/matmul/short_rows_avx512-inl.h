// SPDX-License-Identifier: Apache-2.0
// Short rows, as small models have them. Of one, two or four blocks of 32 elements (down projections of experts): the
// sixteen blocks of two groups are those of 16, 8 or 4 rows that follow each other in memory, so no group has a block
// too few, and sixteen rows fold their lanes together. Of 512 elements: one token's activations stay in registers.
// Internal linkage.
#pragma once

#include "outrider/kernels/matmul/rows_avx512-inl.h"
#include "outrider/kernels/vec/float_law_vec-inl.h"

namespace outrider::kernels {
namespace {

constexpr uint32_t kStepRows = 16;

// One token's activations as often as two groups have rows, q in the order of Format's codes.
struct ShortActs {
  alignas(64) int8_t q[512];
  alignas(64) float d[16];
  alignas(64) int32_t sum32[16];

  template <typename Format>
  void fill(const ActGroup& from, uint32_t n_blocks) noexcept {
    for (uint32_t b = 0; b < 16; b += n_blocks) {
      __builtin_memcpy(q + 32 * b, from.q, 32 * n_blocks);
      __builtin_memcpy(d + b, from.d, 4 * n_blocks);
      __builtin_memcpy(sum32 + b, from.sum32, 4 * n_blocks);
    }
    if constexpr (RowActs<Format>::kOrdered) {
      for (uint32_t g = 0; g < 2; ++g) {
        __m512i v[4];
        order_q<Format>(q + 256 * g, v);
        for (int j = 0; j < 4; ++j) _mm512_store_si512(q + 256 * g + 64 * j, v[j]);
      }
    }
  }
};

// The outputs of sixteen rows: v has their lanes, row by row, kBlocks of each. Lanes without a block are +0 in the law;
// adding those changes nothing, as no lane is -0: it began as +0, and an integer times a subnormal is never rounded to
// 0.
template <uint32_t kBlocks>
inline __m512 fold_short(const __m512 (&v)[kBlocks]) noexcept {
  __m512 sums;
  if constexpr (kBlocks == 1) {
    sums = v[0];
  } else if constexpr (kBlocks == 2) {
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    sums = _mm512_add_ps(_mm512_permutex2var_ps(v[0], even, v[1]), _mm512_permutex2var_ps(v[0], odd, v[1]));
  } else {
    static_assert(kBlocks == 4);
    const auto two = [](__m512 a, __m512 b) {  // lanes 0 + 2 and 1 + 3 of a row of a, then of b
      return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xEE));
    };
    const __m512 low = two(v[0], v[1]);
    const __m512 high = two(v[2], v[3]);
    const __m512 by_part = _mm512_add_ps(_mm512_shuffle_ps(low, high, 0x88), _mm512_shuffle_ps(low, high, 0xDD));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    sums = _mm512_permutexvar_ps(order, by_part);
  }
  return sums;
}

// Sixteen rows at p times one token.
template <typename Format, uint32_t kBlocks>
inline __m512 dot_short(const uint8_t* p, const ShortActs& acts) noexcept {
  __m512 v[kBlocks];
#pragma GCC unroll 4
  for (uint32_t i = 0; i < kBlocks; ++i) {
    const TwoTerms terms = two_terms<Format>(p + i * 2 * Format::kBytes, ActPair{acts.q, acts.d, acts.sum32});
    v[i] = _mm512_fmadd_ps(terms.factor, terms.scale, _mm512_setzero_ps());
    if constexpr (Format::kMin != Min::kNone) v[i] = _mm512_fmadd_ps(terms.min_factor, terms.min_scale, v[i]);
  }
  return fold_short<kBlocks>(v);
}

template <typename Format, uint32_t kBlocks, uint32_t kMostTokens>
void run_short_rows(const MatmulArgs& args) noexcept {
  prefetch_begin(args);
  constexpr uint64_t kRowBytes = kBlocks * Format::Block::kBytes;
  ShortActs acts[kMostTokens];
  for (uint32_t i = 0; i < args.n_tokens; ++i) acts[i].template fill<Format>(act_of(args, i), kBlocks);
  const auto* p = reinterpret_cast<const uint8_t*>(args.weights.data) + args.row_begin * kRowBytes;
  for (uint32_t r = args.row_begin; r < args.row_end; r += kStepRows, p += kStepRows * kRowBytes) {
    const uint32_t n_rows = args.row_end - r < kStepRows ? args.row_end - r : kStepRows;
    const auto mask = static_cast<__mmask16>((1U << n_rows) - 1);
    const uint8_t* from = p;
    uint8_t padded[kStepRows * kRowBytes];
    prefetch_group<kStepRows * kRowBytes>(p + kPrefetchBytes);
    if (n_rows < kStepRows) {
      __builtin_memset(padded, 0, sizeof padded);
      __builtin_memcpy(padded, p, n_rows * kRowBytes);
      from = padded;
    }
    for (uint32_t i = 0; i < args.n_tokens; ++i) {
      _mm512_mask_storeu_ps(args.out + i * args.out_stride + r, mask, dot_short<Format, kBlocks>(from, acts[i]));
    }
  }
}

struct HeldPair {
  __m512i q[2][4];
  __m512 d;
  __m512i sum32;

  explicit HeldPair(const ActPair& from) noexcept : d(from.d16()), sum32(from.sums16()) {
    for (uint32_t g = 0; g < 2; ++g) from.q4(g, q[g]);
  }
  void q4(uint32_t g, __m512i (&out)[4]) const noexcept {
#pragma GCC unroll 4
    for (uint32_t j = 0; j < 4; ++j) out[j] = q[g][j];
  }
  __m512 d16() const noexcept { return d; }
  __m512i sums16() const noexcept { return sum32; }
};

// Rows of two groups for one token: the activations fit into registers, and eight rows fold their lanes together.
template <typename Format>
void run_rows_of_two_groups(const MatmulArgs& args) noexcept {
  prefetch_begin(args);
  RowActs<Format> acts;
  acts.fill(act_of(args, 0), 2, 0);
  const HeldPair held(ActPair{acts.q, acts.act.d, acts.act.sum32});
  const uint64_t row_bytes = args.weights.row_bytes;
  const auto* p = reinterpret_cast<const uint8_t*>(args.weights.data) + args.row_begin * row_bytes;
  const auto lanes = [&]() {
    prefetch_group<2 * Format::kBytes>(p + kPrefetchBytes);
    const __m256 v = join_groups<Format>(_mm256_setzero_ps(), p, held);
    p += row_bytes;
    return v;
  };
  uint32_t r = args.row_begin;
  for (; r + 8 <= args.row_end; r += 8) {
    __m256 rows[8];
    for (__m256& row : rows) row = lanes();
    _mm256_storeu_ps(args.out + r, fold_8_rows(rows));
  }
  for (; r < args.row_end; ++r) args.out[r] = fold_lanes(lanes());
}

// At most kMostTokens tokens.
template <typename Format, uint32_t kMostTokens>
void run_few_tokens(const MatmulArgs& args) noexcept {
  if constexpr (Format::kScale != SubScale::kHalf) {
    if (args.n_tokens == 1 && args.weights.k == 512) return run_rows_of_two_groups<Format>(args);
  }
  if constexpr (Format::kBlocksApart) {
    if (has_short_rows<Format>(args.weights)) {
      switch (args.weights.k / 32) {
        case 1:
          return run_short_rows<Format, 1, kMostTokens>(args);
        case 2:
          return run_short_rows<Format, 2, kMostTokens>(args);
        default:
          return run_short_rows<Format, 4, kMostTokens>(args);
      }
    }
  }
  run_rows<Format, kMostTokens>(args);
}

}  // namespace
}  // namespace outrider::kernels
