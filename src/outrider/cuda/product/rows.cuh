// SPDX-License-Identifier: Apache-2.0
// Row kernels: few tokens, so the time is that of reading the weights once. A warp owns four rows; eight threads a row
// are the eight lanes of the law, thread j takes blocks j, j + 8, ... in rising order, so no sum crosses threads before
// the fold. The rows come through shared memory in rings private to each warp: 16-byte cp.async whatever the block size
// (18, 34, 210 bytes), enough bytes in flight, and no barrier in the loop. docs/cuda.md has the numbers behind each
// choice.
#pragma once

#include "outrider/cuda/device/quantize.cuh"
#include "outrider/cuda/device/units.cuh"
#include "outrider/cuda/product/variants.h"

namespace outrider::cuda {
namespace {

constexpr uint32_t kStages = 2;
constexpr uint32_t kRowsAtOnce = 4;  // of one stream, a warp

// Streams: rows that a thread works on at once, so that activations are read once for all of them. The same row of gate
// and up, or rows four apart. Reading activations is what many tokens cost, so they get more streams. One token has one
// stream: its time is latency, so gate and up go to different warps too.
constexpr uint32_t streams_of(uint32_t n_tokens, bool is_gated) {
  return n_tokens == 1 ? 1 : is_gated || n_tokens == 2 ? 2 : 4;
}
// Warps of a block of threads. Gated ones make 32 rows: one block of the activations that the next product reads.
constexpr uint32_t warps_of(uint32_t n_tokens, bool is_gated) { return !is_gated ? 4 : n_tokens == 1 ? 16 : 8; }

// Blocks of a row in one stage: about 512 bytes, half of it with four streams. Less costs instructions a block, more
// leaves room for fewer warps.
template <typename Unit, uint32_t kStreams>
constexpr uint32_t chunk_blocks() {
  return (Unit::kBytes / Unit::kSubs > 20 ? 16 : 32) / (kStreams == 4 ? 2 : 1);
}
template <typename Unit, uint32_t kStreams>
constexpr uint32_t chunk_bytes() {
  return chunk_blocks<Unit, kStreams>() / Unit::kSubs * Unit::kBytes;
}

// Bytes from row to row of a stage in shared memory: room for n_bytes and their misaligned ends, and a row's eight
// blocks continue the banks of the row before, so that 32 threads read as if their blocks lay side by side.
constexpr uint32_t ring_stride(uint32_t n_bytes, uint32_t bytes_of_eight_blocks) {
  const uint32_t wanted_bank = bytes_of_eight_blocks / 4 / 4 * 4 % 32;
  uint32_t words = (n_bytes + 32 + 15) / 16 * 4;
  while (words % 32 != wanted_bank) words += 4;
  return words * 4;
}
template <typename Unit, uint32_t kStreams>
constexpr uint32_t row_stride() {
  return ring_stride(chunk_bytes<Unit, kStreams>(), 8 * Unit::kBytes / Unit::kSubs);
}

// A ring has no more stages than a row has chunks, so that short rows leave room for more blocks of threads.
template <typename Unit, uint32_t kStreams>
__host__ __device__ constexpr uint32_t chunks_of(uint32_t n_blocks) {
  return (n_blocks + chunk_blocks<Unit, kStreams>() - 1) / chunk_blocks<Unit, kStreams>();
}
template <typename Unit, uint32_t kStreams>
__host__ __device__ constexpr uint32_t ring_bytes(uint32_t n_blocks) {
  const uint32_t n_chunks = chunks_of<Unit, kStreams>(n_blocks);
  return (n_chunks < kStages ? n_chunks : kStages) * kStreams * kRowsAtOnce * row_stride<Unit, kStreams>();
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
__device__ __forceinline__ void load_acts(const ProductParams& p, uint32_t block, BlockActs& a) {
  const int4* q = reinterpret_cast<const int4*>(p.q + block * uint64_t{32});
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

// The products of this thread's rows with kTokens tokens: its lane of each.
template <typename Unit, uint32_t kTokens, uint32_t kStreams>
struct WarpRows {
  static constexpr uint32_t kChunkBlocks = chunk_blocks<Unit, kStreams>();
  static constexpr uint32_t kChunkBytes = chunk_bytes<Unit, kStreams>();
  const ProductParams& p;
  const uint8_t* rows[kStreams];
  uint8_t* ring;      // of the warp
  uint32_t group, j;  // row within the warp, lane of the law

  __device__ __forceinline__ uint8_t* slot(uint32_t chunk, uint32_t stream) const {
    return ring + ((chunk % kStages * kStreams + stream) * kRowsAtOnce + group) * row_stride<Unit, kStreams>();
  }
  __device__ __forceinline__ void issue(uint32_t chunk, uint32_t n_chunks) const {
    if (chunk < n_chunks) {
      const uint32_t offset = chunk * kChunkBytes;
      const uint32_t left = p.row_bytes - offset;
#pragma unroll
      for (uint32_t m = 0; m < kStreams; ++m) {
        copy_row(slot(chunk, m), rows[m] + offset, left < kChunkBytes ? left : kChunkBytes, j);
      }
    }
    commit_async();
  }

  __device__ __forceinline__ void run(const uint32_t (&tokens)[kTokens], float (&lanes)[kStreams][kTokens]) const {
    const uint32_t n_chunks = chunks_of<Unit, kStreams>(p.n_blocks);
#pragma unroll
    for (uint32_t c = 0; c < kStages; ++c) issue(c, n_chunks);
    for (uint32_t c = 0; c < n_chunks; ++c) {
      wait_async<kStages - 1>();
      __syncwarp();  // everyone's part of chunk c is there
      compute(c, tokens, lanes);
      __syncwarp();  // everyone is done with the slot
      issue(c + kStages, n_chunks);
    }
  }

  __device__ __forceinline__ void compute(uint32_t c, const uint32_t (&tokens)[kTokens],
                                          float (&lanes)[kStreams][kTokens]) const {
    const uint8_t* at[kStreams];
#pragma unroll
    for (uint32_t m = 0; m < kStreams; ++m) {
      at[m] = slot(c, m) + (reinterpret_cast<uintptr_t>(rows[m] + c * kChunkBytes) & 15U);
    }
    const uint32_t first = c * kChunkBlocks;
    // Batches without a branch, so that the reads of all their blocks are under way at once; then what is left.
    constexpr uint32_t kBatch = kTokens <= 2 ? 2 : 1;
    uint32_t i = 0;
    for (; i + kBatch <= kChunkBlocks / 8 && first + 8 * (i + kBatch) <= p.n_blocks; i += kBatch) {
#pragma unroll
      for (uint32_t u = 0; u < kBatch; ++u) join_block(at, first, 8 * (i + u) + j, tokens, lanes);
    }
    for (; i < kChunkBlocks / 8 && first + 8 * i + j < p.n_blocks; ++i) join_block(at, first, 8 * i + j, tokens, lanes);
  }

  // Block `first` + `local` joins this thread's lanes.
  __device__ __forceinline__ void join_block(const uint8_t* const (&at)[kStreams], uint32_t first, uint32_t local,
                                             const uint32_t (&tokens)[kTokens],
                                             float (&lanes)[kStreams][kTokens]) const {
    BlockCodes codes[kStreams];
#pragma unroll
    for (uint32_t m = 0; m < kStreams; ++m) {
      Unit::load(at[m] + local / Unit::kSubs * Unit::kBytes, local % Unit::kSubs, codes[m]);
    }
#pragma unroll
    for (uint32_t t = 0; t < kTokens; ++t) {
      BlockActs acts;
      load_acts<Unit>(p, tokens[t] + first + local, acts);
#pragma unroll
      for (uint32_t m = 0; m < kStreams; ++m) lanes[m][t] = join<Unit>(codes[m], acts, lanes[m][t]);
    }
  }
};

template <typename Unit, uint32_t kTokens, bool kGated>
__global__ void __launch_bounds__(warps_of(kTokens, kGated) * kWarp)
    rows_kernel(const __grid_constant__ ProductParams p) {
  constexpr uint32_t kStreams = streams_of(kTokens, kGated);
  constexpr uint32_t kWarps = warps_of(kTokens, kGated);
  constexpr uint32_t kRowsPerWarp = kRowsAtOnce * (kGated ? 1 : kStreams);
  constexpr bool kApart = kGated && kStreams == 1;  // warps 8 to 15 have the gate's rows
  extern __shared__ __align__(16) uint8_t shared[];
  __shared__ float tile[kGated ? kTokens : 1][kWarp];
  __shared__ float gates[kWarp];
  const ProductJob job = p.jobs != nullptr ? p.jobs[blockIdx.y] : p.job;
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t warp = threadIdx.x / kWarp;
  const uint32_t group = lane / 8;
  const uint32_t j = lane % 8;
  const uint32_t row_warp = kApart ? warp % 8 : warp;
  const uint32_t row = (blockIdx.x * (kApart ? 8 : kWarps) + row_warp) * kRowsPerWarp + group;  // of stream 0
  WarpRows<Unit, kTokens, kStreams> work{p, {}, shared + warp * ring_bytes<Unit, kStreams>(p.n_blocks), group, j};
#pragma unroll
  for (uint32_t m = 0; m < kStreams; ++m) {
    const uint32_t own = row + (kGated ? 0 : m * kRowsAtOnce);
    const auto* base = reinterpret_cast<const uint8_t*>(kGated && (m == 1 || warp >= 8) ? job.gate : job.weights);
    work.rows[m] = base + static_cast<uint64_t>(own < p.n_rows ? own : p.n_rows - 1) * p.row_bytes;
  }

  for (uint32_t begin = 0; begin < job.n_pairs; begin += kTokens) {
    uint32_t tokens[kTokens];  // first activation block of each
#pragma unroll
    for (uint32_t t = 0; t < kTokens; ++t) {
      const uint32_t pair = job.pair_begin + (begin + t < job.n_pairs ? begin + t : begin);
      tokens[t] = (p.token_rows != nullptr ? p.token_rows[pair] : pair) * p.n_blocks;
    }
    float lanes[kStreams][kTokens] = {};
    work.run(tokens, lanes);
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
      if constexpr (kApart) {
        if (j == 0 && warp >= 8) gates[row_warp * kRowsPerWarp + group] = mine[0];
        __syncthreads();
      }
      if (is_mine && (!kApart || warp < 8)) {
        const float gate = kApart ? gates[row_warp * kRowsPerWarp + group] : mine[kStreams - 1];
        const float value = swiglu_f32(gate, mine[0], p.alpha, p.limit);
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
  constexpr uint32_t kStreams = streams_of(kTokens, kGated);
  constexpr uint32_t kWarps = warps_of(kTokens, kGated);
  constexpr uint32_t kRows = kGated ? 32 : kWarps * kRowsAtOnce * kStreams;
  const uint32_t shared = kWarps * ring_bytes<Unit, kStreams>(p.n_blocks);
  const auto kernel = rows_kernel<Unit, kTokens, kGated>;
  if (shared > 47 * 1024) {
    cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
               "cudaFuncSetAttribute(rows_kernel)", shared);
  }
  kernel<<<dim3((p.n_rows + kRows - 1) / kRows, n_jobs), kWarps * kWarp, shared, stream>>>(p);
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
