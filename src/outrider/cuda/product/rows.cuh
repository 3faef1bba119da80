// SPDX-License-Identifier: Apache-2.0
// Row kernels: few tokens, so the time is that of reading the weights once. A warp owns four rows; eight threads a row
// are the eight lanes of the law, thread j takes blocks j, j + 8, ... in rising order, so no sum crosses threads before the
// fold. The rows come through shared memory in rings private to each warp: 16-byte cp.async whatever the block size (18,
// 34, 210 bytes), enough bytes in flight, and no barrier in the loop. docs/cuda.md has the numbers behind each choice.
#pragma once

#include "outrider/cuda/device/quantize.cuh"
#include "outrider/cuda/device/units.cuh"
#include "outrider/cuda/product/variants.h"

namespace outrider::cuda {
namespace {

// Stages of a ring. Two matrices a warp keep as many bytes in flight with two as one with three, and 84 KB of shared
// memory instead of 126 let two blocks share a multiprocessor.
constexpr uint32_t stages_of(bool is_gated) { return is_gated ? 2 : 3; }
constexpr uint32_t kRowsPerWarp = 4;
constexpr uint32_t kGatedWarps = 8;  // 32 rows: one block of the activations that the next product reads
constexpr uint32_t kPlainWarps = 4;

// Blocks of a row in one stage: a multiple of 8, about 512 bytes.
template <typename Unit>
constexpr uint32_t chunk_blocks() {
  return Unit::kBytes / Unit::kSubs > 20 ? 16 : 32;
}
template <typename Unit>
constexpr uint32_t chunk_bytes() {
  return chunk_blocks<Unit>() / Unit::kSubs * Unit::kBytes;
}

// Bytes from row to row of a stage: room for the chunk and its misaligned ends, and a row's eight blocks continue the
// banks of the row before, so that 32 threads read as if their blocks lay side by side.
template <typename Unit>
constexpr uint32_t row_stride() {
  const uint32_t wanted_bank = 8 * Unit::kBytes / Unit::kSubs / 4 / 4 * 4 % 32;
  uint32_t words = (chunk_bytes<Unit>() + 32 + 15) / 16 * 4;
  while (words % 32 != wanted_bank) words += 4;
  return words * 4;
}

template <typename Unit, bool kGated>
constexpr uint32_t shared_bytes() {
  const uint32_t warps = kGated ? kGatedWarps : kPlainWarps;
  return warps * stages_of(kGated) * (kGated ? 2 : 1) * kRowsPerWarp * row_stride<Unit>();
}

__device__ __forceinline__ void copy_async16(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
               "l"(from)
               : "memory");
}
__device__ __forceinline__ void commit_async() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kLeft>
__device__ __forceinline__ void wait_async() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// Copies the bytes [offset, offset + n_bytes) of a row to `to`, where they start at (address mod 16), by eight threads.
__device__ __forceinline__ void copy_row(uint8_t* to, const uint8_t* from, uint32_t n_bytes, uint32_t j) {
  const uint32_t skew = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(from) & 15U);
  const uint8_t* aligned = from - skew;
  for (uint32_t at = 16 * j; at < skew + n_bytes; at += 16 * 8) copy_async16(to + at, aligned + at);
}

template <typename Unit>
__device__ __forceinline__ void load_acts(const ProductParams& p, uint64_t token, uint32_t b, BlockActs& a) {
  const uint64_t block = token * p.n_blocks + b;
  const int4* q = reinterpret_cast<const int4*>(p.q + block * 32);
  const int4 low = __ldg(q);
  const int4 high = __ldg(q + 1);
  a.q[0] = low.x, a.q[1] = low.y, a.q[2] = low.z, a.q[3] = low.w;
  a.q[4] = high.x, a.q[5] = high.y, a.q[6] = high.z, a.q[7] = high.w;
  a.d = __ldg(p.d + block);
  if constexpr (Unit::kHasMin && Unit::kHalves) {
    const short2 sums = __ldg(reinterpret_cast<const short2*>(p.sum16) + block);
    a.sum0 = sums.x, a.sum1 = sums.y;
  } else if constexpr (Unit::kHasMin) {
    a.sum0 = __ldg(p.sum32 + block);
  }
}

// The products of this thread's row (or rows, gate second) with kTokens tokens: its lane of each.
template <typename Unit, uint32_t kTokens, uint32_t kMatrices>
struct WarpRows {
  static constexpr uint32_t kStages = stages_of(kMatrices == 2);
  const ProductParams& p;
  const uint8_t* rows[kMatrices];  // this thread's row of each matrix
  uint8_t* ring;                   // of the warp
  uint32_t group, j;               // row within the warp, lane of the law

  __device__ __forceinline__ uint8_t* slot(uint32_t chunk, uint32_t matrix) const {
    return ring + ((chunk % kStages * kMatrices + matrix) * kRowsPerWarp + group) * row_stride<Unit>();
  }
  __device__ __forceinline__ void issue(uint32_t chunk, uint32_t n_chunks) const {
    if (chunk < n_chunks) {
      const uint32_t offset = chunk * chunk_bytes<Unit>();
      const uint32_t row_bytes = p.row_bytes;
      const uint32_t left = row_bytes - offset;
#pragma unroll
      for (uint32_t m = 0; m < kMatrices; ++m) {
        copy_row(slot(chunk, m), rows[m] + offset, left < chunk_bytes<Unit>() ? left : chunk_bytes<Unit>(), j);
      }
    }
    commit_async();
  }

  __device__ __forceinline__ void run(const uint64_t (&tokens)[kTokens], float (&lanes)[kMatrices][kTokens]) const {
    const uint32_t n_chunks = (p.n_blocks + chunk_blocks<Unit>() - 1) / chunk_blocks<Unit>();
#pragma unroll
    for (uint32_t c = 0; c < kStages - 1; ++c) issue(c, n_chunks);
    for (uint32_t c = 0; c < n_chunks; ++c) {
      wait_async<kStages - 2>();
      __syncwarp();  // everyone's part of chunk c is there, and everyone is done with the slot filled next
      issue(c + kStages - 1, n_chunks);
      compute(c, tokens, lanes);
    }
    __syncwarp();
  }

  __device__ __forceinline__ void compute(uint32_t c, const uint64_t (&tokens)[kTokens],
                                          float (&lanes)[kMatrices][kTokens]) const {
    const uint8_t* at[kMatrices];
#pragma unroll
    for (uint32_t m = 0; m < kMatrices; ++m) {
      at[m] = slot(c, m) + (reinterpret_cast<uintptr_t>(rows[m] + c * chunk_bytes<Unit>()) & 15U);
    }
    const uint32_t first = c * chunk_blocks<Unit>();
#pragma unroll(kTokens == 1 ? 2 : 1)
    for (uint32_t i = 0; i < chunk_blocks<Unit>() / 8; ++i) {
      const uint32_t local = 8 * i + j;
      if (first + local >= p.n_blocks) break;
      BlockCodes codes[kMatrices];
#pragma unroll
      for (uint32_t m = 0; m < kMatrices; ++m) {
        Unit::load(at[m] + local / Unit::kSubs * Unit::kBytes, local % Unit::kSubs, codes[m]);
      }
#pragma unroll
      for (uint32_t t = 0; t < kTokens; ++t) {
        BlockActs acts;
        load_acts<Unit>(p, tokens[t], first + local, acts);
#pragma unroll
        for (uint32_t m = 0; m < kMatrices; ++m) lanes[m][t] = join<Unit>(codes[m], acts, lanes[m][t]);
      }
    }
  }
};

template <typename Unit, uint32_t kTokens, bool kGated>
__global__ void __launch_bounds__((kGated ? kGatedWarps : kPlainWarps) * kWarp)
    rows_kernel(const __grid_constant__ ProductParams p) {
  constexpr uint32_t kMatrices = kGated ? 2 : 1;
  constexpr uint32_t kWarps = kGated ? kGatedWarps : kPlainWarps;
  extern __shared__ __align__(16) uint8_t shared[];
  __shared__ float tile[kGated ? kTokens : 1][kWarp];
  const ProductJob job = p.jobs != nullptr ? p.jobs[blockIdx.y] : p.job;
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t warp = threadIdx.x / kWarp;
  const uint32_t group = lane / 8;
  const uint32_t j = lane % 8;
  const uint32_t row = (blockIdx.x * kWarps + warp) * kRowsPerWarp + group;
  const uint32_t read_row = row < p.n_rows ? row : p.n_rows - 1;
  const uint64_t offset = static_cast<uint64_t>(read_row) * p.row_bytes;
  WarpRows<Unit, kTokens, kMatrices> work{
      p, {}, shared + warp * stages_of(kGated) * kMatrices * kRowsPerWarp * row_stride<Unit>(), group, j};
  work.rows[0] = reinterpret_cast<const uint8_t*>(job.weights) + offset;
  if constexpr (kGated) work.rows[1] = reinterpret_cast<const uint8_t*>(job.gate) + offset;

  for (uint32_t begin = 0; begin < job.n_pairs; begin += kTokens) {
    uint64_t tokens[kTokens];
#pragma unroll
    for (uint32_t t = 0; t < kTokens; ++t) {
      const uint32_t pair = job.pair_begin + (begin + t < job.n_pairs ? begin + t : begin);
      tokens[t] = p.token_rows != nullptr ? p.token_rows[pair] : pair;
    }
    float lanes[kMatrices][kTokens] = {};
    work.run(tokens, lanes);
    float mine[kMatrices] = {};  // thread j keeps token j
#pragma unroll
    for (uint32_t t = 0; t < kTokens; ++t) {
#pragma unroll
      for (uint32_t m = 0; m < kMatrices; ++m) {
        const float sum = fold8(lanes[m][t]);
        if (t == j) mine[m] = sum;
      }
    }
    const bool is_mine = j < kTokens && begin + j < job.n_pairs;
    const uint64_t pair = job.pair_begin + begin + j;
    if constexpr (!kGated) {
      if (is_mine && row < p.n_rows) p.out[pair * p.out_stride + row] = mine[0];
    } else {
      if (is_mine) {
        const float value = swiglu_f32(mine[1], mine[0], p.alpha, p.limit);
        tile[j][warp * kRowsPerWarp + group] = value;
        if (p.out != nullptr) p.out[pair * p.out_stride + row] = value;
      }
      __syncthreads();
      if (p.hidden.q != nullptr && warp < kTokens && begin + warp < job.n_pairs) {
        const uint64_t block = (job.pair_begin + begin + warp) * static_cast<uint64_t>(p.n_rows / 32) + blockIdx.x;
        quantize_block(tile[warp][lane], lane, block, p.hidden);
      }
      __syncthreads();
    }
  }
}

template <typename Unit, uint32_t kTokens, bool kGated>
void launch_rows(const ProductParams& p, uint32_t n_jobs, cudaStream_t stream) {
  constexpr uint32_t kWarps = kGated ? kGatedWarps : kPlainWarps;
  constexpr uint32_t kShared = shared_bytes<Unit, kGated>();
  const auto kernel = rows_kernel<Unit, kTokens, kGated>;
  if constexpr (kShared > 48 * 1024) {
    cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
               "cudaFuncSetAttribute(rows_kernel)", kShared);
  }
  const dim3 grid((p.n_rows + kWarps * kRowsPerWarp - 1) / (kWarps * kRowsPerWarp), n_jobs);
  kernel<<<grid, kWarps * kWarp, kShared, stream>>>(p);
  check_launch("rows_kernel");
}

template <typename Unit, bool kGated>
void rows(const ProductParams& p, uint32_t n_jobs, uint32_t most_pairs, cudaStream_t stream) {
  if (most_pairs <= 1) return launch_rows<Unit, 1, kGated>(p, n_jobs, stream);
  if (most_pairs <= 2) return launch_rows<Unit, 2, kGated>(p, n_jobs, stream);
  if (most_pairs <= 4) return launch_rows<Unit, 4, kGated>(p, n_jobs, stream);
  return launch_rows<Unit, 8, kGated>(p, n_jobs, stream);
}

}  // namespace
}  // namespace outrider::cuda
