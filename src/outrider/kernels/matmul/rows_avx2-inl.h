// SPDX-License-Identifier: Apache-2.0
// The AVX2 row kernel of every quantised format: a group of eight blocks at a time into the eight lanes, the weights
// unpacked once for up to kTokenTile tokens. Internal linkage.
#pragma once

#include "outrider/kernels/matmul/group_avx2-inl.h"

namespace outrider::kernels {
namespace {

constexpr uint32_t kTokenTile = 4;

// Products of 32 codes and 32 q, four to a lane: halves stay in the two 128-bit parts. maddubs adds two products in
// int16: 2 * 63 * 127 for unsigned codes, 2 * 128 * 127 = 32,512 for |int8|, so it never saturates.
template <typename Format>
inline __m256i dot_quads(__m256i codes, __m256i q) noexcept {
  const __m256i ones = _mm256_set1_epi16(1);
  if constexpr (Format::kSigned) {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(q, codes)), ones);
  } else {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(codes, q), ones);
  }
}

template <typename Format>
inline __m256 join_codes(__m256 acc, const __m256i (&codes)[8], const GroupScales& s, const ActGroup& a) noexcept {
  __m256i v[8];
#pragma GCC unroll 8
  for (int b = 0; b < 8; ++b) v[b] = dot_quads<Format>(codes[b], load_256(a.q + 32 * b));
  const __m256i low = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
  const __m256i high = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
  return join_group<Format>(acc, _mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31),
                            s, a);
}

template <typename Format>
inline void unpack_codes(const uint8_t* p, __m256i (&codes)[8]) noexcept {
#pragma GCC unroll 8
  for (uint32_t b = 0; b < 8; ++b) codes[b] = Format::codes(p, b);
}

// All rows of the call for tokens [first, first + count), count <= kMost.
template <typename Format, uint32_t kMost>
void run_tile(const MatmulArgs& args, uint32_t first, uint32_t count) noexcept {
  const uint32_t n = kMost == 1 ? 1 : count;
  const uint32_t n_groups = args.weights.k / 256;
  const uint32_t n_left = Format::kBlocksApart ? args.weights.k / 32 % 8 : 0;
  ActGroup acts[kMost];
  ActTail tails[Format::kBlocksApart ? kMost : 1];
  for (uint32_t t = 0; t < n; ++t) {
    acts[t] = act_of(args, first + t);
    if (n_left != 0) tails[t].fill(act_at(acts[t], n_groups), n_left);
  }
  for (uint32_t r = args.row_begin; r < args.row_end; ++r) {
    const auto* p = reinterpret_cast<const uint8_t*>(args.weights.data) + r * args.weights.row_bytes;
    __m256 acc[kMost];
    for (__m256& lanes : acc) lanes = _mm256_setzero_ps();
    __m256i codes[8];
    for (uint32_t g = 0; g < n_groups; ++g, p += Format::kBytes) {
      prefetch_group<Format::kBytes>(p + kPrefetchBytes);
      unpack_codes<Format>(p, codes);
      const GroupScales s = Format::scales(p);
      for (uint32_t t = 0; t < n; ++t) acc[t] = join_codes<Format>(acc[t], codes, s, act_at(acts[t], g));
    }
    if (n_left != 0) {
      uint8_t padded[Format::kBytes] = {};
      __builtin_memcpy(padded, p, Format::kBytes / 8 * n_left);
      unpack_codes<Format>(padded, codes);
      const GroupScales s = Format::scales(padded);
      for (uint32_t t = 0; t < n; ++t) {
        acc[t] = keep_lanes(acc[t], join_codes<Format>(acc[t], codes, s, tails[t].group()), n_left);
      }
    }
    for (uint32_t t = 0; t < n; ++t) args.out[(first + t) * args.out_stride + r] = fold_lanes(acc[t]);
  }
}

template <typename Format>
void run_rows(const MatmulArgs& args) noexcept {
  for (uint32_t first = 0; first < args.n_tokens; first += kTokenTile) {
    const uint32_t n = args.n_tokens - first < kTokenTile ? args.n_tokens - first : kTokenTile;
    if (n == 1) {
      run_tile<Format, 1>(args, first, 1);
    } else {
      run_tile<Format, kTokenTile>(args, first, n);
    }
  }
}

}  // namespace
}  // namespace outrider::kernels
