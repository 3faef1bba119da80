// SPDX-License-Identifier: Apache-2.0
// What tiles.cuh is made of: the instructions it needs by name, and the shared memory of one block of threads.
#pragma once

#include "outrider/cuda/product/rows.cuh"
#include "outrider/cuda/product/token_image.cuh"

namespace outrider::cuda {
namespace {

constexpr uint32_t kTileRows = 64;
constexpr uint32_t kTileThreads = 512;
constexpr uint32_t kUsed = 8;  // blocks of 32 elements that a step of a pass takes: one of each row a thread to decode
constexpr uint32_t kWarpRows = 32;
constexpr uint32_t kWarpTokens = 64;
constexpr uint32_t kMTiles = kWarpRows / 16;
constexpr uint32_t kNTiles = kWarpTokens / 8;

// Four accumulators start at 1.5 * 2^23 as f32 bits: integers below 2^22 added to it widen by one subtraction.
constexpr int32_t kWidenBits = 0x4B400000;
constexpr float kWiden = 12582912.0F;

__device__ __forceinline__ float widened(int32_t sum) { return __fsub_rn(__int_as_float(sum), kWiden); }

// Sums start at kWidenBits, from registers that stay as they are.
__device__ __forceinline__ void mma_k32(int32_t (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
      : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(kWidenBits));
}
__device__ __forceinline__ void mma_k16(int32_t (&c)[4], uint32_t a0, uint32_t a1, uint32_t b0) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%7,%7,%7};"
      : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
      : "r"(a0), "r"(a1), "r"(b0), "r"(kWidenBits));
}
// Four matrices of 8 x 16 bytes; thread l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrices(uint32_t (&out)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address));
}
__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ float4 load_shared4(uint32_t address) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(address));
  return v;
}
__device__ __forceinline__ void copy_to_shared16(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void copy_to_shared4(uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

// Where the factor of a row lies: the four rows of a thread (g, g + 8, g + 16, g + 24) side by side.
__device__ __forceinline__ uint32_t row_place(uint32_t row) { return row / 32 * 32 + row % 8 * 4 + row % 32 / 8; }
// How many kinds of factors a type has.
template <typename Unit>
constexpr uint32_t factors_of() {
  return 1 + (Unit::kHasMin ? 2 : 0) + (has_scale<Unit>() ? 1 : 0) + (Unit::kHalves ? 1 : 0) +
         (Unit::kHasMin && Unit::kHalves ? 1 : 0);
}

// Which kind of factor lies where, those the type has; d is the first.
template <typename Unit>
struct FactorKinds {
  static constexpr uint32_t kScale0 = 1;
  static constexpr uint32_t kScale1 = 2;
  static constexpr uint32_t kDMin = 1 + (has_scale<Unit>() ? 1 : 0) + (Unit::kHalves ? 1 : 0);
  static constexpr uint32_t kMin0 = kDMin + 1;
  static constexpr uint32_t kMin1 = kDMin + 2;
};
// Stores the factors of a block of weights: kind by kind, then its place in the step, then its row at `at`.
template <typename Unit, uint32_t kKinds, uint32_t kRows>
__device__ __forceinline__ void store_factors(float (&factors)[kKinds][kUsed][kRows], uint32_t used, uint32_t at,
                                              const BlockCodes& codes) {
  using Kinds = FactorKinds<Unit>;
  factors[0][used][at] = codes.d;
  if constexpr (has_scale<Unit>()) factors[Kinds::kScale0][used][at] = static_cast<float>(codes.scale0);
  if constexpr (Unit::kHalves) factors[Kinds::kScale1][used][at] = static_cast<float>(codes.scale1);
  if constexpr (Unit::kHasMin) {
    factors[Kinds::kDMin][used][at] = codes.d_min;
    factors[Kinds::kMin0][used][at] = static_cast<float>(codes.min0);
    if constexpr (Unit::kHalves) factors[Kinds::kMin1][used][at] = static_cast<float>(codes.min1);
  }
}

// Shared memory of one block of threads. Strides of codes are an odd number of 16-byte pieces: ldmatrix without bank
// conflicts.
template <typename Unit, uint32_t kTokens>
struct TileMemory {
  static constexpr uint32_t kLanes = 512 / kTokens;  // at once: 4 or 8
  static constexpr uint32_t kPasses = 8 / kLanes;
  static constexpr uint32_t kStepBlocks = kUsed * kPasses;  // used and passed over
  static constexpr uint32_t kCodeStride = kUsed * 32 + 16;
  static constexpr uint32_t kStepBytes = kStepBlocks / Unit::kSubs * Unit::kBytes;
  static constexpr uint32_t kRawStride = ((kStepBytes + 31) / 16 | 1U) * 16;
  static constexpr uint32_t kFactors = factors_of<Unit>();
  static constexpr uint32_t kFactorBytes = kUsed * (kTileRows + 4) * 4;  // of one kind
  struct Stage {
    uint8_t x[kTokens * kCodeStride];
    uint8_t w[kTileRows * kCodeStride];
    uint8_t raw[kTileRows * kRawStride];
    float x_d[kUsed][kTokens + 4];
    int32_t x_sums[Unit::kHasMin ? kUsed : 1][kTokens + 4];
    float factors[kFactors][kUsed][kTileRows + 4];  // d, scale0, scale1, d_min, min0, min1: those the type has
  };
  Stage stages[2];
  float odd[kPasses == 2 ? kTileRows * kTokens : 4];  // the sums 1 + 5 of the first pass
  uint32_t token_blocks[kTokens];                     // the first block of each token
};

}  // namespace
}  // namespace outrider::cuda
