// SPDX-License-Identifier: Apache-2.0
// The float law of matmul_law.h over the formats of decoded_formats_avx2-inl.h in AVX-512. One token goes by
// decoded_rows_avx2-inl.h; more tokens four rows at a time, each block decoded once for all of them. Internal linkage.
#pragma once

#include "outrider/kernels/matmul/decoded_rows_avx2-inl.h"
#include "outrider/kernels/matmul/float_avx512-inl.h"

namespace outrider::kernels {
namespace {

constexpr uint32_t kDecodedRows = 4;
constexpr uint32_t kDecodedTokens = 64;
constexpr uint32_t kDecodedElems = 1024;  // of a row at a time

struct DecodedTile {
  alignas(64) float w[kDecodedRows][kDecodedElems];
  FloatLanes lanes[kDecodedTokens][kDecodedRows];
  const float* x[kDecodedTokens];
};

// n_elems elements of the rows join the lanes of kTokens tokens from `first` on.
template <uint32_t kTokens>
inline void join_decoded(DecodedTile& tile, uint32_t first, uint32_t n_elems, uint64_t at) noexcept {
#pragma GCC unroll 2
  for (uint32_t h = 0; h < 2; ++h) {
    __m512 sum[kTokens][kDecodedRows];
#pragma GCC unroll 4
    for (uint32_t t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
      for (uint32_t r = 0; r < kDecodedRows; ++r) sum[t][r] = tile.lanes[first + t][r].v[h];
    }
    for (uint32_t i = 16 * h; i < n_elems; i += 32) {
      __m512 w[kDecodedRows];
#pragma GCC unroll 4
      for (uint32_t r = 0; r < kDecodedRows; ++r) w[r] = _mm512_load_ps(tile.w[r] + i);
#pragma GCC unroll 4
      for (uint32_t t = 0; t < kTokens; ++t) {
        const __m512 x = _mm512_loadu_ps(tile.x[first + t] + at + i);
#pragma GCC unroll 4
        for (uint32_t r = 0; r < kDecodedRows; ++r) sum[t][r] = _mm512_fmadd_ps(w[r], x, sum[t][r]);
      }
    }
#pragma GCC unroll 4
    for (uint32_t t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
      for (uint32_t r = 0; r < kDecodedRows; ++r) tile.lanes[first + t][r].v[h] = sum[t][r];
    }
  }
}

// Four rows for n <= kDecodedTokens tokens, whose x the tile holds.
template <typename Format>
inline void decoded_tile(const MatmulArgs& args, DecodedTile& tile, uint32_t row, uint32_t first, uint32_t n) noexcept {
  for (uint32_t t = 0; t < n; ++t) {
    for (FloatLanes& l : tile.lanes[t]) l.v[0] = l.v[1] = _mm512_setzero_ps();
  }
  const uint32_t k = args.weights.k;
  for (uint32_t at = 0; at < k; at += kDecodedElems) {
    const uint32_t n_elems = k - at < kDecodedElems ? k - at : kDecodedElems;
    for (uint32_t r = 0; r < kDecodedRows; ++r) {
      decode<Format>(row_of(args, row + r), at, n_elems, tile.w[r]);
    }
    uint32_t t = 0;
    for (; t + 4 <= n; t += 4) join_decoded<4>(tile, t, n_elems, at);
    for (; t + 2 <= n; t += 2) join_decoded<2>(tile, t, n_elems, at);
    if (t < n) join_decoded<1>(tile, t, n_elems, at);
  }
  const uint32_t n_rows = args.row_end - row < kDecodedRows ? args.row_end - row : kDecodedRows;
  for (uint32_t t = 0; t < n; ++t) {
    for (uint32_t r = 0; r < n_rows; ++r) args.out[(first + t) * args.out_stride + row + r] = fold_32(tile.lanes[t][r]);
  }
}

template <typename Format>
void run_decoded(const MatmulArgs& args) noexcept {
  if (args.n_tokens == 1) {
    run_decoded_rows<Format>(args);
    return;
  }
  DecodedTile tile;
  for (uint32_t first = 0; first < args.n_tokens; first += kDecodedTokens) {
    const uint32_t n = args.n_tokens - first < kDecodedTokens ? args.n_tokens - first : kDecodedTokens;
    for (uint32_t t = 0; t < n; ++t) tile.x[t] = token_of(args, first + t);
    for (uint32_t row = args.row_begin; row < args.row_end; row += kDecodedRows) {
      decoded_tile<Format>(args, tile, row, first, n);
    }
  }
}

}  // namespace
}  // namespace outrider::kernels
