// SPDX-License-Identifier: Apache-2.0
// One chunk of 128 positions for heads of any width. Scores: a warp is the 32 lanes of the float law; the partial sums
// of 32 (position, head) pairs fold together, each step halving the values a lane carries, which costs one shuffle a
// value and not five. Values: a thread owns element j and goes through the positions in rising order. Both read the
// chunk from shared memory, where cp.async put it, if it fits.
#pragma once

#include "outrider/cuda/attention_parts.cuh"
#include "outrider/cuda/device/async_copy.cuh"

namespace outrider::cuda {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kWarps = kThreads / kWarp;
// Of K and V. Larger rows, and caches whose strides are no multiple of 16 bytes, are read from device memory directly.
constexpr uint32_t kMostStagedBytes = 96 * 1024;

__device__ __forceinline__ float element(const uint8_t* row, KvType type, uint32_t j) {
  switch (type) {
    case KvType::kF16:
      return f16_to_f32(reinterpret_cast<const uint16_t*>(row)[j]);
    case KvType::kF32:
      return reinterpret_cast<const float*>(row)[j];
    case KvType::kQ8_0:
      break;
  }
  const uint8_t* block = row + j / 32 * 34;
  const float d = f16_to_f32(*reinterpret_cast<const uint16_t*>(block));
  return __fmul_rn(d, static_cast<float>(static_cast<int8_t>(block[2 + j % 32])));
}

// n head vectors to shared memory, as far from a multiple of 16 bytes as in memory: their stride is such a multiple.
// Sixteen threads a vector.
__device__ __forceinline__ void stage_rows(uint8_t* to, uint32_t stage, const uint8_t* from, uint64_t stride,
                                           uint32_t row_bytes, uint32_t n) {
  const auto skew = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(from) & 15U);
  const uint32_t first = threadIdx.x % 16 * 16;
  for (uint32_t i = threadIdx.x / 16; i < n; i += kThreads / 16) {
    const uint8_t* row = from - skew + i * stride;
    for (uint32_t at = first; at < skew + row_bytes; at += 256) copy_async16(to + i * stage + at, row + at);
  }
}

// Head vectors of the positions from the first visible one of the chunk.
struct Rows {
  const uint8_t* first;
  uint64_t step;
  __device__ __forceinline__ const uint8_t* at(uint32_t i) const { return first + i * step; }
};
// The same in shared memory, which the compiler can tell, with 32-bit steps.
struct StagedRows {
  const uint8_t* first;
  uint32_t step;
  __device__ __forceinline__ const uint8_t* at(uint32_t i) const { return first + i * step; }
};

// One step of the fold for kHalf pairs of values; lanes with bit kHalf set go on with the upper ones.
template <uint32_t kHalf>
__device__ __forceinline__ void fold_step(float (&values)[32], uint32_t lane) {
  const bool upper = (lane & kHalf) != 0;
#pragma unroll
  for (uint32_t i = 0; i < kHalf; ++i) {
    const float keep = upper ? values[i + kHalf] : values[i];
    const float send = upper ? values[i] : values[i + kHalf];
    values[i] = __fadd_rn(keep, __shfl_xor_sync(kAllLanes, send, kHalf));
  }
}

// Folds 32 values at once: on return lane v holds the fold of value v.
__device__ __forceinline__ float fold_values(float (&values)[32], uint32_t lane) {
  fold_step<16>(values, lane);
  fold_step<8>(values, lane);
  fold_step<4>(values, lane);
  fold_step<2>(values, lane);
  fold_step<1>(values, lane);
  return values[0];
}

// Scores of the chunk for kHeads heads: e[p][h], positions shared out over warps 32 / kHeads at a time.
template <uint32_t kHeads, KvType kType, typename AnyRows>
__device__ __forceinline__ void score_chunk(const AttentionArgs& args, const AnyRows& keys, Range range, const float* q,
                                            float (*e)[kHeads]) {
  constexpr uint32_t kPositions = 32 / kHeads;
  const uint32_t lane = threadIdx.x % kWarp;
  for (uint32_t p0 = range.begin + threadIdx.x / kWarp * kPositions; p0 < range.end; p0 += kWarps * kPositions) {
    float values[32] = {};
    const uint8_t* rows[kPositions];
#pragma unroll
    for (uint32_t i = 0; i < kPositions; ++i) rows[i] = keys.at((p0 + i < range.end ? p0 + i : p0) - range.begin);
    for (uint32_t j = lane; j < args.dk; j += kWarp) {
      float k[kPositions];
#pragma unroll
      for (uint32_t i = 0; i < kPositions; ++i) k[i] = element(rows[i], kType, j);
#pragma unroll
      for (uint32_t h = 0; h < kHeads; ++h) {
        const float q_j = q[h * args.dk + j];
#pragma unroll
        for (uint32_t i = 0; i < kPositions; ++i) {
          values[i * kHeads + h] = __fmaf_rn(q_j, k[i], values[i * kHeads + h]);
        }
      }
    }
    const float score = __fmul_rn(args.scale, fold_values(values, lane));
    const uint32_t p = p0 + lane / kHeads;
    if (p < range.end) e[p % kAttentionChunk][lane % kHeads] = score;
  }
}

// Calls body with the type as a constant.
template <typename Body>
__device__ __forceinline__ void with_type(KvType type, Body body) {
  switch (type) {
    case KvType::kF16:
      body.template operator()<KvType::kF16>();
      break;
    case KvType::kF32:
      body.template operator()<KvType::kF32>();
      break;
    case KvType::kQ8_0:
      body.template operator()<KvType::kQ8_0>();
      break;
  }
}

// out_j of the heads: two threads share an element, each with half of the heads, where there are enough heads.
template <uint32_t kHeads, KvType kType, typename AnyRows>
__device__ __forceinline__ void add_values(const Params& p, const Part& part, const AnyRows& values,
                                           const float (*e)[kHeads]) {
  const AttentionArgs& args = p.args;
  const Range range = part.range;
  constexpr uint32_t kParts = kHeads >= 4 ? 2 : 1;
  constexpr uint32_t kOwn = kHeads / kParts;
  const float(*first)[kHeads] = e + range.begin % kAttentionChunk;
  const uint32_t n = range.end - range.begin;
  for (uint32_t i = threadIdx.x; i < args.dv * kParts; i += kThreads) {
    const uint32_t j = i % args.dv;
    const uint32_t h0 = i / args.dv * kOwn;
    float o[kOwn] = {};
#pragma unroll 8
    for (uint32_t pos = 0; pos < n; ++pos) {
      const float v = element(values.at(pos), kType, j);
#pragma unroll
      for (uint32_t h = 0; h < kOwn; ++h) o[h] = __fmaf_rn(first[pos][h0 + h], v, o[h]);
    }
#pragma unroll
    for (uint32_t h = 0; h < kOwn; ++h) {
      if (h0 + h < part.n_heads) args.scratch[out_at(p, part.row, part.head + h0 + h, j, blockIdx.x)] = o[h];
    }
  }
}

template <uint32_t kHeads, bool kStaged>
__global__ void __launch_bounds__(kThreads) chunk_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(16) uint8_t shared[];
  __shared__ __align__(16) float e[kAttentionChunk][kHeads];
  let_next_launch_start();
  wait_for_launch_before();
  const AttentionArgs& args = p.args;
  const Part part = part_of<kHeads>(p);
  const Range range = part.range;
  const uint32_t row = part.row, head = part.head, n_heads = part.n_heads;
  if (range.begin >= range.end) return;

  const uint8_t* k_base = part.keys + range.begin * args.k_stride;
  const uint8_t* v_base = part.values + range.begin * args.v_stride;
  uint8_t* v_staged = shared + kAttentionChunk * p.k_stage;
  auto* q = reinterpret_cast<float*>(v_staged + kAttentionChunk * p.v_stage);
  if constexpr (kStaged) {
    stage_rows(shared, p.k_stage, k_base, args.k_stride, p.k_row_bytes, range.end - range.begin);
    commit_async();
    stage_rows(v_staged, p.v_stage, v_base, args.v_stride, p.v_row_bytes, range.end - range.begin);
    commit_async();
  }
  const float* from = args.q + (static_cast<uint64_t>(row) * args.n_heads + head) * args.dk;
  for (uint32_t i = threadIdx.x; i < kHeads * args.dk; i += kThreads) q[i] = i < n_heads * args.dk ? from[i] : 0.0F;
  if constexpr (kStaged) wait_async<1>();
  __syncthreads();
  with_type(args.k_type, [&]<KvType kType>() {
    if constexpr (kStaged) {
      const StagedRows keys{shared + (reinterpret_cast<uintptr_t>(k_base) & 15U), p.k_stage};
      score_chunk<kHeads, kType>(args, keys, range, q, e);
    } else {
      score_chunk<kHeads, kType>(args, Rows{k_base, args.k_stride}, range, q, e);
    }
  });
  __syncthreads();
  const uint64_t first_slot = (static_cast<uint64_t>(row) * args.n_heads + head) * p.n_chunks + blockIdx.x;
  float2* pairs = pairs_of(p);
  for (uint32_t h = threadIdx.x / kWarp; h < n_heads; h += kWarps) {
    const float2 pair = exponentiate<kHeads>(e, h, range);
    if (threadIdx.x % kWarp == 0) pairs[first_slot + static_cast<uint64_t>(h) * p.n_chunks] = pair;
  }
  if constexpr (kStaged) wait_async<0>();
  __syncthreads();
  with_type(args.v_type, [&]<KvType kType>() {
    if constexpr (kStaged) {
      const StagedRows values{v_staged + (reinterpret_cast<uintptr_t>(v_base) & 15U), p.v_stage};
      add_values<kHeads, kType>(p, part, values, e);
    } else {
      add_values<kHeads, kType>(p, part, Rows{v_base, args.v_stride}, e);
    }
  });
}

}  // namespace
}  // namespace outrider::cuda
