// SPDX-License-Identifier: Apache-2.0
// Attention over chunks of 128 positions: one block of threads per (chunk, KV head, row) makes the (max, sum, out) of up to
// eight query heads, a second kernel merges the chunks of a head in rising order. The chunk grid starts at position 0, so
// a row's bits depend on its own history only.
// Scores: a warp is the 32 lanes of the float law; the partial sums of 32 (position, head) pairs fold together, each step
// halving the values a lane carries, which costs one shuffle a value and not five. Values: a thread owns element j and
// goes through the positions in rising order. Both read the chunk from shared memory, where cp.async put it, if it fits.
#include "outrider/cuda/device/functions.cuh"
#include "outrider/cuda/ops.h"
#include "outrider/cuda/runtime.h"

namespace outrider::cuda {
namespace {

using kernels::kAttentionChunk;
using kernels::KvType;

constexpr uint32_t kThreads = 128;
constexpr uint32_t kWarps = kThreads / kWarp;
constexpr uint32_t kMostStagedBytes = 96 * 1024;  // of K and V; larger rows are read from device memory directly

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
    case KvType::kF16: return f16_to_f32(reinterpret_cast<const uint16_t*>(row)[j]);
    case KvType::kF32: return reinterpret_cast<const float*>(row)[j];
    case KvType::kQ8_0: break;
  }
  const uint8_t* block = row + j / 32 * 34;
  const float d = f16_to_f32(*reinterpret_cast<const uint16_t*>(block));
  return __fmul_rn(d, static_cast<float>(static_cast<int8_t>(block[2 + j % 32])));
}

__device__ __forceinline__ void copy_async16(uint8_t* to, const uint8_t* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
               "l"(from)
               : "memory");
}

// Head vectors of the positions [begin, end) to shared memory, position p at (p mod 128) * stage, skewed as in memory.
__device__ void stage_rows(uint8_t* to, uint32_t stage, const uint8_t* from, uint64_t stride, uint32_t row_bytes,
                           Range range) {
  const uint32_t pieces = (row_bytes + 31) / 16;
  for (uint32_t i = threadIdx.x; i < (range.end - range.begin) * pieces; i += kThreads) {
    const uint32_t p = range.begin + i / pieces;
    const uint8_t* row = from + p * stride;
    const auto skew = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(row) & 15U);
    const uint32_t at = i % pieces * 16;
    if (at < skew + row_bytes) copy_async16(to + p % kAttentionChunk * stage + at, row - skew + at);
  }
}

struct Rows {
  const uint8_t* base;   // of the cache, this head
  uint64_t stride;
  const uint8_t* staged;  // or nullptr
  uint32_t stage;
  __device__ __forceinline__ const uint8_t* at(uint32_t p) const {
    const uint8_t* row = base + p * stride;
    if (staged == nullptr) return row;
    return staged + p % kAttentionChunk * stage + (reinterpret_cast<uintptr_t>(row) & 15U);
  }
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
template <uint32_t kHeads, KvType kType>
__device__ __forceinline__ void score_chunk(const AttentionArgs& args, const Rows& keys, Range range, const float* q,
                                            float (*e)[kHeads]) {
  constexpr uint32_t kPositions = 32 / kHeads;
  const uint32_t lane = threadIdx.x % kWarp;
  for (uint32_t p0 = range.begin + threadIdx.x / kWarp * kPositions; p0 < range.end; p0 += kWarps * kPositions) {
    float values[32] = {};
    const uint8_t* rows[kPositions];
#pragma unroll
    for (uint32_t i = 0; i < kPositions; ++i) rows[i] = keys.at(p0 + i < range.end ? p0 + i : p0);
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
    case KvType::kF16: body.template operator()<KvType::kF16>(); break;
    case KvType::kF32: body.template operator()<KvType::kF32>(); break;
    case KvType::kQ8_0: body.template operator()<KvType::kQ8_0>(); break;
  }
}

// Scratch: outs (row, head, chunk, dv), then (m, l) pairs (row, head, chunk).
template <uint32_t kHeads>
__global__ void __launch_bounds__(kThreads) chunk_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(16) uint8_t shared[];
  __shared__ __align__(16) float e[kAttentionChunk][kHeads];
  const AttentionArgs& args = p.args;
  const uint32_t row = blockIdx.z;
  const uint32_t chunk = p.first_chunk + blockIdx.x;
  const uint32_t group = args.n_heads / args.n_kv_heads;
  const uint32_t splits = (group + kHeads - 1) / kHeads;
  const uint32_t kv_head = blockIdx.y / splits;
  const uint32_t head = kv_head * group + blockIdx.y % splits * kHeads;
  const uint32_t n_heads = min(kHeads, (kv_head + 1) * group - head);
  const Range all = visible(args, row);
  const Range range{max(all.begin, chunk * kAttentionChunk), min(all.end, (chunk + 1) * kAttentionChunk)};
  if (range.begin >= range.end) return;

  uint8_t* k_staged = shared;
  uint8_t* v_staged = shared + kAttentionChunk * p.k_stage;
  auto* q = reinterpret_cast<float*>(v_staged + kAttentionChunk * p.v_stage);
  const Rows keys{reinterpret_cast<const uint8_t*>(args.k_cache) + static_cast<uint64_t>(kv_head) * p.k_row_bytes,
                  args.k_stride, p.k_stage != 0 ? k_staged : nullptr, p.k_stage};
  const Rows values{reinterpret_cast<const uint8_t*>(args.v_cache) + static_cast<uint64_t>(kv_head) * p.v_row_bytes,
                    args.v_stride, p.v_stage != 0 ? v_staged : nullptr, p.v_stage};
  if (p.k_stage != 0) stage_rows(k_staged, p.k_stage, keys.base, args.k_stride, p.k_row_bytes, range);
  asm volatile("cp.async.commit_group;" ::: "memory");
  if (p.v_stage != 0) stage_rows(v_staged, p.v_stage, values.base, args.v_stride, p.v_row_bytes, range);
  asm volatile("cp.async.commit_group;" ::: "memory");
  const float* from = args.q + (static_cast<uint64_t>(row) * args.n_heads + head) * args.dk;
  for (uint32_t i = threadIdx.x; i < kHeads * args.dk; i += kThreads) q[i] = i < n_heads * args.dk ? from[i] : 0.0F;
  asm volatile("cp.async.wait_group 1;" ::: "memory");
  __syncthreads();
  with_type(args.k_type, [&]<KvType kType>() { score_chunk<kHeads, kType>(args, keys, range, q, e); });
  __syncthreads();
  const uint64_t first_slot = (static_cast<uint64_t>(row) * args.n_heads + head) * p.n_chunks + blockIdx.x;
  float* outs = args.scratch;
  auto* pairs = reinterpret_cast<float2*>(
      outs + static_cast<uint64_t>(args.n_rows) * args.n_heads * p.n_chunks * ((args.dv + 1) / 2 * 2));
  for (uint32_t h = threadIdx.x / kWarp; h < n_heads; h += kWarps) {
    const float2 pair = exponentiate<kHeads>(e, h, range);
    if (threadIdx.x % kWarp == 0) pairs[first_slot + static_cast<uint64_t>(h) * p.n_chunks] = pair;
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
  for (uint32_t j = threadIdx.x; j < args.dv; j += kThreads) {
    float o[kHeads] = {};
    with_type(args.v_type, [&]<KvType kType>() {
#pragma unroll 4
      for (uint32_t pos = range.begin; pos < range.end; ++pos) {
        const float v = element(values.at(pos), kType, j);
#pragma unroll
        for (uint32_t h = 0; h < kHeads; ++h) o[h] = __fmaf_rn(e[pos % kAttentionChunk][h], v, o[h]);
      }
    });
#pragma unroll
    for (uint32_t h = 0; h < kHeads; ++h) {
      if (h < n_heads) outs[(first_slot + static_cast<uint64_t>(h) * p.n_chunks) * args.dv + j] = o[h];
    }
  }
}

constexpr uint32_t kMergeThreads = 128;

// One block a (head, row). Maxima of 32 chunks at a time by a warp scan, so that the factors of all are made at once; the
// sums then go chunk by chunk.
__global__ void __launch_bounds__(kMergeThreads) merge_kernel(const __grid_constant__ Params p) {
  const AttentionArgs& args = p.args;
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t head = blockIdx.x;
  const uint32_t row = blockIdx.y;
  const Range all = visible(args, row);
  const uint32_t first = all.begin / kAttentionChunk - p.first_chunk;
  const uint32_t last = (all.end + kAttentionChunk - 1) / kAttentionChunk - p.first_chunk;
  const uint64_t slot = (static_cast<uint64_t>(row) * args.n_heads + head) * p.n_chunks;
  const auto* pairs = reinterpret_cast<const float2*>(
      args.scratch + static_cast<uint64_t>(args.n_rows) * args.n_heads * p.n_chunks * ((args.dv + 1) / 2 * 2));
  const float none = __uint_as_float(0xFF800000U);
  for (uint32_t j = threadIdx.x; j < (args.dv + kMergeThreads - 1) / kMergeThreads * kMergeThreads; j += kMergeThreads) {
    const uint32_t read_j = j < args.dv ? j : args.dv - 1;
    float m_total = none;
    float l_total = 0;
    float o_total = 0;
    for (uint32_t begin = first; begin < last; begin += kWarp) {
      const uint32_t chunk = begin + lane;
      const float2 pair = chunk < last ? pairs[slot + chunk] : make_float2(none, 0.0F);
      float m = pair.x;  // inclusive maximum over the chunks up to this one
      for (uint32_t step = 1; step < kWarp; step *= 2) {
        const float earlier = __shfl_up_sync(kAllLanes, m, step);
        if (lane >= step) m = earlier > m ? earlier : m;
      }
      m = m_total > m ? m_total : m;
      float before = __shfl_up_sync(kAllLanes, m, 1);
      if (lane == 0) before = m_total;
      const float old_factor = exp_f32(__fsub_rn(before, m));
      const float new_factor = exp_f32(__fsub_rn(pair.x, m));
      m_total = __shfl_sync(kAllLanes, m, 31);
      const uint32_t n = last - begin < kWarp ? last - begin : kWarp;
#pragma unroll 8
      for (uint32_t i = 0; i < n; ++i) {
        const float a = __shfl_sync(kAllLanes, old_factor, i);
        const float b = __shfl_sync(kAllLanes, new_factor, i);
        const float l = __shfl_sync(kAllLanes, pair.y, i);
        const float o = args.scratch[(slot + begin + i) * args.dv + read_j];
        const bool is_first = begin + i == first;  // nothing to merge with yet
        l_total = is_first ? l : __fmaf_rn(l, b, __fmul_rn(l_total, a));
        o_total = is_first ? o : __fmaf_rn(o, b, __fmul_rn(o_total, a));
      }
    }
    if (args.sink != nullptr) {
      const float sink = args.sink[head];
      const float m = sink > m_total ? sink : m_total;
      const float old_factor = exp_f32(__fsub_rn(m_total, m));
      l_total = __fmaf_rn(l_total, old_factor, exp_f32(__fsub_rn(sink, m)));
      o_total = __fmul_rn(o_total, old_factor);
    }
    if (j < args.dv) args.out[(static_cast<uint64_t>(row) * args.n_heads + head) * args.dv + j] = __fdiv_rn(o_total, l_total);
  }
}

Params params_of(const AttentionArgs& args) noexcept {
  Params p{};
  p.args = args;
  p.k_row_bytes = static_cast<uint32_t>(kernels::kv_row_bytes(args.k_type, args.dk));
  p.v_row_bytes = static_cast<uint32_t>(kernels::kv_row_bytes(args.v_type, args.dv));
  const uint32_t k_stage = (p.k_row_bytes + 31) / 16 * 16;
  const uint32_t v_stage = (p.v_row_bytes + 31) / 16 * 16;
  if (kAttentionChunk * (k_stage + v_stage) <= kMostStagedBytes) p.k_stage = k_stage, p.v_stage = v_stage;
  const uint32_t first_end = args.position + 1;
  const uint32_t begin = args.window != 0 && first_end > args.window ? first_end - args.window : 0;
  p.first_chunk = begin / kAttentionChunk;
  p.n_chunks = (args.position + args.n_rows + kAttentionChunk - 1) / kAttentionChunk - p.first_chunk;
  return p;
}

template <uint32_t kHeads>
void launch_chunks(const Params& p, uint32_t group, cudaStream_t stream) {
  const uint32_t shared = kAttentionChunk * (p.k_stage + p.v_stage) + kHeads * p.args.dk * 4;
  if (shared > 40 * 1024) {
    cuda_check(cudaFuncSetAttribute(chunk_kernel<kHeads>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
               "cudaFuncSetAttribute(chunk_kernel)", shared);
  }
  const dim3 grid(p.n_chunks, p.args.n_kv_heads * ((group + kHeads - 1) / kHeads), p.args.n_rows);
  chunk_kernel<kHeads><<<grid, kThreads, shared, stream>>>(p);
}

}  // namespace

uint64_t attention_scratch_floats(const AttentionArgs& args) noexcept {
  const Params p = params_of(args);
  return static_cast<uint64_t>(args.n_rows) * args.n_heads * p.n_chunks * ((args.dv + 1) / 2 * 2 + 2);
}

void attention(const AttentionArgs& args, cudaStream_t stream) {
  if (args.n_rows == 0 || args.n_heads == 0 || args.dv == 0) return;
  const Params p = params_of(args);
  const uint32_t group = args.n_heads / args.n_kv_heads;
  if (group == 1) {
    launch_chunks<1>(p, group, stream);
  } else if (group == 2) {
    launch_chunks<2>(p, group, stream);
  } else if (group <= 4) {
    launch_chunks<4>(p, group, stream);
  } else {
    launch_chunks<8>(p, group, stream);
  }
  check_launch("chunk_kernel");
  merge_kernel<<<dim3(args.n_heads, args.n_rows), kMergeThreads, 0, stream>>>(p);
  check_launch("merge_kernel");
}

}  // namespace outrider::cuda
