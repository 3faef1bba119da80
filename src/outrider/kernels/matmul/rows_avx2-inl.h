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

// One token's activations in the order of two_blocks(), with the n_left < 8 blocks that end a row.
template <typename Format>
struct RowActs {
  static constexpr Order kOrder = order_of<Format>();
  static constexpr uint32_t kOwn = kOrder == Order::kPairs ? 1 : kMostRowGroups;
  ActGroup act;
  ActTail tail;
  alignas(64) int8_t q[kGroupBytes<Format> * kMostRowGroups];  // with n_left there is one group less
  alignas(32) float d[8 * kOwn];
  alignas(32) int16_t sum16[16 * kOwn];

  void fill(const ActGroup& from, uint32_t n_groups, uint32_t n_left) noexcept {
    act = from;
    for (uint32_t g = 0; g < n_groups; ++g) order_group<Format>(from.q + 256 * g, q + kGroupBytes<Format> * g);
    if constexpr (kOrder != Order::kPairs) {
      for (uint32_t g = 0; g < n_groups; ++g) {
        const ActGroup group = act_at(from, g);
        _mm256_store_si256(reinterpret_cast<__m256i*>(d + 8 * g), to_lanes<kOrder>(load_256(group.d)));
        _mm256_store_si256(reinterpret_cast<__m256i*>(sum16 + 16 * g), to_lanes<kOrder>(load_256(group.sum16)));
      }
      act.d = d;
      act.sum16 = sum16;
    }
    if (n_left == 0) return;
    tail.fill(act_at(from, n_groups), n_left);
    order_group<Format>(tail.q, q + kGroupBytes<Format> * n_groups);
  }
  const int8_t* q_at(uint32_t g) const noexcept { return q + kGroupBytes<Format> * g; }
};

// The codes of a group, unpacked once for several tokens.
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
                                               const RowActs<Format>& acts) noexcept {
  __m256 acc = _mm256_setzero_ps();
  for (uint32_t g = 0; g < n_groups; ++g, p += Format::kBytes) {
    prefetch_group<Format::kBytes>(p + kPrefetchBytes);
    acc = join_group<Format>(acc, p, acts.q_at(g), act_at(acts.act, g));
  }
  if (n_left != 0) {
    const PaddedGroup<Format> rest(p, n_left);
    acc = keep_lanes(acc, join_group<Format>(acc, rest.bytes, acts.q_at(n_groups), acts.tail.group()), n_left);
  }
  return from_lanes<order_of<Format>()>(acc);
}

// All rows of the call for one token; eight rows fold their lanes together.
template <typename Format>
void run_rows_of_one(const MatmulArgs& args) noexcept {
  const uint32_t n_groups = args.weights.k / 256;
  const uint32_t n_left = Format::kBlocksApart ? args.weights.k / 32 % 8 : 0;
  RowActs<Format> acts;
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
  RowActs<Format> acts[kTokenTile];
  for (uint32_t t = 0; t < n; ++t) acts[t].fill(act_of(args, t), n_groups, n_left);
  for (uint32_t r = args.row_begin; r < args.row_end; ++r) {
    const auto* p = reinterpret_cast<const uint8_t*>(args.weights.data) + r * args.weights.row_bytes;
    __m256 acc[kTokenTile];
    for (__m256& lanes : acc) lanes = _mm256_setzero_ps();
    for (uint32_t g = 0; g < n_groups; ++g, p += Format::kBytes) {
      prefetch_group<Format::kBytes>(p + kPrefetchBytes);
      const CodesKept codes = CodesKept::of<Format>(p);
      const auto s = Format::scales(p);
      for (uint32_t t = 0; t < n; ++t) {
        const int8_t* q = acts[t].q_at(g);
        acc[t] = join_sums<Format>(acc[t], sum_products<Format>(codes, q), q, s, act_at(acts[t].act, g));
      }
    }
    if (n_left != 0) {
      const PaddedGroup<Format> rest(p, n_left);
      const CodesKept codes = CodesKept::of<Format>(rest.bytes);
      const auto s = Format::scales(rest.bytes);
      for (uint32_t t = 0; t < n; ++t) {
        const int8_t* q = acts[t].q_at(n_groups);
        const Sums sums = sum_products<Format>(codes, q);
        acc[t] = keep_lanes(acc[t], join_sums<Format>(acc[t], sums, q, s, acts[t].tail.group()), n_left);
      }
    }
    for (uint32_t t = 0; t < n; ++t) {
      args.out[t * args.out_stride + r] = fold_lanes(from_lanes<order_of<Format>()>(acc[t]));
    }
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
