// SPDX-License-Identifier: Apache-2.0
// Attention over chunks of 128 positions: one block of threads per (chunk, KV head, row) makes the (max, sum, out) of
// up to eight query heads, a second kernel merges the chunks of a head in rising order. The chunk grid starts at
// position 0, so a row's bits depend on its own history only. Scores: a warp is the 32 lanes of the float law; the
// partial sums of 32 (position, head) pairs fold together, each step halving the values a lane carries, which costs one
// shuffle a value and not five. Values: a thread owns element j and goes through the positions in rising order. Both
// read the chunk from shared memory, where cp.async put it, if it fits.
#include "outrider/cuda/attention128.cuh"
#include "outrider/cuda/device/functions.cuh"
#include "outrider/cuda/device/overlap.cuh"
#include "outrider/cuda/ops.h"
#include "outrider/cuda/runtime.h"

namespace outrider::cuda {
namespace {

using kernels::kAttentionChunk;

constexpr uint32_t kThreads = 256;
constexpr uint32_t kWarps = kThreads / kWarp;
// Of K and V. Larger rows, and caches whose strides are no multiple of 16 bytes, are read from device memory directly.
constexpr uint32_t kMostStagedBytes = 96 * 1024;

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

__device__ __forceinline__ void copy_async4(float* to, const float* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
               "l"(from)
               : "memory");
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
__device__ __forceinline__ void add_values(const AttentionArgs& args, const AnyRows& values, Range range,
                                           const float (*e)[kHeads], uint32_t n_heads, uint64_t head_stride,
                                           float* outs) {
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
      if (h0 + h < n_heads) outs[(h0 + h) * head_stride + j] = o[h];
    }
  }
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

// Where the (m, l) pairs begin. Scratch: outs (row, head, chunk, dv), then pairs (row, head, chunk).
__device__ __forceinline__ float2* pairs_of(const Params& p) {
  const AttentionArgs& args = p.args;
  return reinterpret_cast<float2*>(args.scratch + static_cast<uint64_t>(args.n_rows) * args.n_heads * p.n_chunks *
                                                      ((args.dv + 1) / 2 * 2));
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
    asm volatile("cp.async.commit_group;" ::: "memory");
    stage_rows(v_staged, p.v_stage, v_base, args.v_stride, p.v_row_bytes, range.end - range.begin);
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  const float* from = args.q + (static_cast<uint64_t>(row) * args.n_heads + head) * args.dk;
  for (uint32_t i = threadIdx.x; i < kHeads * args.dk; i += kThreads) q[i] = i < n_heads * args.dk ? from[i] : 0.0F;
  if constexpr (kStaged) asm volatile("cp.async.wait_group 1;" ::: "memory");
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
  if constexpr (kStaged) asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
  float* outs = args.scratch + first_slot * args.dv;
  const uint64_t head_stride = static_cast<uint64_t>(p.n_chunks) * args.dv;
  with_type(args.v_type, [&]<KvType kType>() {
    if constexpr (kStaged) {
      const StagedRows values{v_staged + (reinterpret_cast<uintptr_t>(v_base) & 15U), p.v_stage};
      add_values<kHeads, kType>(args, values, range, e, n_heads, head_stride, outs);
    } else {
      add_values<kHeads, kType>(args, Rows{v_base, args.v_stride}, range, e, n_heads, head_stride, outs);
    }
  });
}

// The same for heads of 128 elements, cached as one type (attention128.cuh).
template <uint32_t kHeads, KvType kType>
__global__ void __launch_bounds__(kWideThreads, 8) wide_kernel(const __grid_constant__ Params p) {
  using Layout = WideLayout<kType>;
  extern __shared__ __align__(16) uint8_t shared[];
  __shared__ __align__(16) float e[kAttentionChunk][kHeads];
  let_next_launch_start();
  wait_for_launch_before();
  const AttentionArgs& args = p.args;
  const Part part = part_of<kHeads>(p);
  if (part.range.begin >= part.range.end) return;
  const uint64_t begin = (p.first_chunk + blockIdx.x) * uint64_t{kAttentionChunk};
  const WideChunk chunk{part.keys + begin * args.k_stride,
                        part.values + begin * args.v_stride,
                        args.k_stride,
                        args.v_stride,
                        static_cast<uint32_t>(part.range.begin - begin),
                        static_cast<uint32_t>(part.range.end - begin),
                        part.range.end - part.range.begin == kAttentionChunk};
  const uint32_t warp = threadIdx.x / kWarp;
  const uint32_t lane = threadIdx.x % kWarp;
  WideWarp<kHeads, kType> work(chunk, shared + warp * (Layout::kShared / 2), e);
  work.start();
  const uint64_t first_head = static_cast<uint64_t>(part.row) * args.n_heads + part.head;
  work.score(args.q + first_head * kWideElems, part.n_heads, args.scale);
  __syncthreads();
#pragma unroll
  for (uint32_t h = warp; h < kHeads; h += 2) {
    if (h >= part.n_heads) continue;
    const float2 pair = exponentiate<kHeads>(e, h, part.range);
    if (lane == 0) pairs_of(p)[(first_head + h) * p.n_chunks + blockIdx.x] = pair;
  }
  __syncthreads();
  float o[kHeads][2] = {};
  work.add_values(o);
#pragma unroll
  for (uint32_t h = 0; h < kHeads; ++h) {
    if (h >= part.n_heads) continue;
    float* out = args.scratch + ((first_head + h) * p.n_chunks + blockIdx.x) * kWideElems;
    reinterpret_cast<float2*>(out)[warp * kWarp + lane] = make_float2(o[h][0], o[h][1]);
  }
}

constexpr uint32_t kMergeThreads = 256;  // make the steps of as many chunks at once, and fetch their outs
constexpr uint32_t kMergeColumns = 32;   // of one (head, row) a block, merged by its first warp
constexpr uint32_t kMergeWarps = kMergeThreads / kWarp;

// What merging one chunk needs: the factors of what came before and of the chunk, and its l.
struct MergeStep {
  float old_factor, new_factor, l, unused;
};

// The steps of the chunks from `begin`, a thread a chunk: maxima by a scan within warps, then over warps.
__device__ __forceinline__ void make_steps(const float2* pairs, uint32_t begin, uint32_t last, float& m_total,
                                           MergeStep* steps, float* warp_max) {
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
  if (lane == kWarp - 1) warp_max[warp] = m;
  __syncthreads();
  float before_warp = m_total;
  for (uint32_t w = 0; w < kMergeWarps; ++w) {
    if (w < warp) before_warp = warp_max[w] > before_warp ? warp_max[w] : before_warp;
    m_total = warp_max[w] > m_total ? warp_max[w] : m_total;
  }
  float before = __shfl_up_sync(kAllLanes, m, 1);
  before = lane == 0 ? before_warp : before_warp > before ? before_warp : before;
  m = before_warp > m ? before_warp : m;
  steps[threadIdx.x] = {exp_f32(__fsub_rn(before, m)), exp_f32(__fsub_rn(pair.x, m)), pair.y, 0};
  __syncthreads();
}

// The factors of 256 chunks are made at once, while their outs are on the way; the sums then go chunk by chunk.
__global__ void __launch_bounds__(kMergeThreads) merge_kernel(const __grid_constant__ Params p) {
  __shared__ __align__(16) MergeStep steps[kMergeThreads];
  __shared__ float warp_max[kMergeWarps];
  __shared__ float fetched[kMergeThreads][kMergeColumns];
  let_next_launch_start();
  wait_for_launch_before();
  const AttentionArgs& args = p.args;
  const uint32_t head = blockIdx.x;
  const uint32_t row = blockIdx.y;
  const uint32_t column = threadIdx.x % kWarp;
  const uint32_t j = blockIdx.z * kMergeColumns + column;
  const uint32_t read_j = j < args.dv ? j : args.dv - 1;
  const Range all = visible(args, row);
  const uint32_t first = all.begin / kAttentionChunk - p.first_chunk;
  const uint32_t last = (all.end + kAttentionChunk - 1) / kAttentionChunk - p.first_chunk;
  const uint64_t slot = (static_cast<uint64_t>(row) * args.n_heads + head) * p.n_chunks;
  const auto fetch = [&](uint32_t begin) {
    const float* outs = args.scratch + slot * args.dv + read_j;
    for (uint32_t i = threadIdx.x / kWarp; i < kMergeThreads && begin + i < last; i += kMergeWarps) {
      copy_async4(&fetched[i][column], outs + static_cast<uint64_t>(begin + i) * args.dv);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  float m_total = __uint_as_float(0xFF800000U);
  float l_total = 0;
  float o_total = 0;
  for (uint32_t begin = first; begin < last; begin += kMergeThreads) {
    __syncthreads();  // the steps, maxima and outs of the round before are used up
    fetch(begin);
    make_steps(pairs_of(p) + slot, begin, last, m_total, steps, warp_max);
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    if (threadIdx.x >= kWarp) continue;
    const uint32_t count = last - begin < kMergeThreads ? last - begin : kMergeThreads;
    uint32_t i = 0;
    if (begin == first) {  // nothing to merge with yet
      l_total = steps[0].l;
      o_total = fetched[0][column];
      i = 1;
    }
#pragma unroll 8
    for (; i < count; ++i) {
      const MergeStep step = steps[i];
      l_total = __fmaf_rn(step.l, step.new_factor, __fmul_rn(l_total, step.old_factor));
      o_total = __fmaf_rn(fetched[i][column], step.new_factor, __fmul_rn(o_total, step.old_factor));
    }
  }
  if (threadIdx.x >= kWarp) return;
  if (args.sink != nullptr) {
    const float sink = args.sink[head];
    const float m = sink > m_total ? sink : m_total;
    const float old_factor = exp_f32(__fsub_rn(m_total, m));
    l_total = __fmaf_rn(l_total, old_factor, exp_f32(__fsub_rn(sink, m)));
    o_total = __fmul_rn(o_total, old_factor);
  }
  if (j < args.dv)
    args.out[(static_cast<uint64_t>(row) * args.n_heads + head) * args.dv + j] = __fdiv_rn(o_total, l_total);
}

Params params_of(const AttentionArgs& args) noexcept {
  Params p{};
  p.args = args;
  p.k_row_bytes = static_cast<uint32_t>(kernels::kv_row_bytes(args.k_type, args.dk));
  p.v_row_bytes = static_cast<uint32_t>(kernels::kv_row_bytes(args.v_type, args.dv));
  const uint32_t k_stage = (p.k_row_bytes + 31) / 16 * 16;
  const uint32_t v_stage = (p.v_row_bytes + 31) / 16 * 16;
  const bool is_even = args.k_stride % 16 == 0 && args.v_stride % 16 == 0;
  if (is_even && kAttentionChunk * (k_stage + v_stage) <= kMostStagedBytes) p.k_stage = k_stage, p.v_stage = v_stage;
  const uint32_t first_end = args.position + 1;
  const uint32_t begin = args.window != 0 && first_end > args.window ? first_end - args.window : 0;
  p.first_chunk = begin / kAttentionChunk;
  p.n_chunks = (args.position + args.n_rows + kAttentionChunk - 1) / kAttentionChunk - p.first_chunk;
  return p;
}

template <uint32_t kHeads, bool kStaged>
void launch_chunks(const Params& p, uint32_t group, cudaStream_t stream) {
  const uint32_t shared = kAttentionChunk * (p.k_stage + p.v_stage) + kHeads * p.args.dk * 4;
  const auto kernel = chunk_kernel<kHeads, kStaged>;
  if (shared > 40 * 1024) {
    cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
               "cudaFuncSetAttribute(chunk_kernel)", shared);
  }
  const dim3 grid(p.n_chunks, p.args.n_kv_heads * ((group + kHeads - 1) / kHeads), p.args.n_rows);
  launch_behind(kernel, {grid, kThreads, shared}, p, stream, "cudaLaunchKernelEx(chunk_kernel)");
}
template <uint32_t kHeads>
void launch_chunks(const Params& p, uint32_t group, cudaStream_t stream) {
  if (p.k_stage == 0) return launch_chunks<kHeads, false>(p, group, stream);
  launch_chunks<kHeads, true>(p, group, stream);
}

template <uint32_t kHeads, KvType kType>
void launch_wide(const Params& p, uint32_t group, cudaStream_t stream) {
  constexpr uint32_t kShared = WideLayout<kType>::kShared;
  const auto kernel = wide_kernel<kHeads, kType>;
  const dim3 grid(p.n_chunks, p.args.n_kv_heads * ((group + kHeads - 1) / kHeads), p.args.n_rows);
  launch_behind(kernel, {grid, kWideThreads, kShared}, p, stream, "cudaLaunchKernelEx(wide_kernel)");
}
template <KvType kType>
void launch_wide(const Params& p, uint32_t group, cudaStream_t stream) {
  if (group == 1) return launch_wide<1, kType>(p, group, stream);
  if (group == 2) return launch_wide<2, kType>(p, group, stream);
  launch_wide<4, kType>(p, group, stream);
}

bool is_wide(const AttentionArgs& args) noexcept {
  return args.dk == kWideElems && args.dv == kWideElems && args.k_type == args.v_type && args.k_stride % 16 == 0 &&
         args.v_stride % 16 == 0 && reinterpret_cast<uintptr_t>(args.k_cache) % 16 == 0 &&
         reinterpret_cast<uintptr_t>(args.v_cache) % 16 == 0;
}

void launch_all_chunks(const Params& p, cudaStream_t stream) {
  const uint32_t group = p.args.n_heads / p.args.n_kv_heads;
  if (is_wide(p.args)) {
    switch (p.args.k_type) {
      case KvType::kF16:
        return launch_wide<KvType::kF16>(p, group, stream);
      case KvType::kF32:
        return launch_wide<KvType::kF32>(p, group, stream);
      case KvType::kQ8_0:
        return launch_wide<KvType::kQ8_0>(p, group, stream);
    }
  }
  if (group == 1) return launch_chunks<1>(p, group, stream);
  if (group == 2) return launch_chunks<2>(p, group, stream);
  if (group <= 4) return launch_chunks<4>(p, group, stream);
  launch_chunks<8>(p, group, stream);
}

}  // namespace

uint64_t attention_scratch_floats(const AttentionArgs& args) noexcept {
  const Params p = params_of(args);
  return static_cast<uint64_t>(args.n_rows) * args.n_heads * p.n_chunks * ((args.dv + 1) / 2 * 2 + 2);
}

void attention(const AttentionArgs& args, cudaStream_t stream) {
  if (args.n_rows == 0 || args.n_heads == 0 || args.dv == 0) return;
  const Params p = params_of(args);
  launch_all_chunks(p, stream);
  const dim3 grid(args.n_heads, args.n_rows, (args.dv + kMergeColumns - 1) / kMergeColumns);
  launch_behind(merge_kernel, {grid, kMergeThreads, 0}, p, stream, "cudaLaunchKernelEx(merge_kernel)");
}

}  // namespace outrider::cuda
