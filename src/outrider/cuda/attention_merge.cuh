// SPDX-License-Identifier: Apache-2.0
// Merges the chunks of a head in rising order.
#pragma once

#include "outrider/cuda/attention_parts.cuh"
#include "outrider/cuda/device/async_copy.cuh"

namespace outrider::cuda {
namespace {

constexpr uint32_t kMergeThreads = 256;  // make the steps of as many chunks at once, and fetch their outs
constexpr uint32_t kMergeColumns = 32;   // of one (head, row) a block, merged by its first warp
constexpr uint32_t kMergeWarps = kMergeThreads / kWarp;

// What merging chunks needs: the factor of what came before, the factor of the chunk and its l; and for each warp of
// chunks a bit where the former is 1, as it is while the maximum stays.
struct MergeSteps {
  float old_factor[kMergeThreads];
  float2 factor_and_l[kMergeThreads];
  uint32_t is_kept[kMergeWarps];
  float warp_max[kMergeWarps];
};

// The steps of the chunks from `begin`, a thread a chunk: maxima by a scan within warps, then over warps.
__device__ __forceinline__ void make_steps(const float2* pairs, uint32_t begin, uint32_t last, float& m_total,
                                           MergeSteps& steps) {
  const float none = __uint_as_float(0xFF800000U);
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t warp = threadIdx.x / kWarp;
  const uint32_t chunk = begin + threadIdx.x;
  const float2 pair = chunk < last ? pairs[chunk] : make_float2(none, 0.0F);
  float m = pair.x;  // inclusive maximum over the chunks up to this one
  for (uint32_t step = 1; step < kWarp; step *= 2) {
    const float earlier = __shfl_up_sync(kAllLanes, m, step);
    if (lane >= step) m = earlier > m ? earlier : m;
  }
  if (lane == kWarp - 1) steps.warp_max[warp] = m;
  __syncthreads();
  float before_warp = m_total;
  for (uint32_t w = 0; w < kMergeWarps; ++w) {
    const float other = steps.warp_max[w];
    if (w < warp) before_warp = other > before_warp ? other : before_warp;
    m_total = other > m_total ? other : m_total;
  }
  float before = __shfl_up_sync(kAllLanes, m, 1);
  before = lane == 0 ? before_warp : before_warp > before ? before_warp : before;
  m = before_warp > m ? before_warp : m;
  const float old_factor = exp_f32(__fsub_rn(before, m));
  steps.old_factor[threadIdx.x] = old_factor;
  steps.factor_and_l[threadIdx.x] = make_float2(exp_f32(__fsub_rn(pair.x, m)), pair.y);
  const uint32_t is_kept = __ballot_sync(kAllLanes, old_factor == 1.0F);
  if (lane == 0) steps.is_kept[warp] = is_kept;
}

// Eight chunks of one column, read before they are needed.
constexpr uint32_t kMergeAtOnce = 8;
struct MergeBatch {
  float2 factor_and_l[kMergeAtOnce];
  float out[kMergeAtOnce];
  __device__ __forceinline__ void read(const MergeSteps& steps, const float (*outs)[kMergeColumns], uint32_t begin,
                                       uint32_t column) {
#pragma unroll
    for (uint32_t u = 0; u < kMergeAtOnce; ++u) {
      factor_and_l[u] = steps.factor_and_l[begin + u];
      out[u] = outs[begin + u][column];
    }
  }
};
struct Merged {
  float l, o;
  __device__ __forceinline__ void add(float2 factor_and_l, float out) {
    l = __fmaf_rn(factor_and_l.y, factor_and_l.x, l);
    o = __fmaf_rn(out, factor_and_l.x, o);
  }
  __device__ __forceinline__ void scale(float factor) {
    l = __fmul_rn(l, factor);
    o = __fmul_rn(o, factor);
  }
};

// Chunks [i, count) in rising order. A factor of 1 changes nothing, and leaves one instruction in the chain of each.
__device__ __forceinline__ void merge_steps(const MergeSteps& steps, const float (*outs)[kMergeColumns], uint32_t i,
                                            uint32_t count, uint32_t column, Merged& merged) {
  const auto one = [&](uint32_t at) {
    merged.scale(steps.old_factor[at]);
    merged.add(steps.factor_and_l[at], outs[at][column]);
  };
  for (; i < count && i % kMergeAtOnce != 0; ++i) one(i);
  MergeBatch next;
  if (i + kMergeAtOnce <= count) next.read(steps, outs, i, column);
  for (; i + kMergeAtOnce <= count; i += kMergeAtOnce) {
    const MergeBatch batch = next;
    if (i + 2 * kMergeAtOnce <= count) next.read(steps, outs, i + kMergeAtOnce, column);
    const bool are_kept = (~steps.is_kept[i / kWarp] >> (i % kWarp) & ((1U << kMergeAtOnce) - 1)) == 0;
#pragma unroll
    for (uint32_t u = 0; u < kMergeAtOnce; ++u) {
      if (!are_kept) merged.scale(steps.old_factor[i + u]);
      merged.add(batch.factor_and_l[u], batch.out[u]);
    }
  }
  for (; i < count; ++i) one(i);
}

// Asks for this block's columns of chunks [begin, last), at most kMergeThreads.
__device__ __forceinline__ void fetch_outs(const AttentionArgs& args, const float* outs, uint32_t begin, uint32_t last,
                                           float (*fetched)[kMergeColumns]) {
  const uint32_t first_column = blockIdx.z * kMergeColumns;
  if (args.dv % 4 == 0) {
    const uint32_t own = threadIdx.x % 8 * 4;
    for (uint32_t i = threadIdx.x / 8; i < kMergeThreads && begin + i < last; i += kMergeThreads / 8) {
      const float* from = outs + static_cast<uint64_t>(begin + i) * args.dv + first_column + own;
      if (first_column + own < args.dv) copy_async16(&fetched[i][own], from);
    }
  } else {
    const uint32_t own = threadIdx.x % kWarp;
    for (uint32_t i = threadIdx.x / kWarp; i < kMergeThreads && begin + i < last; i += kMergeWarps) {
      const float* from = outs + static_cast<uint64_t>(begin + i) * args.dv + first_column + own;
      if (first_column + own < args.dv) copy_async4(&fetched[i][own], from);
    }
  }
  commit_async();
}

// The factors of 256 chunks are made at once, while their outs are on the way; the sums then go chunk by chunk.
__global__ void __launch_bounds__(kMergeThreads) merge_kernel(const __grid_constant__ Params p) {
  __shared__ MergeSteps steps;
  __shared__ __align__(16) float outs[kMergeThreads][kMergeColumns];
  let_next_launch_start();
  wait_for_launch_before();
  const AttentionArgs& args = p.args;
  const uint32_t head = blockIdx.x;
  const uint32_t row = blockIdx.y;
  const uint32_t column = threadIdx.x % kWarp;
  const uint32_t j = blockIdx.z * kMergeColumns + column;
  const Range all = visible(args, row);
  const uint32_t first = all.begin / kAttentionChunk - p.first_chunk;
  const uint32_t last = (all.end + kAttentionChunk - 1) / kAttentionChunk - p.first_chunk;
  const uint64_t slot = (static_cast<uint64_t>(row) * args.n_heads + head) * p.n_chunks;
  float m_total = __uint_as_float(0xFF800000U);
  Merged merged{0, 0};
  for (uint32_t begin = first; begin < last; begin += kMergeThreads) {
    __syncthreads();  // the steps, maxima and outs of the round before are used up
    fetch_outs(args, args.scratch + slot * args.dv, begin, last, outs);
    make_steps(pairs_of(p) + slot, begin, last, m_total, steps);
    wait_async<0>();
    __syncthreads();
    if (threadIdx.x >= kWarp) continue;
    const uint32_t count = last - begin < kMergeThreads ? last - begin : kMergeThreads;
    const bool is_first = begin == first;  // nothing to merge with yet
    if (is_first) merged = {steps.factor_and_l[0].y, outs[0][column]};
    merge_steps(steps, outs, is_first ? 1 : 0, count, column, merged);
  }
  if (threadIdx.x >= kWarp) return;
  if (args.sink != nullptr) {
    const float sink = args.sink[head];
    const float m = sink > m_total ? sink : m_total;
    const float old_factor = exp_f32(__fsub_rn(m_total, m));
    merged.l = __fmaf_rn(merged.l, old_factor, exp_f32(__fsub_rn(sink, m)));
    merged.o = __fmul_rn(merged.o, old_factor);
  }
  if (j < args.dv)
    args.out[(static_cast<uint64_t>(row) * args.n_heads + head) * args.dv + j] = __fdiv_rn(merged.o, merged.l);
}

}  // namespace
}  // namespace outrider::cuda
