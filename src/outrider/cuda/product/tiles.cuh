// SPDX-License-Identifier: Apache-2.0
// Tiles for many tokens: 64 rows by 64 tokens a block of 256 threads, 16 by 32 a warp, on the int8 tensor cores. One
// mma.m16n8k32 gives the exact integers of one block b for 16 rows and 8 tokens; each joins its lane b mod 8 by fma in
// rising b, which is the law itself: a thread keeps eight accumulators an output, 128 registers.
// The bound: a block of 32 costs an output 64 integer operations on the tensor cores and at least three on the f32
// units (widen, d_w * d_a, fma), which is 32 % of the H200's dense int8 peak however the rest is done (docs/cuda.md).
// Weights arrive raw by cp.async, are decoded once per block into int8, and meet the codes of the activations.
#pragma once

#include "outrider/cuda/product/rows.cuh"

namespace outrider::cuda {
namespace {

constexpr uint32_t kTileRows = 64;
constexpr uint32_t kTileTokens = 64;
constexpr uint32_t kTileThreads = 256;
constexpr uint32_t kStepBlocks = 8;    // blocks of 32 elements a step
constexpr uint32_t kCodeStride = 288;  // 256 bytes of codes and 32 of padding: fragments read without bank conflicts
constexpr uint32_t kNTiles = 4;        // of 8 tokens, a warp

// Four accumulators start at 1.5 * 2^23 as f32 bits: integers below 2^22 added to it widen by one subtraction.
constexpr int32_t kWidenBits = 0x4B400000;
constexpr float kWiden = 12582912.0F;

__device__ __forceinline__ float widened(int32_t sum) { return __fsub_rn(__int_as_float(sum), kWiden); }

// Sums start at kWidenBits, from registers that stay as they are.
__device__ __forceinline__ void mma_k32(int32_t (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
      : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(kWidenBits));
}
__device__ __forceinline__ void mma_k16(int32_t (&c)[4], uint32_t a0, uint32_t a1, uint32_t b0) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%7,%7,%7};"
      : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
      : "r"(a0), "r"(a1), "r"(b0), "r"(kWidenBits));
}

__device__ __forceinline__ void copy_async4(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
               "l"(from)
               : "memory");
}

// Shared memory of one block.
template <typename Unit>
struct TileMemory {
  static constexpr uint32_t kStepBytes = kStepBlocks / Unit::kSubs * Unit::kBytes;
  static constexpr uint32_t kRawStride = ring_stride(kStepBytes, kStepBytes);
  static constexpr uint32_t kFactors = 1 + (Unit::kHasMin ? 2 : 0) + (has_scale<Unit>() ? 1 : 0) +
                                       (Unit::kHalves ? 1 : 0) + (Unit::kHasMin && Unit::kHalves ? 1 : 0);
  uint8_t raw[3][kTileRows * kRawStride];
  uint8_t x[3][kTileTokens * kCodeStride];
  uint8_t w[2][kTileRows * kCodeStride];
  float x_d[3][kStepBlocks][kTileTokens];
  int32_t x_sums[Unit::kHasMin ? 3 : 1][Unit::kHasMin ? kStepBlocks : 1][kTileTokens];
  float factors[2][kFactors][kTileRows][kStepBlocks + 1];  // d, scale0, scale1, d_min, min0, min1: those the type has
};

template <typename Unit>
struct Tile {
  using Memory = TileMemory<Unit>;
  static constexpr uint32_t kScale0 = 1;
  static constexpr uint32_t kScale1 = 2;
  static constexpr uint32_t kDMin = 1 + (has_scale<Unit>() ? 1 : 0) + (Unit::kHalves ? 1 : 0);
  static constexpr uint32_t kMin0 = kDMin + 1;
  static constexpr uint32_t kMin1 = kDMin + 2;

  const ProductParams& p;
  Memory& memory;
  const uint8_t* weights;
  uint32_t row_begin, n_steps, tid;
  uint64_t token_of_thread;  // the row of x whose factors this thread copies
  uint64_t token_of_copy[4];

  // Starts the copies of step s.
  __device__ __forceinline__ void issue(uint32_t s) const {
    if (s < n_steps) {
      const uint32_t slot = s % 3;
      const uint32_t row = row_begin + tid / 4;
      const uint32_t read_row = row < p.n_rows ? row : p.n_rows - 1;
      const uint8_t* from = weights + static_cast<uint64_t>(read_row) * p.row_bytes + s * Memory::kStepBytes;
      const uint32_t left = p.row_bytes - s * Memory::kStepBytes;
      const uint32_t skew = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(from) & 15U);
      const uint32_t end = skew + (left < Memory::kStepBytes ? left : Memory::kStepBytes);
      for (uint32_t at = tid % 4 * 16; at < end; at += 64) {
        copy_async16(memory.raw[slot] + tid / 4 * Memory::kRawStride + at, from - skew + at);
      }
      const uint32_t piece = tid % 16;  // of 16 bytes, two a block
      if (s * kStepBlocks + piece / 2 < p.n_blocks) {
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
          const uint32_t token = tid / 16 + 16 * i;
          copy_async16(memory.x[slot] + token * kCodeStride + 16 * piece,
                       p.q + (token_of_copy[i] * p.n_blocks + s * kStepBlocks) * 32 + 16 * piece);
        }
      }
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) {
        const uint32_t b = tid / kTileTokens + 4 * i;
        if (s * kStepBlocks + b >= p.n_blocks) continue;
        const uint64_t block = token_of_thread * p.n_blocks + s * kStepBlocks + b;
        copy_async4(&memory.x_d[slot][b][tid % kTileTokens], p.d + block);
        if constexpr (Unit::kHasMin && Unit::kHalves) {
          copy_async4(&memory.x_sums[slot][b][tid % kTileTokens], p.sum16 + 2 * block);
        } else if constexpr (Unit::kHasMin) {
          copy_async4(&memory.x_sums[slot][b][tid % kTileTokens], p.sum32 + block);
        }
      }
    }
    commit_async();
  }

  // Turns the raw blocks of step s into codes and factors: two blocks a thread, eight threads a row, so that a warp
  // reads 32 blocks that lie side by side as far as banks go.
  __device__ __forceinline__ void decode(uint32_t s) const {
    if (s >= n_steps) return;
    const uint32_t b = tid % kStepBlocks;
    if (s * kStepBlocks + b >= p.n_blocks) return;
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t row = tid / kStepBlocks + 32 * i;
      const uint32_t real = row_begin + row < p.n_rows ? row_begin + row : p.n_rows - 1;
      const uint8_t* from = weights + static_cast<uint64_t>(real) * p.row_bytes + s * Memory::kStepBytes;
      const uint8_t* raw = memory.raw[s % 3] + row * Memory::kRawStride + (reinterpret_cast<uintptr_t>(from) & 15U);
      BlockCodes codes;
      Unit::load(raw + b / Unit::kSubs * Unit::kBytes, b % Unit::kSubs, codes);
      auto* to = reinterpret_cast<int4*>(memory.w[s % 2] + row * kCodeStride + 32 * b);
      to[0] = make_int4(codes.words[0], codes.words[1], codes.words[2], codes.words[3]);
      to[1] = make_int4(codes.words[4], codes.words[5], codes.words[6], codes.words[7]);
      auto& factors = memory.factors[s % 2];
      factors[0][row][b] = codes.d;
      if constexpr (has_scale<Unit>()) factors[kScale0][row][b] = static_cast<float>(codes.scale0);
      if constexpr (Unit::kHalves) factors[kScale1][row][b] = static_cast<float>(codes.scale1);
      if constexpr (Unit::kHasMin) {
        factors[kDMin][row][b] = codes.d_min;
        factors[kMin0][row][b] = static_cast<float>(codes.min0);
        if constexpr (Unit::kHalves) factors[kMin1][row][b] = static_cast<float>(codes.min1);
      }
    }
  }

  // The two words of a block that this thread gives to an mma. The order of elements in a block is free, as long as
  // weights and activations agree: neighbours, or one of each half where the halves are summed apart.
  static __device__ __forceinline__ uint2 fragment(const uint8_t* block, uint32_t t) {
    if constexpr (Unit::kHalves) {
      const auto* words = reinterpret_cast<const uint32_t*>(block);
      return make_uint2(words[t], words[t + 4]);
    } else {
      return reinterpret_cast<const uint2*>(block)[t];
    }
  }

  // The sums of one block for the warp's 16 rows and 32 tokens, on their way out of the tensor cores.
  struct Sums {
    int32_t c[kNTiles][Unit::kHalves ? 2 : 1][4];
  };

  __device__ __forceinline__ void start(uint32_t s, uint32_t b, uint32_t row, uint32_t token, Sums& sums) const {
    const uint32_t g = tid % kWarp / 4;
    const uint32_t t = tid % 4;
    const uint8_t* w = memory.w[s % 2] + (row + g) * kCodeStride + 32 * b;
    const uint8_t* x = memory.x[s % 3] + (token + g) * kCodeStride + 32 * b;
    const uint2 a0 = fragment(w, t);
    const uint2 a1 = fragment(w + 8 * kCodeStride, t);
    const uint32_t a[4] = {a0.x, a1.x, a0.y, a1.y};
#pragma unroll
    for (uint32_t n = 0; n < kNTiles; ++n) {
      const uint2 pair = fragment(x + 8 * n * kCodeStride, t);
      auto& c = sums.c[n];
      if constexpr (Unit::kHalves) {
        mma_k16(c[0], a[0], a[1], pair.x);
        mma_k16(c[1], a[2], a[3], pair.y);
      } else {
        const uint32_t xs[2] = {pair.x, pair.y};
        mma_k32(c[0], a, xs);
      }
    }
  }

  // The factors of a block for this thread's two rows.
  struct Factors {
    float d[2], scale0[2], scale1[2], d_min[2], min0[2], min1[2];
  };
  __device__ __forceinline__ void load_factors(uint32_t s, uint32_t b, uint32_t row, Factors& f) const {
    const auto& factors = memory.factors[s % 2];
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      const uint32_t r = row + tid % kWarp / 4 + 8 * h;
      f.d[h] = factors[0][r][b];
      if constexpr (has_scale<Unit>()) f.scale0[h] = factors[kScale0][r][b];
      if constexpr (Unit::kHalves) f.scale1[h] = factors[kScale1][r][b];
      if constexpr (Unit::kHasMin) {
        f.d_min[h] = factors[kDMin][r][b];
        f.min0[h] = factors[kMin0][r][b];
        if constexpr (Unit::kHalves) f.min1[h] = factors[kMin1][r][b];
      }
    }
  }

  // isum as f32: exact, as every partial product and sum is below 2^24.
  static __device__ __forceinline__ float isum(const Sums& sums, const Factors& f, uint32_t n, uint32_t e) {
    float sum = widened(sums.c[n][0][e]);
    if constexpr (has_scale<Unit>()) sum = __fmul_rn(f.scale0[e / 2], sum);
    if constexpr (Unit::kHalves) sum = __fmaf_rn(f.scale1[e / 2], widened(sums.c[n][1][e]), sum);
    return sum;
  }
  static __device__ __forceinline__ float msum(int32_t packed, const Factors& f, uint32_t e) {
    if constexpr (Unit::kHalves) {
      const auto low = static_cast<float>(static_cast<int16_t>(packed & 0xFFFF));
      return __fmaf_rn(f.min1[e / 2], static_cast<float>(packed >> 16), __fmul_rn(f.min0[e / 2], low));
    }
    return __fmul_rn(f.min0[e / 2], static_cast<float>(packed));
  }

  // Block b joins its lane.
  __device__ __forceinline__ void finish(uint32_t s, uint32_t b, uint32_t row, uint32_t token, const Sums& sums,
                                         float (&lanes)[kNTiles][4][kStepBlocks]) const {
    Factors f;
    load_factors(s, b, row, f);
    const uint32_t first = token + 2 * (tid % 4);
#pragma unroll
    for (uint32_t n = 0; n < kNTiles; ++n) {
      const float2 x_d = *reinterpret_cast<const float2*>(&memory.x_d[s % 3][b][first + 8 * n]);
#pragma unroll
      for (uint32_t e = 0; e < 4; ++e) {
        const float da = e % 2 == 0 ? x_d.x : x_d.y;
        float& lane = lanes[n][e][b];
        lane = __fmaf_rn(isum(sums, f, n, e), __fmul_rn(f.d[e / 2], da), lane);
        if constexpr (Unit::kHasMin) {
          const int32_t packed = memory.x_sums[s % 3][b][first + 8 * n + e % 2];
          lane = __fmaf_rn(msum(packed, f, e), __fmul_rn(f.d_min[e / 2], da), lane);
        }
      }
    }
  }

  // Adds step s: 16 rows from `row`, 32 tokens from `token`. While the tensor cores make the sums of a block, the f32
  // units finish the one before.
  __device__ __forceinline__ void multiply_whole(uint32_t s, uint32_t row, uint32_t token,
                                                 float (&lanes)[kNTiles][4][kStepBlocks]) const {
    Sums sums[2];
    start(s, 0, row, token, sums[0]);
#pragma unroll
    for (uint32_t b = 0; b < kStepBlocks; ++b) {
      if (b + 1 < kStepBlocks) start(s, b + 1, row, token, sums[(b + 1) % 2]);
      finish(s, b, row, token, sums[b % 2], lanes);
    }
  }
  // The last step of a row whose blocks are no multiple of 8.
  __device__ __forceinline__ void multiply_part(uint32_t s, uint32_t row, uint32_t token,
                                                float (&lanes)[kNTiles][4][kStepBlocks]) const {
#pragma unroll
    for (uint32_t b = 0; b < kStepBlocks; ++b) {
      if (s * kStepBlocks + b >= p.n_blocks) break;
      Sums sums;
      start(s, b, row, token, sums);
      finish(s, b, row, token, sums, lanes);
    }
  }
};

template <typename Unit>
__global__ void __launch_bounds__(kTileThreads, 1) tiles_kernel(const __grid_constant__ ProductParams p) {
  extern __shared__ __align__(16) uint8_t shared[];
  const ProductJob job = p.jobs != nullptr ? p.jobs[blockIdx.z] : p.job;
  const uint32_t token_begin = blockIdx.y * kTileTokens;
  if (token_begin >= job.n_pairs) return;
  const uint32_t n_tokens = job.n_pairs - token_begin < kTileTokens ? job.n_pairs - token_begin : kTileTokens;
  const uint32_t pair_begin = job.pair_begin + token_begin;
  const auto token_at = [&](uint32_t i) -> uint64_t {
    const uint32_t pair = pair_begin + (i < n_tokens ? i : 0);
    return p.token_rows != nullptr ? p.token_rows[pair] : pair;
  };
  const uint32_t tid = threadIdx.x;
  Tile<Unit> tile{p,
                  *reinterpret_cast<TileMemory<Unit>*>(shared),
                  reinterpret_cast<const uint8_t*>(job.weights),
                  blockIdx.x * kTileRows,
                  (p.n_blocks + kStepBlocks - 1) / kStepBlocks,
                  tid,
                  token_at(tid % kTileTokens),
                  {}};
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) tile.token_of_copy[i] = token_at(tid / 16 + 16 * i);

  const uint32_t warp = tid / kWarp;
  const uint32_t row = warp % 4 * 16;
  const uint32_t token = warp / 4 * 32;
  float lanes[kNTiles][4][kStepBlocks] = {};
  tile.issue(0);
  tile.issue(1);
  wait_async<1>();
  __syncthreads();
  tile.decode(0);
  for (uint32_t s = 0; s < tile.n_steps; ++s) {
    wait_async<0>();
    __syncthreads();  // codes of step s are written, copies of s + 1 arrived, and nobody reads step s - 1 any more
    tile.issue(s + 2);
    tile.decode(s + 1);
    if ((s + 1) * kStepBlocks <= p.n_blocks) {
      tile.multiply_whole(s, row, token, lanes);
    } else {
      tile.multiply_part(s, row, token, lanes);
    }
  }
  const uint32_t g = tid % kWarp / 4;
  const uint32_t t = tid % 4;
#pragma unroll
  for (uint32_t n = 0; n < kNTiles; ++n) {
#pragma unroll
    for (uint32_t e = 0; e < 4; ++e) {
      const uint32_t r = blockIdx.x * kTileRows + row + g + e / 2 * 8;
      const uint32_t i = token + 8 * n + 2 * t + e % 2;
      const float(&l)[kStepBlocks] = lanes[n][e];
      const float even = __fadd_rn(__fadd_rn(l[0], l[4]), __fadd_rn(l[2], l[6]));
      const float odd = __fadd_rn(__fadd_rn(l[1], l[5]), __fadd_rn(l[3], l[7]));
      if (r < p.n_rows && i < n_tokens) p.out[(pair_begin + i) * p.out_stride + r] = __fadd_rn(even, odd);
    }
  }
}

// Of the current device. Consumer parts (sm_86, 89, 120: 99 KB) have no room for a tile and stay with the row kernels.
inline uint32_t most_shared_bytes() {
  int device = 0;
  int bytes = 0;
  cuda_check(cudaGetDevice(&device), "cudaGetDevice");
  cuda_check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "cudaDeviceGetAttribute");
  return static_cast<uint32_t>(bytes);
}

template <typename Unit>
void tiles(const ProductParams& p, uint32_t n_jobs, uint32_t most_pairs, cudaStream_t stream) {
  constexpr uint32_t kShared = sizeof(TileMemory<Unit>);
  static_assert(kShared <= 227 * 1024);
  if (most_shared_bytes() < kShared) return rows<Unit, false>(p, n_jobs, most_pairs, stream);
  cuda_check(cudaFuncSetAttribute(tiles_kernel<Unit>, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
             "cudaFuncSetAttribute(tiles_kernel)", kShared);
  const dim3 grid((p.n_rows + kTileRows - 1) / kTileRows, (most_pairs + kTileTokens - 1) / kTileTokens, n_jobs);
  tiles_kernel<Unit><<<grid, kTileThreads, kShared, stream>>>(p);
  check_launch("tiles_kernel");
}

}  // namespace
}  // namespace outrider::cuda
