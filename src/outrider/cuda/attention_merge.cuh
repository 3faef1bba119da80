// SPDX-License-Identifier: Apache-2.0
// Merges the chunks of a head in rising order: 256 dependent steps for 32,768 positions, so what counts is what else
// stands between two of them. A block has kMergeColumns columns of a head and asks for all of its outs at once. While
// they come, the factors of the steps are made (the maximum before a chunk is a scan, exact in any order). Then one
// warp goes through the outs, another through the l of the chunks.
#pragma once

#include "outrider/cuda/attention_parts.cuh"
#include "outrider/cuda/device/async_copy.cuh"
#include "outrider/cuda/device/barrier.cuh"

namespace outrider::cuda {
namespace {

constexpr uint32_t kMergeThreads = 256;
constexpr uint32_t kMergeRound = kMergeThreads;  // chunks at once: a thread makes the factors of one
constexpr uint32_t kMergeWarps = kMergeThreads / kWarp;
constexpr uint32_t kMergeBatch = 16;  // chunks read before they are needed
constexpr uint32_t kMergeBatches = kMergeRound / kMergeBatch;

// What a round needs: the factors of what came before and of the chunk, the chunk's l, and of each batch whether the
// first is other than 1, which it is not while the maximum stays. A round ends with steps that change nothing, up to a
// multiple of kMergeBatch: -0 is added. Beyond those is nothing but what is read too early.
struct MergeSteps {
  alignas(16) float old_factor[kMergeRound];
  alignas(16) float factor[kMergeRound + kMergeBatch];
  alignas(16) float l[kMergeRound + kMergeBatch];
  alignas(16) float outs[kMergeRound + kMergeBatch][kMergeColumns];
  uint32_t is_scaled[kMergeBatches];
  float warp_max[kMergeWarps];
  float l_total;
  uint64_t outs_are_there;  // a barrier
};

__device__ __forceinline__ uint32_t shared_at(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
// Greater of both, the first if they are alike.
__device__ __forceinline__ float larger(float a, float b) { return b > a ? b : a; }

// Asks for this block's columns of n_chunks chunks, which lie one after the other.
__device__ __forceinline__ void fetch_outs(const float* from, uint32_t n_chunks, MergeSteps& steps) {
  const uint32_t own = threadIdx.x * 4;
  float* to = steps.outs[0];
  const uint32_t n = n_chunks * kMergeColumns;
#pragma unroll
  for (uint32_t at = 0; at < kMergeRound * kMergeColumns; at += kMergeThreads * 4) {
    if (own + at < n) copy_async16(to + own + at, from + own + at);
  }
  arrive_when_copied(shared_at(&steps.outs_are_there));
  const uint32_t padded = (n_chunks + kMergeBatch - 1) / kMergeBatch * kMergeBatch * kMergeColumns;
#pragma unroll 1
  for (uint32_t at = n + threadIdx.x; at < padded; at += kMergeThreads) to[at] = -0.0F;
}

// The step of this thread's chunk. m_total: the maximum of the rounds before, then of this one too.
__device__ __forceinline__ void make_steps(float2 pair, bool is_plain, float& m_total, MergeSteps& steps) {
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t warp = threadIdx.x / kWarp;
  float m = pair.x;  // inclusive maximum over the chunks up to this one
#pragma unroll
  for (uint32_t step = 1; step < kWarp; step *= 2) {
    const float earlier = __shfl_up_sync(kAllLanes, m, step);
    if (lane >= step) m = larger(m, earlier);
  }
  if (lane == kWarp - 1) steps.warp_max[warp] = m;
  float before = __shfl_up_sync(kAllLanes, m, 1);
  __syncthreads();
  float before_warp = m_total;
#pragma unroll
  for (uint32_t w = 0; w < kMergeWarps; ++w) {
    const float other = steps.warp_max[w];
    if (w < warp) before_warp = larger(before_warp, other);
    m_total = larger(m_total, other);
  }
  before = lane == 0 ? before_warp : larger(before_warp, before);
  m = larger(before_warp, m);
  const float old_factor = exp_f32(is_plain ? 0.0F : __fsub_rn(before, m));  // exp_f32(0) is 1
  steps.old_factor[threadIdx.x] = old_factor;
  steps.factor[threadIdx.x] = exp_f32(is_plain ? 0.0F : __fsub_rn(pair.x, m));
  steps.l[threadIdx.x] = pair.y;
  const uint32_t are_scaled = __ballot_sync(kAllLanes, !(old_factor == 1.0F));
  if (lane % kMergeBatch == 0) {
    steps.is_scaled[threadIdx.x / kMergeBatch] = are_scaled >> lane & ((1U << kMergeBatch) - 1);
  }
}

// The sum over the chunks of a round, of which kPitch floats lie from one to the next: fma(value, factor, sum * old
// factor) each. As each step waits for the one before, what it used is read anew for a batch later between two of them.
template <uint32_t kPitch>
struct MergeSum {
  const MergeSteps& steps;
  const float* values;
  float sum;
  float factor[kMergeBatch];  // of the next steps
  float value[kMergeBatch];

  static __device__ __forceinline__ void read_four(const float* from, float* to) {
    const float4 four = *reinterpret_cast<const float4*>(from);
    to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
  }
  // Batches [batch, end). A factor of 1 changes nothing, and leaves one instruction in the chain of each.
  template <bool kIsScaled>
  __device__ __forceinline__ void add(uint32_t batch, uint32_t end) {
#pragma unroll 1
    for (; batch < end; ++batch) {
      const uint32_t next = (batch + 1) * kMergeBatch;
      float old[kMergeBatch];
#pragma unroll
      for (uint32_t u = 0; kIsScaled && u < kMergeBatch; u += 4) {
        read_four(steps.old_factor + batch * kMergeBatch + u, old + u);
      }
#pragma unroll
      for (uint32_t u = 0; u < kMergeBatch; ++u) {
        sum = __fmaf_rn(value[u], factor[u], kIsScaled ? __fmul_rn(sum, old[u]) : sum);
        if (kPitch != 1) value[u] = values[(next + u) * kPitch];
        if (u % 4 != 3) continue;
        if (kPitch == 1) read_four(values + next + u - 3, value + u - 3);
        read_four(steps.factor + next + u - 3, factor + u - 3);
      }
    }
  }
  __device__ __forceinline__ void add_round(uint32_t n_chunks) {
    const uint32_t lane = threadIdx.x % kWarp;
    const uint32_t are_scaled =
        __ballot_sync(kAllLanes, lane < kMergeBatches && steps.is_scaled[lane % kMergeBatches] != 0);
#pragma unroll
    for (uint32_t u = 0; u < kMergeBatch; ++u) {
      value[u] = values[u * kPitch];
      if (u % 4 == 0) read_four(steps.factor + u, factor + u);
    }
    const uint32_t n = (n_chunks + kMergeBatch - 1) / kMergeBatch;
    for (uint32_t at = 0; at < n;) {
      const uint32_t rest = are_scaled >> at;
      const bool is_scaled = rest % 2 != 0;
      const auto others = static_cast<int>(is_scaled ? ~rest : rest);  // batches of the other kind from `at`
      const uint32_t end = others == 0 ? n : min(n, at + static_cast<uint32_t>(__ffs(others)) - 1);
      if (is_scaled) {
        add<true>(at, end);
      } else {
        add<false>(at, end);
      }
      at = end;
    }
  }
};

__global__ void __launch_bounds__(kMergeThreads) merge_kernel(const __grid_constant__ Params p) {
  __shared__ MergeSteps steps;
  let_next_launch_start();
  const AttentionArgs& args = p.args;
  const uint32_t head = blockIdx.x;
  const uint32_t row = blockIdx.y;
  const uint32_t warp = threadIdx.x / kWarp;
  const uint32_t column = threadIdx.x % kMergeColumns;
  const Range all = visible(args, row);
  const uint32_t first = all.begin / kAttentionChunk - p.first_chunk;
  const uint32_t last = (all.end + kAttentionChunk - 1) / kAttentionChunk - p.first_chunk;
  const float2* pairs = pairs_of(p) + (static_cast<uint64_t>(row) * args.n_heads + head) * p.n_chunks;
  const float* outs = args.scratch + out_at(p, row, head, blockIdx.z * kMergeColumns, 0);
  const uint32_t are_there = shared_at(&steps.outs_are_there);
  if (threadIdx.x == 0) init_barrier(are_there, kMergeThreads);
  __syncthreads();
  asm volatile("" : "+l"(pairs), "+l"(outs));  // not made after the wait
  wait_for_launch_before();
  float m_total = __uint_as_float(0xFF800000U);
  MergeSum<kMergeColumns> column_sum{steps, steps.outs[0] + column, -0.0F, {}, {}};
  MergeSum<1> l_sum{steps, steps.l, -0.0F, {}, {}};
  uint32_t phase = 0;
  for (uint32_t begin = first; begin < last; begin += kMergeRound, phase ^= 1) {
    if (begin != first) __syncthreads();  // the steps, maxima and outs of the round before are used up
    const uint32_t n_chunks = min(last - begin, kMergeRound);
    float2 pair = make_float2(__uint_as_float(0xFF800000U), -0.0F);
    if (threadIdx.x < n_chunks) pair = __ldcg(pairs + begin + threadIdx.x);
    fetch_outs(outs + static_cast<uint64_t>(begin) * kMergeColumns, n_chunks, steps);
    // The first chunk is taken as it is, and so are the steps after the last.
    make_steps(pair, threadIdx.x >= n_chunks || (begin == first && threadIdx.x == 0), m_total, steps);
    __syncthreads();
    if (warp == 0) {
      wait_barrier(are_there, phase);
      column_sum.add_round(n_chunks);
    } else if (warp == 1) {
      l_sum.add_round(n_chunks);
    }
  }
  if (threadIdx.x == kWarp) steps.l_total = l_sum.sum;
  __syncthreads();
  const uint32_t j = blockIdx.z * kMergeColumns + threadIdx.x;
  if (threadIdx.x >= kMergeColumns || j >= args.dv) return;
  float l = steps.l_total;
  float o = column_sum.sum;
  if (args.sink != nullptr) {
    const float sink = args.sink[head];
    const float m = larger(m_total, sink);
    const float old_factor = exp_f32(__fsub_rn(m_total, m));
    l = __fmaf_rn(l, old_factor, exp_f32(__fsub_rn(sink, m)));
    o = __fmul_rn(o, old_factor);
  }
  args.out[(static_cast<uint64_t>(row) * args.n_heads + head) * args.dv + j] = __fdiv_rn(o, l);
}

}  // namespace
}  // namespace outrider::cuda
