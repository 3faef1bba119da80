// SPDX-License-Identifier: Apache-2.0
// Row kernels: few tokens, so the time is that of reading the weights once (warp_rows.cuh). A launch may begin to read
// weights before the launch before it is done (ProductArgs::ahead). docs/cuda.md has the numbers behind each choice.
#pragma once

#include "outrider/cuda/device/overlap.cuh"
#include "outrider/cuda/device/quantize.cuh"
#include "outrider/cuda/product/warp_rows.cuh"

namespace outrider::cuda {
namespace {

// Gated blocks, one or (where the device has clusters) two together, make 32 rows: one block of the activations that
// the next product reads. kShort: rows of at most 24 blocks, as of an expert's down; they and gated rows come in one
// piece, because such launches are all latency; where they fill the device, alone or with others, they have short
// rings instead, for more warps. Several tokens decode once and read many activations: more streams.
template <typename Unit, uint32_t kTokens, bool kGated, bool kShort>
constexpr auto shape_of() {
  constexpr bool kLarge = Unit::kBytes / Unit::kSubs > 20;
  if constexpr (kTokens == 1 && kGated) {
    constexpr uint32_t kChunk = Unit::kBytes == 34 ? 16 : Unit::kBytes == 17 ? 32 : 64;
    constexpr uint32_t kStages = kChunk == 16 ? 3 : 64 / kChunk;
    return RowShape<2, 4, kChunk, kStages>{};
  } else if constexpr (kTokens == 1 && kShort) {
    return RowShape<2, 2, 24, 1>{};
  } else if constexpr (kTokens == 1) {
    return RowShape<1, 1, 32, 2>{};
  } else if constexpr (kGated) {
    constexpr uint32_t kChunk = kLarge ? 16 : 32;
    return RowShape<2, 8, kChunk, 2>{};
  } else if constexpr (kTokens == 2) {
    return RowShape<2, 2, 16, 2>{};
  } else if constexpr (kTokens == 4 && Unit::kBytes != 34 && Unit::kBytes != 210) {
    return RowShape<2, 2, 16, 3>{};
  } else {
    constexpr uint32_t kWarps = Unit::kBytes == 136 ? 1 : 4;
    constexpr uint32_t kChunk = Unit::kBytes == 34 && kTokens == 8 ? 8 : 16;
    return RowShape<4, kWarps, kChunk, 2>{};
  }
}
// Writes to the same place in the shared memory of the cluster's first block.
__device__ __forceinline__ void store_in_first_block(float* to, float value) {
#if __CUDA_ARCH__ >= 900
  uint32_t address;
  asm("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(address) : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))));
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
#endif
}
// The barrier of all threads of the blocks that share 32 rows, in two halves: a block's shared memory may be written
// from outside once all have arrived once.
template <uint32_t kParts>
__device__ __forceinline__ void arrive_parts() {
#if __CUDA_ARCH__ >= 900
  if constexpr (kParts != 1) asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}
template <uint32_t kParts>
__device__ __forceinline__ void wait_parts() {
  if constexpr (kParts == 1) {
    __syncthreads();
  } else {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
  }
}

// Blocks of one warp that share activations would take more than the 64 registers with which all 32 places of a large
// multiprocessor are used; small ones have 16 to 24 places. 0: no word.
template <typename Unit, uint32_t kTokens, typename Shape>
constexpr uint32_t least_blocks() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 800 && __CUDA_ARCH__ != 900
  constexpr uint32_t kPlaces = 16;
#else
  constexpr uint32_t kPlaces = 32;
#endif
  return shares_acts<Unit, kTokens, Shape>() ? kPlaces : 0;
}

template <typename Unit, uint32_t kTokens, bool kGated, typename Shape>
__global__ void __launch_bounds__(Shape::kWarps* kWarp, least_blocks<Unit, kTokens, Shape>())
    rows_kernel(const __grid_constant__ ProductParams p) {
  constexpr uint32_t kStreams = Shape::kStreams;
  constexpr uint32_t kRowsPerWarp = kRowsAtOnce * (kGated ? 1 : kStreams);
  extern __shared__ __align__(16) uint8_t shared[];
  __shared__ float tile[kGated ? kTokens : 1][kWarp];
  constexpr uint32_t kParts = kGated ? 8 / Shape::kWarps : 1;  // blocks, one cluster, that make 32 rows together
  arrive_parts<kParts>();
  let_next_launch_start();
  if (!p.ahead) wait_for_launch_before();
  const ProductJob job = p.jobs != nullptr ? p.jobs[blockIdx.y] : p.job;
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t warp = threadIdx.x / kWarp;
  const uint32_t group = lane / 8;
  const uint32_t j = lane % 8;
  const uint32_t row = (blockIdx.x * Shape::kWarps + warp) * kRowsPerWarp + group;  // of stream 0
  using Work = WarpRows<Unit, kTokens, Shape>;
  Work work{p, {}, nullptr, j, {}};
  work.ring = shared + warp * ring_bytes<Unit, Shape>(p.n_blocks) + group % 2 * Work::kPlaces.odd +
              group / 2 * Work::kPlaces.pair;
  if constexpr (Work::kShares) {
    work.common = reinterpret_cast<CommonActs*>(shared + Shape::kWarps * ring_bytes<Unit, Shape>(p.n_blocks)) + warp;
  }
  work.state = Work::One::make_state(j, hidden_zero(work.ring));
  set_rows<Work, kGated>(work, p, job, row);
  constexpr bool kMayLieTogether = kTokens == 1 && !kGated && Shape::kStages == 1;
  const auto start = [&] {
    if constexpr (kMayLieTogether) {
      if (Work::are_together(p, row - group)) {
        const auto* from = reinterpret_cast<const uint8_t*>(job.weights) + uint64_t{row - group} * p.row_bytes;
        return Work::start_together(p, shared + warp * ring_bytes<Unit, Shape>(p.n_blocks), from, lane);
      }
    }
    work.start();
  };
  if (job.n_pairs != 0) start();

  for (uint32_t begin = 0; begin < job.n_pairs || begin == 0; begin += kTokens) {
    uint32_t tokens[kTokens];  // first activation block of each
#pragma unroll
    for (uint32_t t = 0; t < kTokens; ++t) {
      const uint32_t pair = job.pair_begin + (begin + t < job.n_pairs ? begin + t : begin);
      tokens[t] = (p.token_rows != nullptr && begin < job.n_pairs ? p.token_rows[pair] : pair) * p.n_blocks;
    }
    if (p.ahead && begin == 0) wait_for_launch_before();
    if (job.n_pairs == 0) return;
    const Touched touched = touch_acts < kTokens == 1 ? Work::kForm : ActForm::kPlain > (p, tokens[0], lane);
    float lanes[kStreams][kTokens] = {};
    work.run(tokens, lanes);
    touched.keep();
    if (begin + kTokens < job.n_pairs && (kTokens != 1 || !Work::holds_rows(p.n_blocks))) start();
    float mine[kStreams] = {};  // thread j keeps token j
#pragma unroll
    for (uint32_t t = 0; t < kTokens; ++t) {
#pragma unroll
      for (uint32_t m = 0; m < kStreams; ++m) {
        const float sum = fold8(lanes[m][t]);
        if (t == j) mine[m] = sum;
      }
    }
    const bool is_mine = j < kTokens && begin + j < job.n_pairs;
    const uint64_t pair = job.pair_begin + begin + j;
    if constexpr (!kGated) {
#pragma unroll
      for (uint32_t m = 0; m < kStreams; ++m) {
        const uint32_t own = row + m * kRowsAtOnce;
        if (is_mine && own < p.n_rows) p.out[pair * p.out_stride + own] = mine[m];
      }
    } else {
      const uint32_t in_tile = (blockIdx.x % kParts * Shape::kWarps + warp) * kRowsPerWarp + group;
      wait_parts<kParts>();  // the tile is free
      if (is_mine) {
        const float value = swiglu_f32(mine[kStreams - 1], mine[0], p.alpha, p.limit);
        if constexpr (kParts == 1) {
          tile[j][in_tile] = value;
        } else {
          store_in_first_block(&tile[j][in_tile], value);
        }
        if (p.out != nullptr) p.out[pair * p.out_stride + row] = value;
      }
      arrive_parts<kParts>();
      wait_parts<kParts>();
      if (p.hidden.q != nullptr && blockIdx.x % kParts == 0 && warp < kTokens && begin + warp < job.n_pairs) {
        const uint64_t first = (job.pair_begin + begin + warp) * static_cast<uint64_t>(p.n_rows / 32);
        quantize_block(tile[warp][lane], lane, first + blockIdx.x / kParts, p.hidden);
      }
      arrive_parts<kParts>();
    }
  }
}

template <typename Unit, uint32_t kTokens, bool kGated, typename Shape>
void launch_rows(Shape, const ProductParams& p, uint32_t n_jobs, cudaStream_t stream) {
  constexpr uint32_t kRows = Shape::kWarps * kRowsAtOnce * (kGated ? 1 : Shape::kStreams);
  const uint32_t acts = shares_acts<Unit, kTokens, Shape>() ? sizeof(CommonActs) : 0;
  const uint32_t shared = Shape::kWarps * (ring_bytes<Unit, Shape>(p.n_blocks) + acts);
  const auto kernel = rows_kernel<Unit, kTokens, kGated, Shape>;
  if (shared > 47 * 1024) {
    cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
               "cudaFuncSetAttribute(rows_kernel)", shared);
  }
  const LaunchShape shape{dim3((p.n_rows + kRows - 1) / kRows, n_jobs), Shape::kWarps * kWarp, shared,
                          kGated ? 8 / Shape::kWarps : 1};
  launch_behind(kernel, shape, p, stream, "cudaLaunchKernelEx(rows_kernel)");
}

constexpr uint32_t kShortRow = 24;  // blocks

template <typename Unit, uint32_t kTokens, bool kGated, bool kShort = false>
void launch_rows(const ProductParams& p, uint32_t n_jobs, cudaStream_t stream) {
  launch_rows<Unit, kTokens, kGated>(shape_of<Unit, kTokens, kGated, kShort>(), p, n_jobs, stream);
}

// Whether there are more rows of one token than the warps of the device have at once.
inline bool fills_device(const ProductParams& p, uint32_t n_jobs) {
  constexpr uint64_t kWarpsAtOnce = 32;  // of a multiprocessor
  return uint64_t{p.n_rows} * n_jobs > kWarpsAtOnce * kRowsAtOnce * multiprocessors();
}

template <typename Unit, bool kGated>
void rows(const ProductParams& p, uint32_t n_jobs, uint32_t most_pairs, cudaStream_t stream) {
  if (most_pairs <= 1) {
    if constexpr (kGated) {
      if (!has_overlap() || p.beside || fills_device(p, n_jobs)) {
        return launch_rows<Unit, 1, true>(RowShape<2, 8, 16, 2>{}, p, n_jobs, stream);
      }
    } else if (p.n_blocks <= kShortRow) {
      return launch_rows<Unit, 1, false, true>(p, n_jobs, stream);
    }
    return launch_rows<Unit, 1, kGated>(p, n_jobs, stream);
  }
  if (most_pairs <= 2) return launch_rows<Unit, 2, kGated>(p, n_jobs, stream);
  if (most_pairs <= 4) return launch_rows<Unit, 4, kGated>(p, n_jobs, stream);
  return launch_rows<Unit, 8, kGated>(p, n_jobs, stream);
}

}  // namespace
}  // namespace outrider::cuda
