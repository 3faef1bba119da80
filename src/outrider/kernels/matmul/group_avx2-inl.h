// SPDX-License-Identifier: Apache-2.0
// A group is eight 32-element blocks of a row, one for each lane of matmul_law.h. This file has what AVX2 and AVX-512
// share of it: the description of a format, and the step from block sums to lanes. Internal linkage throughout.
//
// A format is a struct with
//   kBytes             bytes of a group          kBlocksApart   true: 8 separate blocks, rows may end inside a group
//   kScale, kMin       see below                 kSigned        codes are int8, else uint8
//   kMostCode          the largest |code|        kOffset        to be subtracted from codes (0 when kSigned)
//   codes(p, b)        the 32 codes of block b of the group at p, in element order
//   scales(p)          GroupScales
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "outrider/kernels/matmul/matmul_law.h"
#include "outrider/kernels/matmul/matmul_variants.h"

namespace outrider::kernels {
namespace {

enum class SubScale { kNone, kBlock, kHalf };
enum class Min { kNone, kFloat, kBlock, kHalf };

struct GroupScales {
  __m256 d;                             // d_w of each block
  __m256 dm = _mm256_setzero_ps();      // d_m of each block, when there are mins
  __m256i sc = _mm256_setzero_si256();  // kBlock: int32 of each block; kHalf: a pair of int16 of each block
  __m256i mn = _mm256_setzero_si256();  // likewise
};

// One token's activations from some block on.
struct ActGroup {
  const int8_t* q;
  const float* d;
  const int32_t* sum32;
  const int16_t* sum16;
};

inline ActGroup act_of(const MatmulArgs& args, uint32_t i) noexcept {
  const uint64_t token = args.token_rows != nullptr ? args.token_rows[i] : i;
  const uint64_t blocks = token * (args.weights.k / 32);
  return {args.x.q + 32 * blocks, args.x.d + blocks, args.x.sum32 + blocks, args.x.sum16 + 2 * blocks};
}

inline ActGroup act_at(const ActGroup& act, uint64_t group) noexcept {
  return {act.q + 256 * group, act.d + 8 * group, act.sum32 + 8 * group, act.sum16 + 16 * group};
}

// The last n < 8 blocks of a row, filled up with zeros so that whole groups can be read.
struct ActTail {
  alignas(64) int8_t q[256];
  float d[8];
  int32_t sum32[8];
  int16_t sum16[16];

  void fill(const ActGroup& from, uint32_t n) noexcept {
    *this = {};
    __builtin_memcpy(q, from.q, 32 * n);
    __builtin_memcpy(d, from.d, 4 * n);
    __builtin_memcpy(sum32, from.sum32, 4 * n);
    __builtin_memcpy(sum16, from.sum16, 4 * n);
  }
  ActGroup group() const noexcept { return {q, d, sum32, sum16}; }
};

inline __m256i load_256(const void* p) noexcept { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline __m128i load_128(const void* p) noexcept { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }

// How far ahead of the row kernels weights are asked for, into the second cache: the first has too few lines under way
// to keep the memory busy, and its own prefetcher takes them from the second in time. Two threads on Zen 4, GB/s from
// memory of Q8_0, Q4_K, Q6_K: 44, 40, 44; 12 KiB ahead 43, 40, 47 but less while the memory is shared; 4 KiB ahead 33,
// 32, 34; into the first cache 4 KiB ahead 36, 37, 41. On Zen 3 4 to 16 KiB differ by less than pairs of runs do. Past
// the end of the weights it does no harm.
constexpr uint32_t kPrefetchBytes = 8192;

// Always inline: GCC takes a function that only prefetches for one without effect, and drops calls of it.
template <uint32_t kBytes>
[[gnu::always_inline]] inline void prefetch_group(const uint8_t* p) noexcept {
#pragma GCC unroll 20
  for (uint32_t at = 0; at < kBytes; at += 64) _mm_prefetch(p + at, _MM_HINT_T1);
}

// The rows of a call up to there: nobody has asked for them when they do not follow those of the call before.
inline void prefetch_begin(const MatmulArgs& args) noexcept {
  const auto* p = reinterpret_cast<const uint8_t*>(args.weights.data) + args.row_begin * args.weights.row_bytes;
  const uint64_t bytes = (args.row_end - args.row_begin) * args.weights.row_bytes;
  const uint8_t* end = p + (bytes < kPrefetchBytes ? bytes : kPrefetchBytes);
  for (; p < end; p += 64) _mm_prefetch(p, _MM_HINT_T1);
}

// Whether the rows of a call are of one, two or four blocks without a gap, so that several share a group.
template <typename Format>
inline bool has_short_rows(const Weights& weights) noexcept {
  if constexpr (!Format::kBlocksApart) {
    return false;
  } else {
    const uint32_t n = weights.k / 32;
    return (n == 1 || n == 2 || n == 4) && weights.row_bytes == n * Format::Block::kBytes;
  }
}

template <typename Format>
inline __m256i times_offset(__m256i v) noexcept {
  if constexpr ((Format::kOffset & (Format::kOffset - 1)) == 0) {
    return _mm256_slli_epi32(v, __builtin_ctz(Format::kOffset));
  } else {
    return _mm256_mullo_epi32(v, _mm256_set1_epi32(Format::kOffset));
  }
}

// The lanes after one more group. dot0 and dot1: for each block, the sum over its first and second half of the stored
// codes times q, before kOffset is taken off.
template <typename Format>
inline __m256 join_group(__m256 acc, __m256i dot0, __m256i dot1, const GroupScales& s, const ActGroup& a) noexcept {
  const __m256 d_a = _mm256_loadu_ps(a.d);
  __m256i isum;
  if constexpr (Format::kScale == SubScale::kHalf) {
    const __m256i sc0 = _mm256_srai_epi32(_mm256_slli_epi32(s.sc, 16), 16);
    const __m256i sc1 = _mm256_srai_epi32(s.sc, 16);
    isum = _mm256_add_epi32(_mm256_mullo_epi32(dot0, sc0), _mm256_mullo_epi32(dot1, sc1));
    if constexpr (Format::kOffset != 0) {
      isum = _mm256_sub_epi32(isum, times_offset<Format>(_mm256_madd_epi16(s.sc, load_256(a.sum16))));
    }
  } else {
    isum = _mm256_add_epi32(dot0, dot1);
    if constexpr (Format::kOffset != 0) isum = _mm256_sub_epi32(isum, times_offset<Format>(load_256(a.sum32)));
    if constexpr (Format::kScale == SubScale::kBlock) isum = _mm256_mullo_epi32(isum, s.sc);
  }
  acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(isum), _mm256_mul_ps(s.d, d_a), acc);
  if constexpr (Format::kMin != Min::kNone) {
    __m256i msum;
    if constexpr (Format::kMin == Min::kFloat) {
      msum = load_256(a.sum32);
    } else if constexpr (Format::kMin == Min::kBlock) {
      msum = _mm256_mullo_epi32(s.mn, load_256(a.sum32));
    } else {
      msum = _mm256_madd_epi16(s.mn, load_256(a.sum16));
    }
    acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(msum), _mm256_mul_ps(s.dm, d_a), acc);
  }
  return acc;
}

// 0+4, 1+5, 2+6, 3+7, then 0+2, 1+3, then 0+1.
inline float fold_lanes(__m256 acc) noexcept {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(acc), _mm256_extractf128_ps(acc, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// Lanes below n are taken from `after`, the others from `before`.
inline __m256 keep_lanes(__m256 before, __m256 after, uint32_t n) noexcept {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane);
  return _mm256_blendv_ps(before, after, _mm256_castsi256_ps(mask));
}

}  // namespace
}  // namespace outrider::kernels
