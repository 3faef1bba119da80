// SPDX-License-Identifier: Apache-2.0
// Short rows, as small models have them: of one, two or four blocks of 32 elements (down projections of experts). The
// eight blocks of a group are those of 8, 4 or 2 rows that follow each other in memory, so no group has a block too
// few, and eight rows fold their lanes together. Internal linkage.
#pragma once

#include "outrider/kernels/matmul/rows_avx2-inl.h"

namespace outrider::kernels {
namespace {

constexpr uint32_t kStepRows = 8;

// One token's activations as often as a group has rows, q in the order of two_blocks().
template <typename Format>
struct ShortActs {
  alignas(64) int8_t q[kGroupBytes<Format>];
  alignas(32) float d[8];
  alignas(32) int32_t sum32[8];

  void fill(const ActGroup& from, uint32_t n_blocks) noexcept {
    alignas(64) int8_t plain[256];
    for (uint32_t b = 0; b < 8; b += n_blocks) {
      __builtin_memcpy(plain + 32 * b, from.q, 32 * n_blocks);
      __builtin_memcpy(d + b, from.d, 4 * n_blocks);
      __builtin_memcpy(sum32 + b, from.sum32, 4 * n_blocks);
    }
    order_group<Format>(plain, q);
  }
  ActGroup group() const noexcept { return {q, d, sum32, nullptr}; }
};

// The outputs of eight rows: v has their lanes, row by row, kBlocks of each. Lanes without a block are +0 in the law;
// adding those changes nothing, as no lane is -0: it began as +0, and an integer times a subnormal is never rounded to
// 0.
template <uint32_t kBlocks>
inline __m256 fold_short(const __m256 (&v)[kBlocks]) noexcept {
  if constexpr (kBlocks == 1) {
    return v[0];
  } else if constexpr (kBlocks == 2) {
    const __m256 sums = _mm256_hadd_ps(v[0], v[1]);  // rows 0, 1, 4, 5, 2, 3, 6, 7
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(sums), 0xD8));
  } else {
    static_assert(kBlocks == 4);
    const auto two = [](__m256 a, __m256 b) {  // lanes 0 + 2 and 1 + 3 of a row of a, then of b
      return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xEE));
    };
    const __m256 sums = _mm256_hadd_ps(two(v[0], v[1]), two(v[2], v[3]));  // rows 0, 2, 4, 6, 1, 3, 5, 7
    return _mm256_permutevar8x32_ps(sums, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  }
}

// Eight rows at p times one token.
template <typename Format, uint32_t kBlocks>
inline __m256 dot_short(const uint8_t* p, const ShortActs<Format>& acts) noexcept {
  __m256 v[kBlocks];
#pragma GCC unroll 4
  for (uint32_t i = 0; i < kBlocks; ++i) {
    const uint8_t* at = p + i * Format::kBytes;
    v[i] = join_group<Format>(_mm256_setzero_ps(), at, acts.q, acts.group());
  }
  return fold_short<kBlocks>(v);
}

template <typename Format, uint32_t kBlocks>
void run_short_rows(const MatmulArgs& args) noexcept {
  prefetch_begin(args);
  constexpr uint64_t kRowBytes = kBlocks * Format::Block::kBytes;
  ShortActs<Format> acts[kTokenTile];
  for (uint32_t i = 0; i < args.n_tokens; ++i) acts[i].fill(act_of(args, i), kBlocks);
  const auto* p = reinterpret_cast<const uint8_t*>(args.weights.data) + args.row_begin * kRowBytes;
  uint32_t r = args.row_begin;
  for (; r + kStepRows <= args.row_end; r += kStepRows, p += kStepRows * kRowBytes) {
    prefetch_group<kStepRows * kRowBytes>(p + kPrefetchBytes);
    for (uint32_t i = 0; i < args.n_tokens; ++i) {
      _mm256_storeu_ps(args.out + i * args.out_stride + r, dot_short<Format, kBlocks>(p, acts[i]));
    }
  }
  if (r == args.row_end) return;
  uint8_t padded[kStepRows * kRowBytes] = {};
  __builtin_memcpy(padded, p, (args.row_end - r) * kRowBytes);
  for (uint32_t i = 0; i < args.n_tokens; ++i) {
    alignas(32) float rows[kStepRows];
    _mm256_store_ps(rows, dot_short<Format, kBlocks>(padded, acts[i]));
    __builtin_memcpy(args.out + i * args.out_stride + r, rows, (args.row_end - r) * sizeof(float));
  }
}

// At most kTokenTile tokens, k at most kMostRowGroups groups.
template <typename Format>
void run_few_tokens(const MatmulArgs& args) noexcept {
  if constexpr (Format::kBlocksApart) {
    if (has_short_rows<Format>(args.weights)) {
      switch (args.weights.k / 32) {
        case 1:
          return run_short_rows<Format, 1>(args);
        case 2:
          return run_short_rows<Format, 2>(args);
        default:
          return run_short_rows<Format, 4>(args);
      }
    }
  }
  run_rows<Format>(args);
}

}  // namespace
}  // namespace outrider::kernels
