// SPDX-License-Identifier: Apache-2.0
// Attention over chunks of 128 positions: one block of threads per (chunk, KV head, row) makes the (max, sum, out) of
// up to eight query heads (attention128.cuh for heads of 128 elements, attention_chunk.cuh for all others), a second
// kernel merges the chunks of a head in rising order (attention_merge.cuh). The chunk grid starts at position 0, so a
// row's bits depend on its own history only.
#include "outrider/cuda/attention128.cuh"
#include "outrider/cuda/attention_chunk.cuh"
#include "outrider/cuda/attention_merge.cuh"
#include "outrider/cuda/runtime.h"

namespace outrider::cuda {
namespace {

// A chunk for heads of 128 elements, cached as one type (attention128.cuh).
template <uint32_t kHeads, KvType kType>
__global__ void __launch_bounds__(kWideThreads, 8) wide_kernel(const __grid_constant__ Params p) {
  using Layout = WideLayout<kType>;
  extern __shared__ __align__(16) uint8_t shared[];
  __shared__ __align__(16) float e[kAttentionChunk][kHeads];
  let_next_launch_start();
  const AttentionArgs& args = p.args;
  // A chunk of old positions need not wait for what the launch before wrote, but for its queries.
  const bool is_ahead = args.ahead && (p.first_chunk + blockIdx.x + 1) * kAttentionChunk <= args.position;
  if (!is_ahead) wait_for_launch_before();
  const Part part = part_of<kHeads>(p);
  const uint64_t begin = (p.first_chunk + blockIdx.x) * uint64_t{kAttentionChunk};
  const WideChunk chunk{part.keys + begin * args.k_stride,
                        part.values + begin * args.v_stride,
                        static_cast<uint32_t>(args.k_stride),
                        static_cast<uint32_t>(args.v_stride),
                        static_cast<uint32_t>(part.range.begin - begin),
                        static_cast<uint32_t>(part.range.end - begin)};
  const uint32_t warp = threadIdx.x / kWarp;
  const uint32_t lane = threadIdx.x % kWarp;
  WideWarp<kHeads, kType> work(chunk, shared + warp * (Layout::kShared / 2), e);
  if (part.range.begin < part.range.end) work.start();
  if (is_ahead) wait_for_launch_before();
  if (part.range.begin >= part.range.end) return;
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
    float* out = args.scratch + out_at(p, part.row, part.head + h, 2 * threadIdx.x, blockIdx.x);
    *reinterpret_cast<float2*>(out) = make_float2(o[h][0], o[h][1]);
  }
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
  constexpr uint64_t kMostStride = ~0U / kWidePositions;  // distances in a chunk are 32-bit numbers
  return args.dk == kWideElems && args.dv == kWideElems && args.k_type == args.v_type && args.k_stride % 16 == 0 &&
         args.v_stride % 16 == 0 && args.k_stride <= kMostStride && args.v_stride <= kMostStride &&
         reinterpret_cast<uintptr_t>(args.k_cache) % 16 == 0 && reinterpret_cast<uintptr_t>(args.v_cache) % 16 == 0;
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
  return static_cast<uint64_t>(args.n_rows) * args.n_heads * p.n_chunks * (column_groups(args.dv) * kMergeColumns + 2);
}

void attention(const AttentionArgs& args, cudaStream_t stream) {
  if (args.n_rows == 0 || args.n_heads == 0 || args.dv == 0) return;
  const Params p = params_of(args);
  launch_all_chunks(p, stream);
  const dim3 grid(args.n_heads, args.n_rows, column_groups(args.dv));
  launch_behind(merge_kernel, {grid, kMergeThreads, 0}, p, stream, "cudaLaunchKernelEx(merge_kernel)");
}

}  // namespace outrider::cuda
