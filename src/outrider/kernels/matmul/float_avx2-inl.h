// SPDX-License-Identifier: Apache-2.0
// The float law of matmul_law.h in AVX2: 32 lanes in four registers. Internal linkage.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "outrider/kernels/matmul/group_avx2-inl.h"

namespace outrider::kernels {
namespace {

constexpr uint32_t kFloatTokenTile = 3;  // 12 of the 16 registers hold lanes

// How eight weights are stored.
struct StoredF32 {
  static constexpr uint32_t kBytes = 4;
  static __m256 load(const uint8_t* p) noexcept { return _mm256_castsi256_ps(load_256(p)); }
};
struct StoredF16 {
  static constexpr uint32_t kBytes = 2;
  static __m256 load(const uint8_t* p) noexcept { return _mm256_cvtph_ps(load_128(p)); }
};
struct StoredBf16 {
  static constexpr uint32_t kBytes = 2;
  static __m256 load(const uint8_t* p) noexcept {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_128(p)), 16));
  }
};

struct FloatLanes {
  __m256 v[4];
};

// 32 weights at w and as many activations of each token join the lanes.
template <typename Stored>
inline void join_32(FloatLanes* lanes, uint32_t n, const uint8_t* w, const float* const* x, uint64_t at) noexcept {
#pragma GCC unroll 4
  for (uint32_t j = 0; j < 4; ++j) {
    const __m256 weight = Stored::load(w + 8 * j * Stored::kBytes);
#pragma GCC unroll 3
    for (uint32_t t = 0; t < n; ++t) {
      lanes[t].v[j] = _mm256_fmadd_ps(weight, _mm256_loadu_ps(x[t] + at + 8 * j), lanes[t].v[j]);
    }
  }
}

// The last n_left < 32 elements: lanes from n_left on keep their bits.
template <typename Stored>
inline void join_tail(FloatLanes* lanes, uint32_t n, const uint8_t* w, const float* const* x, uint64_t at,
                      uint32_t n_left) noexcept {
  uint8_t weights[32 * Stored::kBytes] = {};
  __builtin_memcpy(weights, w, n_left * Stored::kBytes);
  for (uint32_t t = 0; t < n; ++t) {
    float padded[32] = {};
    __builtin_memcpy(padded, x[t] + at, n_left * sizeof(float));
    const float* padded_x = padded;
    const FloatLanes before = lanes[t];
    join_32<Stored>(&lanes[t], 1, weights, &padded_x, 0);
    for (uint32_t j = 0; j < 4; ++j) {
      const uint32_t kept = n_left > 8 * j ? n_left - 8 * j : 0;
      lanes[t].v[j] = keep_lanes(before.v[j], lanes[t].v[j], kept);
    }
  }
}

inline float fold_32(const FloatLanes& lanes) noexcept {
  return fold_lanes(_mm256_add_ps(_mm256_add_ps(lanes.v[0], lanes.v[2]), _mm256_add_ps(lanes.v[1], lanes.v[3])));
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
    for (FloatLanes& l : lanes) l.v[0] = l.v[1] = l.v[2] = l.v[3] = _mm256_setzero_ps();
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
  for (; first < args.n_tokens; ++first) float_tile<Stored, 1>(args, first);
}

}  // namespace
}  // namespace outrider::kernels
