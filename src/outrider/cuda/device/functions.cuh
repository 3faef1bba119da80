// SPDX-License-Identifier: Apache-2.0
// The scalar building blocks of the numerics law on the device: small floats, folds, exp and its kin. Operation for
// operation what numerics/float16.h and kernels/functions/functions_ref-inl.h do, so the bits are theirs; the constants
// are taken from that header. Compiled with -fmad=false: an fma stands where one is written.
#pragma once

#include <cstddef>
#include <cstdint>

#include "outrider/kernels/functions/functions_ref-inl.h"

namespace outrider::cuda {
namespace {

constexpr uint32_t kWarp = 32;
constexpr uint32_t kAllLanes = 0xFFFFFFFFU;

__device__ __forceinline__ float f16_to_f32(uint16_t h) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(h));  // exact, subnormals too
  return value;
}

__device__ __forceinline__ float bf16_to_f32(uint16_t b) { return __uint_as_float(static_cast<uint32_t>(b) << 16); }

// Round to nearest even; infinity on overflow; a NaN keeps the upper bits of its payload and becomes quiet.
__device__ __forceinline__ uint16_t f32_to_f16(float value) {
  const uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
    return static_cast<uint16_t>(((bits >> 16) & 0x8000U) | 0x7E00U | ((bits >> 13) & 0x3FFU));
  }
  uint16_t h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(value));
  return h;
}

// ---- folds: every lane ends with the result ----

// The 8 block lanes, held by 8 neighbouring threads: 0+4 1+5 2+6 3+7, then 0+2 1+3, then 0+1.
__device__ __forceinline__ float fold8(float lane) {
  lane = __fadd_rn(lane, __shfl_xor_sync(kAllLanes, lane, 4));
  lane = __fadd_rn(lane, __shfl_xor_sync(kAllLanes, lane, 2));
  return __fadd_rn(lane, __shfl_xor_sync(kAllLanes, lane, 1));
}

// The 32 lanes of the float law, held by a warp: 16, 8, 4, 2, 1.
__device__ __forceinline__ float fold32(float lane) {
  lane = __fadd_rn(lane, __shfl_xor_sync(kAllLanes, lane, 16));
  lane = __fadd_rn(lane, __shfl_xor_sync(kAllLanes, lane, 8));
  return fold8(lane);
}

// ---- functions ----

__device__ __forceinline__ float exp_f32(float x) {
  using namespace kernels;
  constexpr float c0 = kExpPoly[0], c1 = kExpPoly[1], c2 = kExpPoly[2], c3 = kExpPoly[3], c4 = kExpPoly[4];
  x = kExpLow > x ? kExpLow : x;  // in this form a NaN stays
  x = kExpHigh < x ? kExpHigh : x;
  const float shifted = __fmaf_rn(x, kLog2E, kRoundShift);
  const float n = __fsub_rn(shifted, kRoundShift);
  float r = __fmaf_rn(n, -kLn2High, x);
  r = __fmaf_rn(n, -kLn2Low, r);
  float p = __fmaf_rn(c4, r, c3);
  p = __fmaf_rn(p, r, c2);
  p = __fmaf_rn(p, r, c1);
  p = __fmaf_rn(p, r, c0);
  p = __fmaf_rn(p, r, 1.0F);
  p = __fmaf_rn(p, r, 1.0F);
  const int32_t exponent = static_cast<int32_t>(__float_as_uint(shifted) - __float_as_uint(kRoundShift));
  const int32_t half = exponent >> 1;
  const float scale0 = __uint_as_float((static_cast<uint32_t>(half) + 127U) << 23);
  const float scale1 = __uint_as_float((static_cast<uint32_t>(exponent - half) + 127U) << 23);
  return __fmul_rn(__fmul_rn(p, scale0), scale1);
}

__device__ __forceinline__ float sigmoid_f32(float x) { return __fdiv_rn(1.0F, __fadd_rn(1.0F, exp_f32(-x))); }

__device__ __forceinline__ float silu_f32(float x) { return __fmul_rn(x, sigmoid_f32(x)); }

__device__ __forceinline__ float softplus_f32(float x) {
  using namespace kernels;
  constexpr float c0 = kAtanhPoly[0], c1 = kAtanhPoly[1], c2 = kAtanhPoly[2], c3 = kAtanhPoly[3], c4 = kAtanhPoly[4];
  const float u = exp_f32(x > 0.0F ? -x : x);
  const float s = __fdiv_rn(u, __fadd_rn(2.0F, u));
  const float z = __fmul_rn(s, s);
  float q = __fmaf_rn(c4, z, c3);
  q = __fmaf_rn(q, z, c2);
  q = __fmaf_rn(q, z, c1);
  q = __fmaf_rn(q, z, c0);
  const float twice = __fadd_rn(s, s);
  const float log1p = __fmaf_rn(__fmul_rn(twice, z), q, twice);
  return __fadd_rn(x > 0.0F ? x : 0.0F, log1p);
}

// silu(gate) * up, or the clamped form of gpt-oss when alpha is not 0.
__device__ __forceinline__ float swiglu_f32(float gate, float up, float alpha, float limit) {
  if (alpha == 0.0F) return __fmul_rn(silu_f32(gate), up);
  const float g = limit < gate ? limit : gate;
  float u = -limit > up ? -limit : up;
  u = limit < u ? limit : u;
  return __fmul_rn(__fmul_rn(g, sigmoid_f32(__fmul_rn(alpha, g))), __fadd_rn(u, 1.0F));
}

}  // namespace
}  // namespace outrider::cuda
