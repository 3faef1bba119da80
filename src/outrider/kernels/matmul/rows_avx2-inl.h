// SPDX-License-Identifier: Apache-2.0
// The AVX2 row kernel of every quantised format: a group of eight blocks at a time into the eight lanes, the weights
// unpacked once for up to kTokenTile tokens. Internal linkage.
#pragma once

#include "outrider/kernels/matmul/block_sums_avx2-inl.h"
#include "outrider/kernels/vec/float_law_vec-inl.h"

namespace outrider::kernels {
namespace {

constexpr uint32_t kTokenTile = 4;
constexpr uint32_t kMostRowGroups = 64;  // rows of more elements than 64 * 256 go by tiles

// One token's activations, q in the order of two_blocks(), with the n_left < 8 blocks that end a row.
struct RowActs {
  ActGroup act;
  ActTail tail;
  alignas(64) int8_t q[256 * kMostRowGroups];

  void fill(const ActGroup& from, uint32_t n_groups, uint32_t n_left) noexcept {
    act = from;
    for (uint32_t g = 0; g < n_groups; ++g) order_q(from.q + 256 * g, q + 256 * g);
    if (n_left == 0) return;
    ActTail plain;
    plain.fill(act_at(from, n_groups), n_left);
    tail = plain;
    order_q(plain.q, tail.q);
  }
};

// The codes of a group: unpacked where they are used, for one token, or kept for several.
template <typename Format>
struct CodesAt {
  const uint8_t* p;
  void operator()(uint32_t i, __m256i (&out)[2]) const noexcept { Format::two_blocks(p, i, out); }
};

struct CodesKept {
  __m256i codes[4][2];

  template <typename Format>
  static CodesKept of(const uint8_t* p) noexcept {
    CodesKept kept;
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; ++i) Format::two_blocks(p, i, kept.codes[i]);
    return kept;
  }
  void operator()(uint32_t i, __m256i (&out)[2]) const noexcept {
    out[0] = codes[i][0];
    out[1] = codes[i][1];
  }
};

template <typename Format>
struct PaddedGroup {
  uint8_t bytes[Format::kBytes] = {};
  PaddedGroup(const uint8_t* p, uint32_t n_left) noexcept { __builtin_memcpy(bytes, p, Format::kBytes / 8 * n_left); }
};

// The lanes of one row for one token.
template <typename Format>
[[gnu::always_inline]] inline __m256 row_lanes(const uint8_t* p, uint32_t n_groups, uint32_t n_left,
                                               const RowActs& acts) noexcept {
  __m256 acc = _mm256_setzero_ps();
  for (uint32_t g = 0; g < n_groups; ++g, p += Format::kBytes) {
    prefetch_group<Format::kBytes>(p + kPrefetchBytes);
    acc = join_sums<Format>(acc, CodesAt<Format>{p}, acts.q + 256 * g, Format::scales(p), act_at(acts.act, g));
  }
  if (n_left != 0) {
    const PaddedGroup<Format> rest(p, n_left);
    const __m256 joined =
        join_sums<Format>(acc, CodesAt<Format>{rest.bytes}, acts.tail.q, Format::scales(rest.bytes), acts.tail.group());
    acc = keep_lanes(acc, joined, n_left);
  }
  return acc;
}

// All rows of the call for one token; eight rows fold their lanes together.
template <typename Format>
void run_rows_of_one(const MatmulArgs& args) noexcept {
  const uint32_t n_groups = args.weights.k / 256;
  const uint32_t n_left = Format::kBlocksApart ? args.weights.k / 32 % 8 : 0;
  RowActs acts;
  acts.fill(act_of(args, 0), n_groups, n_left);
  const uint64_t row_bytes = args.weights.row_bytes;
  const auto* p = reinterpret_cast<const uint8_t*>(args.weights.data) + args.row_begin * row_bytes;
  for (uint32_t r = args.row_begin; r < args.row_end; r += 8) {
    const uint32_t n_rows = args.row_end - r < 8 ? args.row_end - r : 8;
    __m256 lanes[8];
    for (uint32_t i = 0; i < n_rows; ++i, p += row_bytes) lanes[i] = row_lanes<Format>(p, n_groups, n_left, acts);
    if (n_rows == 8) {
      _mm256_storeu_ps(args.out + r, fold_8_rows(lanes));
    } else {
      for (uint32_t i = 0; i < n_rows; ++i) args.out[r + i] = fold_lanes(lanes[i]);
    }
  }
}

// All rows of the call for tokens 0 to n - 1, n <= kTokenTile.
template <typename Format>
void run_rows_of_few(const MatmulArgs& args, uint32_t n) noexcept {
  const uint32_t n_groups = args.weights.k / 256;
  const uint32_t n_left = Format::kBlocksApart ? args.weights.k / 32 % 8 : 0;
  RowActs acts[kTokenTile];
  for (uint32_t t = 0; t < n; ++t) acts[t].fill(act_of(args, t), n_groups, n_left);
  for (uint32_t r = args.row_begin; r < args.row_end; ++r) {
    const auto* p = reinterpret_cast<const uint8_t*>(args.weights.data) + r * args.weights.row_bytes;
    __m256 acc[kTokenTile];
    for (__m256& lanes : acc) lanes = _mm256_setzero_ps();
    for (uint32_t g = 0; g < n_groups; ++g, p += Format::kBytes) {
      prefetch_group<Format::kBytes>(p + kPrefetchBytes);
      const CodesKept codes = CodesKept::of<Format>(p);
      const GroupScales s = Format::scales(p);
      for (uint32_t t = 0; t < n; ++t) {
        acc[t] = join_sums<Format>(acc[t], codes, acts[t].q + 256 * g, s, act_at(acts[t].act, g));
      }
    }
    if (n_left != 0) {
      const PaddedGroup<Format> rest(p, n_left);
      const CodesKept codes = CodesKept::of<Format>(rest.bytes);
      const GroupScales s = Format::scales(rest.bytes);
      for (uint32_t t = 0; t < n; ++t) {
        const ActTail& tail = acts[t].tail;
        acc[t] = keep_lanes(acc[t], join_sums<Format>(acc[t], codes, tail.q, s, tail.group()), n_left);
      }
    }
    for (uint32_t t = 0; t < n; ++t) args.out[t * args.out_stride + r] = fold_lanes(acc[t]);
  }
}

// At most kTokenTile tokens, k at most kMostRowGroups groups.
template <typename Format>
void run_rows(const MatmulArgs& args) noexcept {
  if (args.n_tokens == 1) {
    run_rows_of_one<Format>(args);
  } else {
    run_rows_of_few<Format>(args, args.n_tokens);
  }
}

}  // namespace
}  // namespace outrider::kernels
