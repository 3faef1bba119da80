// SPDX-License-Identifier: Apache-2.0
// What the attention kernels share: a launch, the part of it that a block works on, and how scores become factors.
#pragma once

#include "outrider/cuda/device/functions.cuh"
#include "outrider/cuda/device/overlap.cuh"
#include "outrider/cuda/ops.h"

namespace outrider::cuda {
namespace {

using kernels::kAttentionChunk;
using kernels::KvType;

// A launch: the caller's arguments and what follows from them.
struct Params {
  AttentionArgs args;
  uint32_t k_row_bytes, v_row_bytes;  // of one head vector
  uint32_t k_stage, v_stage;          // bytes from position to position in shared memory; 0: not staged
  uint32_t first_chunk, n_chunks;     // of any row
};

// Positions [begin, end) that row `row` sees.
struct Range {
  uint32_t begin, end;
};
__device__ __forceinline__ Range visible(const AttentionArgs& args, uint32_t row) {
  const uint32_t end = args.position + row + 1;
  return {args.window != 0 && end > args.window ? end - args.window : 0, end};
}

// Turns the scores of head h into e_p by one warp; gives m and l.
template <uint32_t kHeads>
__device__ __forceinline__ float2 exponentiate(float (*e)[kHeads], uint32_t h, Range range) {
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t first = range.begin % kAttentionChunk;
  const uint32_t last = first + (range.end - range.begin);
  float m = __uint_as_float(0xFF800000U);
  for (uint32_t p = lane; p < kAttentionChunk; p += kWarp) {
    if (p >= first && p < last) m = e[p][h] > m ? e[p][h] : m;  // leaves NaN out
  }
  for (uint32_t step = 16; step >= 1; step /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, m, step);
    m = other > m ? other : m;
  }
  float l = 0;
  for (uint32_t p = lane; p < kAttentionChunk; p += kWarp) {
    if (p < first || p >= last) continue;
    const float e_p = exp_f32(__fsub_rn(e[p][h], m));
    e[p][h] = e_p;
    l = __fmaf_rn(e_p, 1.0F, l);
  }
  return make_float2(m, fold32(l));
}

// What a block works on: a chunk's positions that a row sees, query heads [head, head + n_heads), and their cache.
struct Part {
  Range range;
  uint32_t row, head, n_heads;
  const uint8_t* keys;  // of position 0
  const uint8_t* values;
};
template <uint32_t kHeads>
__device__ __forceinline__ Part part_of(const Params& p) {
  const AttentionArgs& args = p.args;
  const uint32_t chunk = p.first_chunk + blockIdx.x;
  const uint32_t group = args.n_heads / args.n_kv_heads;
  const uint32_t splits = (group + kHeads - 1) / kHeads;
  const uint32_t kv_head = blockIdx.y / splits;
  Part part;
  part.row = blockIdx.z;
  part.head = kv_head * group + blockIdx.y % splits * kHeads;
  part.n_heads = min(kHeads, (kv_head + 1) * group - part.head);
  const Range all = visible(args, part.row);
  part.range = {max(all.begin, chunk * kAttentionChunk), min(all.end, (chunk + 1) * kAttentionChunk)};
  part.keys = reinterpret_cast<const uint8_t*>(args.k_cache) + static_cast<uint64_t>(kv_head) * p.k_row_bytes;
  part.values = reinterpret_cast<const uint8_t*>(args.v_cache) + static_cast<uint64_t>(kv_head) * p.v_row_bytes;
  return part;
}

// Scratch: outs (row, head, group of kMergeColumns columns, chunk, column), then pairs (row, head, chunk). What a block
// merges is one piece of memory.
constexpr uint32_t kMergeColumns = 16;
__host__ __device__ inline uint32_t column_groups(uint32_t dv) { return (dv + kMergeColumns - 1) / kMergeColumns; }
__device__ __forceinline__ uint64_t out_at(const Params& p, uint64_t row, uint32_t head, uint32_t column,
                                           uint32_t chunk) {
  const uint64_t group = (row * p.args.n_heads + head) * column_groups(p.args.dv) + column / kMergeColumns;
  return (group * p.n_chunks + chunk) * kMergeColumns + column % kMergeColumns;
}
__device__ __forceinline__ float2* pairs_of(const Params& p) {
  const AttentionArgs& args = p.args;
  return reinterpret_cast<float2*>(args.scratch + out_at(p, args.n_rows, 0, 0, 0));
}

}  // namespace
}  // namespace outrider::cuda
