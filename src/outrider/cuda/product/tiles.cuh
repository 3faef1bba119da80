// SPDX-License-Identifier: Apache-2.0
// Tiles for many tokens: 64 rows by 128 (or 64) tokens a block of 512 threads, on the int8 tensor cores. One
// mma.m16n8k32 gives the exact integers of one block b for 16 rows and 8 tokens; each joins its lane b mod 8 by fma in
// rising b, which is the law itself.
// The lanes of the law are split over warps: a warp makes one lane of 32 rows by 64 tokens, so a thread keeps one
// accumulator an output (64 registers) and reuses its fragments and factors 2 x 8 times. Eight lanes of 64 x 128
// outputs are more than the registers hold, so that tile goes over the row twice, with four lanes each time, and `out`
// holds partial sums in between. It decodes a weight half as often as 64 x 64 in one pass does. The bound: a block of
// 32 costs an output 64 integer operations on the tensor cores and at least three on the f32 units (widen, d_w * d_a,
// fma), and these exclude each other on an H200 (docs/cuda.md). Weights arrive raw by
// cp.async, are decoded once a pass into int8, and meet the codes of the activations.
#pragma once

#include "outrider/cuda/product/tile_memory.cuh"
#include "outrider/cuda/product/wide_tiles.cuh"

namespace outrider::cuda {
namespace {

template <typename Unit, uint32_t kTokens>
struct Tile {
  using Memory = TileMemory<Unit, kTokens>;
  using Stage = typename Memory::Stage;
  static constexpr uint32_t kLanes = Memory::kLanes;
  static constexpr uint32_t kPasses = Memory::kPasses;
  static constexpr uint32_t kStepBlocks = Memory::kStepBlocks;
  using Kinds = FactorKinds<Unit>;
  using Lanes = float[kMTiles][kNTiles][4];

  const ProductParams& p;
  Memory& memory;
  const uint8_t* weight_row;  // of the row tid / 8, which this thread copies and decodes
  uint32_t row_begin, n_padded, n_tokens, tid;
  uint32_t lane_idx, row, token;  // of the warp: its lane among those of a pass, its first row and token
  // Shared addresses: of the memory, and in the first stage what this thread reads; what it writes within x and x_d.
  uint32_t base, a_at, b_at, factor_at, x_d_at, x_to, d_to;

  // The steps of all passes are one sequence, so that the pipeline runs on from pass to pass. A step is named by its
  // first block, to which its pass is added: n_padded is the first block after the last step of a pass.
  __device__ __forceinline__ uint32_t next(uint32_t step) const {
    const uint32_t own = step + kStepBlocks;
    return own < n_padded ? own : own - n_padded + 1;
  }
  static __device__ __forceinline__ bool is_past(uint32_t step) { return step % kStepBlocks >= kPasses; }
  // The block that place `used` of a step holds. The first of two passes takes the lanes 0, 1, 4, 5, the other 2, 3, 6,
  // 7: neighbours, as the L2 hands out no less than two blocks of activations.
  static __device__ __forceinline__ uint32_t block_of(uint32_t step, uint32_t used) {
    if constexpr (kPasses == 1) return step + used;
    return step + step % kStepBlocks + used / 4 * 8 + used % 4 / 2 * 4 + used % 2;
  }
  static __device__ __forceinline__ uint32_t raw_offset(uint32_t step) {
    return step / kStepBlocks * Memory::kStepBytes;
  }
  __device__ __forceinline__ uint32_t skew(uint32_t offset) const {
    return (static_cast<uint32_t>(reinterpret_cast<uintptr_t>(weight_row)) + offset) & 15U;
  }

  // Starts the copy of the raw weights of a step, eight threads a row.
  __device__ __forceinline__ void issue_weights(uint32_t step, uint32_t stage) const {
    const uint32_t offset = raw_offset(step);
    if (is_past(step) || offset >= p.row_bytes) return;
    const uint32_t own_skew = skew(offset);
    const uint32_t left = p.row_bytes - offset;
    const uint32_t end = own_skew + (left < Memory::kStepBytes ? left : Memory::kStepBytes);
    const uint8_t* from = weight_row + offset - own_skew + 16 * (tid % 8);
    const uint32_t to = base + stage * static_cast<uint32_t>(sizeof(Stage)) + offsetof(Stage, raw) +
                        tid / 8 * Memory::kRawStride + 16 * (tid % 8);
#pragma unroll
    for (uint32_t at = 0; at < Memory::kStepBytes + 15; at += 128) {
      if (at + 16 * (tid % 8) < end) copy_to_shared16(to + at, from + at);
    }
  }
  // Starts the copy of the codes of the activations of a step. Places beyond the last token keep what they have, nobody
  // reads their sums: to copy some token there costs twice the time, as all blocks of threads wait for its lines.
  // Addresses come before copies: a copy holds the registers of its address until it has left the queue.
  __device__ __forceinline__ void issue_codes(uint32_t step, uint32_t stage) const {
    constexpr uint32_t kEach = kTokens / 32;
    const uint32_t piece = tid % 16;
    const uint32_t block = block_of(step, piece / 2);
    if (is_past(step) || block >= p.n_blocks) return;
    const int8_t* q = p.q + block * 32U + piece % 2 * 16;
    const uint32_t to = base + stage * static_cast<uint32_t>(sizeof(Stage)) + offsetof(Stage, x) + x_to;
    const int8_t* from[kEach];
#pragma unroll
    for (uint32_t i = 0; i < kEach; ++i) from[i] = q + uint64_t{memory.token_blocks[tid / 16 * kEach + i]} * 32;
#pragma unroll
    for (uint32_t i = 0; i < kEach; ++i) {
      if (tid / 16 * kEach + i < n_tokens) copy_to_shared16(to + i * Memory::kCodeStride, from[i]);
    }
  }
  // And of their factors.
  __device__ __forceinline__ void issue_factors(uint32_t step, uint32_t stage) const {
    constexpr uint32_t kEach = kTokens / 64;
    const uint32_t block = block_of(step, tid % kUsed);
    if (is_past(step) || block >= p.n_blocks) return;
    const uint32_t to = base + stage * static_cast<uint32_t>(sizeof(Stage)) + offsetof(Stage, x_d) + d_to;
    const float* from[kEach];
#pragma unroll
    for (uint32_t i = 0; i < kEach; ++i) from[i] = p.d + block + memory.token_blocks[tid / kUsed * kEach + i];
#pragma unroll
    for (uint32_t i = 0; i < kEach; ++i) {
      if (tid / kUsed * kEach + i >= n_tokens) continue;
      copy_to_shared4(to + 4 * i, from[i]);
      constexpr uint32_t kAcross = offsetof(Stage, x_sums) - offsetof(Stage, x_d);
      if constexpr (Unit::kHasMin && Unit::kHalves) {
        copy_to_shared4(to + kAcross + 4 * i, p.sum16 + 2 * (from[i] - p.d));
      } else if constexpr (Unit::kHasMin) {
        copy_to_shared4(to + kAcross + 4 * i, p.sum32 + (from[i] - p.d));
      }
    }
  }

  // Turns the raw blocks of a step into codes and factors.
  __device__ __forceinline__ void decode(uint32_t step, uint32_t which) const {
    const uint32_t used = tid % kUsed;
    const uint32_t block = block_of(step, used);
    if (is_past(step) || block >= p.n_blocks) return;
    const uint32_t b = block % kStepBlocks;
    const uint32_t r = tid / kUsed;
    extern __shared__ __align__(16) uint8_t shared[];
    Stage& stage = *reinterpret_cast<Stage*>(shared + which * static_cast<uint32_t>(sizeof(Stage)));
    const uint8_t* raw = stage.raw + r * Memory::kRawStride + skew(raw_offset(step));
    BlockCodes codes;
    Unit::load(raw + b / Unit::kSubs * Unit::kBytes, b % Unit::kSubs, codes);
    auto* to = reinterpret_cast<int4*>(stage.w + r * Memory::kCodeStride + 32 * used);
    to[0] = make_int4(codes.words[0], codes.words[1], codes.words[2], codes.words[3]);
    to[1] = make_int4(codes.words[4], codes.words[5], codes.words[6], codes.words[7]);
    const uint32_t at = row_place(r);
    store_factors<Unit>(stage.factors, used, at, codes);
  }

  // The factors of a block for this thread's four rows.
  struct Factors {
    float d[4], scale0[4], scale1[4], d_min[4], min0[4], min1[4];
  };
  static __device__ __forceinline__ void load_factor(uint32_t at, uint32_t which, float (&out)[4]) {
    const float4 v = load_shared4(at + which * Memory::kFactorBytes);
    out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
  }
  static __device__ __forceinline__ void load_factors(uint32_t at, Factors& out) {
    load_factor(at, 0, out.d);
    if constexpr (has_scale<Unit>()) load_factor(at, Kinds::kScale0, out.scale0);
    if constexpr (Unit::kHalves) load_factor(at, Kinds::kScale1, out.scale1);
    if constexpr (Unit::kHasMin) {
      load_factor(at, Kinds::kDMin, out.d_min);
      load_factor(at, Kinds::kMin0, out.min0);
      if constexpr (Unit::kHalves) load_factor(at, Kinds::kMin1, out.min1);
    }
  }

  // The sums of one mma, 16 rows by 8 tokens, on their way out of the tensor cores.
  struct Sums {
    int32_t c[Unit::kHalves ? 2 : 1][4];
  };
  // isum as f32: exact, as every partial product and sum is below 2^24.
  static __device__ __forceinline__ float isum(const Sums& sums, const Factors& f, uint32_t r, uint32_t e) {
    float sum = widened(sums.c[0][e]);
    if constexpr (has_scale<Unit>()) sum = __fmul_rn(f.scale0[r], sum);
    if constexpr (Unit::kHalves) sum = __fmaf_rn(f.scale1[r], widened(sums.c[1][e]), sum);
    return sum;
  }
  static __device__ __forceinline__ float msum(int32_t packed, const Factors& f, uint32_t r) {
    if constexpr (Unit::kHalves) {
      const float low = widened(static_cast<int16_t>(packed & 0xFFFF) + kWidenBits);
      return __fmaf_rn(f.min1[r], widened((packed >> 16) + kWidenBits), __fmul_rn(f.min0[r], low));
    }
    return __fmul_rn(f.min0[r], widened(packed + kWidenBits));
  }

  // Starts the sums of 32 rows by 8 tokens.
  static __device__ __forceinline__ void start(const uint32_t (&a)[kMTiles][4], uint32_t b0, uint32_t b1,
                                               Sums (&sums)[kMTiles]) {
#pragma unroll
    for (uint32_t m = 0; m < kMTiles; ++m) {
      if constexpr (Unit::kHalves) {
        mma_k16(sums[m].c[0], a[m][0], a[m][1], b0);
        mma_k16(sums[m].c[1], a[m][2], a[m][3], b1);
      } else {
        mma_k32(sums[m].c[0], a[m], b0, b1);
      }
    }
  }

  // One block joins its lane: 32 rows by 64 tokens of the warp. `u` is the warp's place in the step.
  __device__ __forceinline__ void multiply_block(uint32_t stage, uint32_t u, Lanes& lanes) const {
    const uint32_t offset = stage * static_cast<uint32_t>(sizeof(Stage));
    uint32_t a[kMTiles][4];
#pragma unroll
    for (uint32_t m = 0; m < kMTiles; ++m) {
      load_matrices(a[m], a_at + offset + 16 * m * Memory::kCodeStride + u * kLanes * 32);
    }
    Factors factors;
    load_factors(factor_at + offset + u * kLanes * (kTileRows + 4) * 4, factors);
    // While the tensor cores make the sums of 8 tokens, the f32 units finish the 8 before.
    uint32_t b[2][4];
    Sums sums[2][kMTiles];
    float4 x_d = {};
    int32_t packed[4] = {};
    load_matrices(b[0], b_at + offset + u * kLanes * 32);
    start(a, b[0][0], b[0][1], sums[0]);
#pragma unroll
    for (uint32_t n = 0; n < kNTiles; ++n) {
      const uint32_t pair = n / 2;
      if (n % 2 == 0) {
        const uint32_t at = x_d_at + offset + (u * kLanes * (kTokens + 4) + 16 * pair) * 4;
        x_d = load_shared4(at);
        if constexpr (Unit::kHasMin) {
          const float4 v = load_shared4(at + offsetof(Stage, x_sums) - offsetof(Stage, x_d));
          packed[0] = __float_as_int(v.x), packed[1] = __float_as_int(v.y);
          packed[2] = __float_as_int(v.z), packed[3] = __float_as_int(v.w);
        }
        if (2 * pair + 2 < kNTiles) {
          load_matrices(b[(pair + 1) % 2], b_at + offset + 16 * (pair + 1) * Memory::kCodeStride + u * kLanes * 32);
        }
      }
      if (n + 1 < kNTiles) {
        const uint32_t(&next_b)[4] = b[(n + 1) / 2 % 2];
        start(a, next_b[(n + 1) % 2 * 2], next_b[(n + 1) % 2 * 2 + 1], sums[(n + 1) % 2]);
      }
      const float da[4] = {x_d.x, x_d.y, x_d.z, x_d.w};
#pragma unroll
      for (uint32_t m = 0; m < kMTiles; ++m) {
#pragma unroll
        for (uint32_t e = 0; e < 4; ++e) {
          const uint32_t r = 2 * m + e / 2;
          const uint32_t i = n % 2 * 2 + e % 2;
          float& lane = lanes[m][n][e];
          lane = __fmaf_rn(isum(sums[n % 2][m], factors, r, e), __fmul_rn(factors.d[r], da[i]), lane);
          if constexpr (Unit::kHasMin) {
            lane = __fmaf_rn(msum(packed[i], factors, r), __fmul_rn(factors.d_min[r], da[i]), lane);
          }
        }
      }
    }
  }
  __device__ __forceinline__ void multiply(uint32_t step, uint32_t stage, uint32_t u, Lanes& lanes) const {
    if (token < n_tokens && block_of(step, u * kLanes + lane_idx) < p.n_blocks) multiply_block(stage, u, lanes);
  }

  // The lanes of the warps fold by halves: those of lane_idx below kHalf get the sums. The codes of `stage` are read no
  // more, the sums cross in their place.
  template <uint32_t kHalf>
  __device__ __forceinline__ void fold(uint32_t stage, Lanes& lanes) const {
    auto* room = reinterpret_cast<float4*>(memory.stages[stage].x);
    const uint32_t part = tid / kWarp / kLanes;
    const uint32_t place = (part * kHalf + lane_idx % kHalf) * kNTiles * kWarp + tid % kWarp;
#pragma unroll
    for (uint32_t m = 0; m < kMTiles; ++m) {
      __syncthreads();
      if (lane_idx >= kHalf && lane_idx < 2 * kHalf) {
#pragma unroll
        for (uint32_t n = 0; n < kNTiles; ++n) {
          const float(&v)[4] = lanes[m][n];
          room[place + n * kWarp] = make_float4(v[0], v[1], v[2], v[3]);
        }
      }
      __syncthreads();
      if (lane_idx < kHalf) {
#pragma unroll
        for (uint32_t n = 0; n < kNTiles; ++n) add(lanes[m][n], room[place + n * kWarp]);
      }
    }
  }
  static __device__ __forceinline__ void add(float (&own)[4], float4 v) {
    own[0] = __fadd_rn(own[0], v.x), own[1] = __fadd_rn(own[1], v.y);
    own[2] = __fadd_rn(own[2], v.z), own[3] = __fadd_rn(own[3], v.w);
  }

  // The sums 0 + 4 and 1 + 5 of the first pass wait for 2 + 6 and 3 + 7: even ones where the result will be, odd ones
  // in shared memory. Those that wrote them read them.
  __device__ __forceinline__ float4* kept(uint32_t m, uint32_t n) const {
    return reinterpret_cast<float4*>(memory.odd) + ((tid / kWarp / kLanes * kMTiles + m) * kNTiles + n) * kWarp +
           tid % kWarp;
  }
  __device__ __forceinline__ void keep(uint32_t pair_begin, const Lanes& lanes) const {
    if (lane_idx == 0) store(pair_begin, lanes);
    if (lane_idx != 1) return;
#pragma unroll
    for (uint32_t m = 0; m < kMTiles; ++m) {
#pragma unroll
      for (uint32_t n = 0; n < kNTiles; ++n) {
        const float(&v)[4] = lanes[m][n];
        *kept(m, n) = make_float4(v[0], v[1], v[2], v[3]);
      }
    }
  }
  __device__ __forceinline__ void add_kept(uint32_t pair_begin, Lanes& lanes) const {
    if (lane_idx == 0) add_stored(pair_begin, lanes);
    if (lane_idx != 1) return;
#pragma unroll
    for (uint32_t m = 0; m < kMTiles; ++m) {
#pragma unroll
      for (uint32_t n = 0; n < kNTiles; ++n) add(lanes[m][n], *kept(m, n));
    }
  }

  __device__ __forceinline__ void store(uint32_t pair_begin, const Lanes& lanes) const {
    const uint32_t r = row_begin + row + tid % kWarp / 4;
#pragma unroll
    for (uint32_t n = 0; n < kNTiles; ++n) {
#pragma unroll
      for (uint32_t odd = 0; odd < 2; ++odd) {
        const uint32_t i = token + 8 * n + 2 * (tid % 4) + odd;
        if (i >= n_tokens) continue;
        float* out = p.out + (pair_begin + i) * p.out_stride + r;
#pragma unroll
        for (uint32_t k = 0; k < 2 * kMTiles; ++k) {
          if (r + 8 * k < p.n_rows) out[8 * k] = lanes[k / 2][n][k % 2 * 2 + odd];
        }
      }
    }
  }
  // Without branches, so that reads do not wait for each other.
  __device__ __forceinline__ void add_stored(uint32_t pair_begin, Lanes& lanes) const {
    const uint32_t r = row_begin + row + tid % kWarp / 4;
#pragma unroll
    for (uint32_t n = 0; n < kNTiles; ++n) {
      float stored[2][2 * kMTiles];
#pragma unroll
      for (uint32_t odd = 0; odd < 2; ++odd) {
        const uint32_t i = token + 8 * n + 2 * (tid % 4) + odd;
        const float* out = p.out + (pair_begin + i) * p.out_stride + r;
#pragma unroll
        for (uint32_t k = 0; k < 2 * kMTiles; ++k) {
          stored[odd][k] = i < n_tokens && r + 8 * k < p.n_rows ? out[8 * k] : 0.0F;
        }
      }
#pragma unroll
      for (uint32_t odd = 0; odd < 2; ++odd) {
#pragma unroll
        for (uint32_t k = 0; k < 2 * kMTiles; ++k) {
          float& lane = lanes[k / 2][n][k % 2 * 2 + odd];
          lane = __fadd_rn(stored[odd][k], lane);
        }
      }
    }
  }
  // After the last step of a pass.
  __device__ __forceinline__ void finish(uint32_t pass, uint32_t stage, uint32_t pair_begin, Lanes& lanes) const {
    if constexpr (kPasses == 1) {
      fold<4>(stage, lanes);
      fold<2>(stage, lanes);
    } else {
      fold<2>(stage, lanes);
      if (pass == 0) return keep(pair_begin, lanes);
      add_kept(pair_begin, lanes);
    }
    fold<1>(stage, lanes);
    if (lane_idx == 0) store(pair_begin, lanes);
  }
};

template <typename Unit, uint32_t kTokens>
__global__ void __launch_bounds__(kTileThreads, 1) tiles_kernel(const __grid_constant__ ProductParams p) {
  extern __shared__ __align__(16) uint8_t shared[];
  using OwnTile = Tile<Unit, kTokens>;
  using Memory = TileMemory<Unit, kTokens>;
  using Stage = typename Memory::Stage;
  auto& memory = *reinterpret_cast<Memory*>(shared);
  const ProductJob job = p.jobs != nullptr ? p.jobs[blockIdx.z] : p.job;
  const uint32_t token_begin = blockIdx.y * kTokens;
  if (token_begin >= job.n_pairs) return;
  const uint32_t n_tokens = job.n_pairs - token_begin < kTokens ? job.n_pairs - token_begin : kTokens;
  const uint32_t pair_begin = job.pair_begin + token_begin;
  const uint32_t tid = threadIdx.x;
  if (tid < kTokens) {
    const uint32_t pair = pair_begin + (tid < n_tokens ? tid : 0);
    memory.token_blocks[tid] = (p.token_rows != nullptr ? p.token_rows[pair] : pair) * p.n_blocks;
  }
  // The warps of one scheduler have one lane, so that a tile with few tokens leaves no scheduler idle.
  const uint32_t lane_idx = tid / kWarp % Memory::kLanes;
  const uint32_t part = tid / kWarp / Memory::kLanes;
  const uint32_t row = part % 2 * kWarpRows;
  const uint32_t token = part / 2 * kWarpTokens;
  const uint32_t row_begin = blockIdx.x * kTileRows;
  const uint32_t own_row = row_begin + tid / kUsed < p.n_rows ? row_begin + tid / kUsed : p.n_rows - 1;
  const uint32_t n_steps = p.n_blocks == 0 ? 1 : (p.n_blocks + Memory::kStepBlocks - 1) / Memory::kStepBlocks;
  const uint32_t l = tid % kWarp;
  const uint32_t base = shared_address(shared);
  const uint32_t d_token = tid / kUsed * (kTokens / 64);
  const OwnTile tile{
      p,
      memory,
      reinterpret_cast<const uint8_t*>(job.weights) + static_cast<uint64_t>(own_row) * p.row_bytes,
      row_begin,
      n_steps * Memory::kStepBlocks,
      n_tokens,
      tid,
      lane_idx,
      row,
      token,
      base,
      base + static_cast<uint32_t>(offsetof(Stage, w)) + (row + l % 16) * Memory::kCodeStride + 32 * lane_idx +
          l / 16 * 16,
      base + static_cast<uint32_t>(offsetof(Stage, x)) + (token + l / 16 * 8 + l % 8) * Memory::kCodeStride +
          32 * lane_idx + l / 8 % 2 * 16,
      base + static_cast<uint32_t>(offsetof(Stage, factors)) + (lane_idx * (kTileRows + 4) + row + l / 4 * 4) * 4,
      base + static_cast<uint32_t>(offsetof(Stage, x_d)) + (lane_idx * (kTokens + 4) + token + l % 4 * 4) * 4,
      tid / 16 * (kTokens / 32) * Memory::kCodeStride + 16 * (tid % 16),
      (tid % kUsed * (kTokens + 4) + token_place(d_token)) * 4};
  tile.issue_weights(0, 0);
  __syncthreads();  // token_blocks
  tile.issue_codes(0, 0);
  tile.issue_factors(0, 0);
  commit_async();
  uint32_t second = tile.next(0);
  tile.issue_weights(second, 1);
  commit_async();
  wait_async<1>();
  __syncthreads();
  tile.decode(0, 0);
  uint32_t stage = 0;
#pragma unroll 1
  for (uint32_t pass = 0; pass < Memory::kPasses; ++pass) {
    typename OwnTile::Lanes lanes = {};
#pragma unroll 1
    for (uint32_t step = pass; step < n_steps * Memory::kStepBlocks; step += Memory::kStepBlocks) {
      wait_async<0>();
      __syncthreads();  // codes of this step are written, copies for the next arrived, nobody reads the one before
      const uint32_t third = tile.next(second);
      tile.issue_codes(second, stage ^ 1);
      if (part % 2 == 0) tile.decode(second, stage ^ 1);  // half of the warps, so that the f32 units have work
#pragma unroll
      for (uint32_t u = 0; u < kUsed / Memory::kLanes; ++u) {
        if (u + 1 == kUsed / Memory::kLanes) {  // apart from the other copies: many at once wait for each other
          tile.issue_weights(third, stage);
          tile.issue_factors(second, stage ^ 1);
          commit_async();
        }
        tile.multiply(step, stage, u, lanes);
      }
      if (part % 2 != 0) tile.decode(second, stage ^ 1);
      second = third;
      stage ^= 1;
    }
    tile.finish(pass, stage ^ 1, pair_begin, lanes);
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

template <typename Unit, uint32_t kTokens>
void launch_tiles(const ProductParams& p, uint32_t n_jobs, uint32_t most_pairs, cudaStream_t stream) {
  constexpr uint32_t kShared = sizeof(TileMemory<Unit, kTokens>);
  static_assert(kShared <= 227 * 1024);
  if (most_shared_bytes() < kShared) return rows<Unit, false>(p, n_jobs, most_pairs, stream);
  const auto kernel = tiles_kernel<Unit, kTokens>;
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
             "cudaFuncSetAttribute(tiles_kernel)", kShared);
  const dim3 grid((p.n_rows + kTileRows - 1) / kTileRows, (most_pairs + kTokens - 1) / kTokens, n_jobs);
  kernel<<<grid, kTileThreads, kShared, stream>>>(p);
  check_launch("tiles_kernel");
}

template <typename Unit>
void tiles(const ProductParams& p, uint32_t n_jobs, uint32_t most_pairs, cudaStream_t stream) {
  if (p.image != nullptr && most_pairs > 64 && has_wide_tiles()) return wide_tiles<Unit>(p, n_jobs, most_pairs, stream);
  // An A100 (163 KB) has room for the smaller tile only.
  const bool is_small = most_pairs <= 64 || most_shared_bytes() < sizeof(TileMemory<Unit, 128>);
  if (is_small) return launch_tiles<Unit, 64>(p, n_jobs, most_pairs, stream);
  launch_tiles<Unit, 128>(p, n_jobs, most_pairs, stream);
}

}  // namespace
}  // namespace outrider::cuda
