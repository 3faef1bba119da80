// SPDX-License-Identifier: Apache-2.0
// The float law of matmul_law.h for one token over the formats of decoded_formats_avx2-inl.h, in 256-bit code, which
// AVX2 and AVX-512 share: on Zen 4 loads bound it, and 512-bit ones would only have to be put together from parts.
// Internal linkage.
#pragma once

#include "outrider/kernels/matmul/decoded_formats_avx2-inl.h"

namespace outrider::kernels {
namespace {

inline const float* token_of(const MatmulArgs& args, uint32_t i) noexcept {
  return args.x.f32 + (args.token_rows != nullptr ? args.token_rows[i] : i) * args.x.f32_stride;
}

// Rows past the last one repeat it.
inline const uint8_t* row_of(const MatmulArgs& args, uint32_t r) noexcept {
  const uint32_t last = args.row_end - 1;
  return reinterpret_cast<const uint8_t*>(args.weights.data) + (r < last ? r : last) * args.weights.row_bytes;
}

constexpr uint32_t kStepRows = 2;  // in step: they share activations, and eight chains of fma hide their latency

template <typename Format>
inline void decoded_rows(const MatmulArgs& args, const float* x, uint32_t row) noexcept {
  const uint8_t* p[kStepRows];
  __m256 lanes[kStepRows][4];
  for (uint32_t r = 0; r < kStepRows; ++r) {
    p[r] = row_of(args, row + r);
    for (__m256& lane : lanes[r]) lane = _mm256_setzero_ps();
  }
  for (uint32_t begin = 0; begin < args.weights.k; begin += Format::kElems) {
    Format blocks[kStepRows];
#pragma GCC unroll 2
    for (uint32_t r = 0; r < kStepRows; ++r) {
      prefetch_group<Format::kBytes>(p[r] + kPrefetchBytes);
      blocks[r].load(p[r]);
      p[r] += Format::kBytes;
    }
#pragma GCC unroll 32
    for (uint32_t g = 0; g < Format::kElems / 8; ++g) {
      __m256 x_8 = _mm256_loadu_ps(x + begin + 8 * g);
      asm("" : "+v"(x_8));  // one load for both rows
#pragma GCC unroll 2
      for (uint32_t r = 0; r < kStepRows; ++r) {
        lanes[r][g % 4] = _mm256_fmadd_ps(blocks[r].weights(g), x_8, lanes[r][g % 4]);
      }
    }
  }
  for (uint32_t r = 0; r < kStepRows && row + r < args.row_end; ++r) {
    const __m256(&l)[4] = lanes[r];
    args.out[row + r] = fold_lanes(_mm256_add_ps(_mm256_add_ps(l[0], l[2]), _mm256_add_ps(l[1], l[3])));
  }
}

template <typename Format>
void run_decoded_rows(const MatmulArgs& args) noexcept {
  const float* x = token_of(args, 0);
  for (uint32_t row = args.row_begin; row < args.row_end; row += kStepRows) decoded_rows<Format>(args, x, row);
}

// `n_elems` elements of a row from element `at` on.
template <typename Format>
inline void decode(const uint8_t* row, uint32_t at, uint32_t n_elems, float* out) noexcept {
  const uint8_t* p = row + at / Format::kElems * Format::kBytes;
  for (uint32_t begin = 0; begin < n_elems; begin += Format::kElems, p += Format::kBytes) {
    Format block;
    block.load(p);
#pragma GCC unroll 32
    for (uint32_t g = 0; g < Format::kElems / 8; ++g) _mm256_store_ps(out + begin + 8 * g, block.weights(g));
  }
}

}  // namespace
}  // namespace outrider::kernels
