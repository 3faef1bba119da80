// SPDX-License-Identifier: Apache-2.0
// The float law of matmul_law.h in AVX-512: 32 lanes in two registers. Internal linkage.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "outrider/kernels/matmul/group_avx2-inl.h"

namespace outrider::kernels {
namespace {

constexpr uint32_t kFloatTokenTile = 8;  // 16 of the 32 registers hold lanes

// How sixteen weights are stored; `mask` selects those that exist.
struct StoredF32 {
  static constexpr uint32_t kBytes = 4;
  static __m512 load(const uint8_t* p) noexcept { return _mm512_loadu_ps(p); }
  static __m512 load(const uint8_t* p, __mmask16 mask) noexcept { return _mm512_maskz_loadu_ps(mask, p); }
};
struct StoredF16 {
  static constexpr uint32_t kBytes = 2;
  static __m512 load(const uint8_t* p) noexcept { return _mm512_cvtph_ps(load_256(p)); }
  static __m512 load(const uint8_t* p, __mmask16 mask) noexcept {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p));
  }
};
struct StoredBf16 {
  static constexpr uint32_t kBytes = 2;
  static __m512 widen(__m256i v) noexcept {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
  }
  static __m512 load(const uint8_t* p) noexcept { return widen(load_256(p)); }
  static __m512 load(const uint8_t* p, __mmask16 mask) noexcept { return widen(_mm256_maskz_loadu_epi16(mask, p)); }
};

struct FloatLanes {
  __m512 v[2];
};

// 32 weights at w and as many activations of each token join the lanes.
template <typename Stored>
inline void join_32(FloatLanes* lanes, uint32_t n, const uint8_t* w, const float* const* x, uint64_t at) noexcept {
#pragma GCC unroll 2
  for (uint32_t j = 0; j < 2; ++j) {
    const __m512 weight = Stored::load(w + 16 * j * Stored::kBytes);
#pragma GCC unroll 8
    for (uint32_t t = 0; t < n; ++t) {
      lanes[t].v[j] = _mm512_fmadd_ps(weight, _mm512_loadu_ps(x[t] + at + 16 * j), lanes[t].v[j]);
    }
  }
}

// The last n_left < 32 elements: lanes from n_left on keep their bits.
template <typename Stored>
inline void join_tail(FloatLanes* lanes, uint32_t n, const uint8_t* w, const float* const* x, uint64_t at,
                      uint32_t n_left) noexcept {
  const uint32_t bits = (1U << n_left) - 1;
  for (uint32_t j = 0; j < 2; ++j) {
    const auto mask = static_cast<__mmask16>(bits >> (16 * j));
    const __m512 weight = Stored::load(w + 16 * j * Stored::kBytes, mask);
    for (uint32_t t = 0; t < n; ++t) {
      const __m512 value = _mm512_maskz_loadu_ps(mask, x[t] + at + 16 * j);
      lanes[t].v[j] = _mm512_mask3_fmadd_ps(weight, value, lanes[t].v[j], mask);
    }
  }
}

inline float fold_32(const FloatLanes& lanes) noexcept {
  const __m512 sixteen = _mm512_add_ps(lanes.v[0], lanes.v[1]);
  return fold_lanes(_mm256_add_ps(_mm512_castps512_ps256(sixteen), _mm512_extractf32x8_ps(sixteen, 1)));
}

inline const float* x_of(const MatmulArgs& args, uint32_t i) noexcept {
  return args.x.f32 + (args.token_rows != nullptr ? args.token_rows[i] : i) * args.x.f32_stride;
}

template <typename Stored, uint32_t kTokens>
inline void float_tile(const MatmulArgs& args, uint32_t first) noexcept {
  const float* x[kTokens];
  for (uint32_t t = 0; t < kTokens; ++t) x[t] = x_of(args, first + t);
  const uint32_t whole = args.weights.k / 32 * 32;
  for (uint32_t r = args.row_begin; r < args.row_end; ++r) {
    const auto* w = reinterpret_cast<const uint8_t*>(args.weights.data) + r * args.weights.row_bytes;
    FloatLanes lanes[kTokens];
    for (FloatLanes& l : lanes) l.v[0] = l.v[1] = _mm512_setzero_ps();
    for (uint32_t i = 0; i < whole; i += 32, w += 32 * Stored::kBytes) join_32<Stored>(lanes, kTokens, w, x, i);
    if (whole != args.weights.k) join_tail<Stored>(lanes, kTokens, w, x, whole, args.weights.k - whole);
    for (uint32_t t = 0; t < kTokens; ++t) args.out[(first + t) * args.out_stride + r] = fold_32(lanes[t]);
  }
}

template <typename Stored>
void run_float(const MatmulArgs& args) noexcept {
  uint32_t first = 0;
  for (; args.n_tokens - first >= kFloatTokenTile; first += kFloatTokenTile) {
    float_tile<Stored, kFloatTokenTile>(args, first);
  }
  for (; args.n_tokens - first >= 3; first += 3) float_tile<Stored, 3>(args, first);
  for (; first < args.n_tokens; ++first) float_tile<Stored, 1>(args, first);
}

}  // namespace
}  // namespace outrider::kernels
