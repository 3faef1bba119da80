// SPDX-License-Identifier: Apache-2.0
// Element i of a stored block as f32, every weight type: docs/numerics.md "Dequantisation", bit for bit what
// numerics/dequant*.cc give, without a table of code: the type is a template argument. For the types without an integer
// unit and for embedding rows, where simplicity counts more than speed.
#pragma once

#include "outrider/cuda/device/functions.cuh"
#include "outrider/cuda/ops.h"
#include "outrider/format/tensor_type.h"
#include "outrider/numerics/blocks.h"

namespace outrider::cuda {
namespace {

using format::TensorType;

// Blocks at any address: bytes only.
struct Bytes {
  const uint8_t* p;
  __device__ uint32_t u8(uint32_t at) const { return p[at]; }
  __device__ int32_t i8(uint32_t at) const { return static_cast<int8_t>(p[at]); }
  __device__ uint32_t u16(uint32_t at) const { return u8(at) | u8(at + 1) << 8; }
  __device__ uint32_t u32(uint32_t at) const { return u16(at) | u16(at + 2) << 16; }
  __device__ float f16(uint32_t at) const { return f16_to_f32(static_cast<uint16_t>(u16(at))); }
  __device__ uint32_t nibble(uint32_t at, uint32_t high) const { return (u8(at) >> (4 * high)) & 15U; }
};

__device__ __forceinline__ float times(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ float times(float a, int32_t b) { return __fmul_rn(a, static_cast<float>(b)); }

__device__ __forceinline__ int32_t iq4_value(uint32_t code) {
  constexpr uint64_t low = 0xF6EADDCFBFAD9881ULL;   // -127 -104 -83 -65 -49 -35 -22 -10
  constexpr uint64_t high = 0x7159453526190D01ULL;  // 1 13 25 38 53 69 89 113
  return static_cast<int8_t>(((code < 8 ? low : high) >> (8 * (code & 7U))) & 255U);
}
__device__ __forceinline__ int32_t fp4_value(uint32_t code) {
  const auto magnitude = static_cast<int32_t>((0x0C08060403020100ULL >> (8 * (code & 7U))) & 255U);
  return code < 8 ? magnitude : -magnitude;
}

__device__ __forceinline__ int32_t two_bits(const Bytes& b, uint32_t qs, uint32_t i) {
  return static_cast<int32_t>((b.u8(qs + i / 128 * 32 + i % 32) >> (2 * (i % 128 / 32))) & 3U);
}

__device__ __forceinline__ float signed_grid(const int8_t* grid, uint32_t at, uint32_t sign, float scale) {
  const float magnitude = times(scale, static_cast<int32_t>(grid[at]));
  return (sign & 1U) != 0 ? -magnitude : magnitude;
}

__device__ __forceinline__ uint32_t even_signs(uint32_t code) { return code | (__popc(code) & 1U) << 7; }

// Blocks of 32 with linear codes.
template <TensorType kType>
__device__ __forceinline__ float linear_element(const Bytes& b, uint32_t i) {
  using namespace numerics;
  if constexpr (kType == TensorType::kQ8_0) {
    return times(b.f16(Q8_0::kD), b.i8(Q8_0::kQs + i));
  } else if constexpr (kType == TensorType::kQ4_0) {
    return times(b.f16(0), static_cast<int32_t>(b.nibble(Q4_0::kQs + i % 16, i / 16)) - 8);
  } else if constexpr (kType == TensorType::kQ4_1) {
    return __fadd_rn(times(b.f16(0), static_cast<int32_t>(b.nibble(Q4_1::kQs + i % 16, i / 16))), b.f16(Q4_1::kM));
  } else if constexpr (kType == TensorType::kQ5_0) {
    const uint32_t c = b.nibble(Q5_0::kQs + i % 16, i / 16) | ((b.u32(Q5_0::kQh) >> i) & 1U) << 4;
    return times(b.f16(0), static_cast<int32_t>(c) - 16);
  } else {
    const uint32_t c = b.nibble(Q5_1::kQs + i % 16, i / 16) | ((b.u32(Q5_1::kQh) >> i) & 1U) << 4;
    return __fadd_rn(times(b.f16(0), static_cast<int32_t>(c)), b.f16(Q5_1::kM));
  }
}

// The 6-bit scale and minimum of Q4_K, Q5_K, at `s`, of sub-block B.
__device__ __forceinline__ int2 k4_scale_min(const Bytes& b, uint32_t s, uint32_t B) {
  if (B < 4) return make_int2(static_cast<int>(b.u8(s + B) & 63U), static_cast<int>(b.u8(s + B + 4) & 63U));
  const uint32_t low = b.u8(s + B + 4);
  return make_int2(static_cast<int>((low & 15U) | (b.u8(s + B - 4) >> 6) << 4),
                   static_cast<int>((low >> 4) | (b.u8(s + B) >> 6) << 4));
}

template <TensorType kType>
__device__ __forceinline__ float k_element(const Bytes& b, uint32_t i) {
  using namespace numerics;
  const uint32_t l = i % 32;
  const uint32_t B = i / 32;
  if constexpr (kType == TensorType::kQ2_K) {
    const uint32_t packed = b.u8(Q2_K::kScales + i / 16);
    const float scale = times(b.f16(Q2_K::kD), static_cast<int32_t>(packed & 15U));
    const float min = times(b.f16(Q2_K::kDmin), static_cast<int32_t>(packed >> 4));
    return __fsub_rn(times(scale, two_bits(b, Q2_K::kQs, i)), min);
  } else if constexpr (kType == TensorType::kQ3_K) {
    const uint32_t k = i / 16;
    const uint32_t low = b.nibble(Q3_K::kScales + k % 8, k / 8);
    const uint32_t high = (b.u8(Q3_K::kScales + 8 + k % 4) >> (2 * (k / 4))) & 3U;
    const int32_t minus4 = ((b.u8(Q3_K::kHmask + l) >> B) & 1U) != 0 ? 0 : 4;
    const float scale = times(b.f16(Q3_K::kD), static_cast<int32_t>(low | high << 4) - 32);
    return times(scale, two_bits(b, Q3_K::kQs, i) - minus4);
  } else if constexpr (kType == TensorType::kQ4_K || kType == TensorType::kQ5_K) {
    constexpr bool kFive = kType == TensorType::kQ5_K;
    const int2 packed = k4_scale_min(b, Q4_K::kScales, B);
    uint32_t c = b.nibble((kFive ? Q5_K::kQs : Q4_K::kQs) + B / 2 * 32 + l, B % 2);
    if constexpr (kFive) c |= ((b.u8(Q5_K::kQh + l) >> B) & 1U) << 4;
    return __fsub_rn(times(times(b.f16(0), packed.x), static_cast<int32_t>(c)), times(b.f16(Q4_K::kDmin), packed.y));
  } else {
    const uint32_t h = i / 128;
    const uint32_t s = i % 128 / 32;
    const uint32_t low = b.nibble(Q6_K::kQl + 64 * h + 32 * (s % 2) + l, s / 2);
    const uint32_t high = (b.u8(Q6_K::kQh + 32 * h + l) >> (2 * s)) & 3U;
    return times(times(b.f16(Q6_K::kD), b.i8(Q6_K::kScales + i / 16)), static_cast<int32_t>(low | high << 4) - 32);
  }
}

// Codes that index 16 values, and the one-, two- and three-valued formats.
template <TensorType kType>
__device__ __forceinline__ float code_element(const Bytes& b, uint32_t i) {
  using namespace numerics;
  if constexpr (kType == TensorType::kIQ4_NL) {
    return times(b.f16(0), iq4_value(b.nibble(IQ4_NL::kQs + i % 16, i / 16)));
  } else if constexpr (kType == TensorType::kIQ4_XS) {
    const uint32_t B = i / 32;
    const uint32_t low = b.nibble(IQ4_XS::kScalesL + B / 2, B % 2);
    const uint32_t high = (b.u16(IQ4_XS::kScalesH) >> (2 * B)) & 3U;
    const float scale = times(b.f16(0), static_cast<int32_t>(low | high << 4) - 32);
    return times(scale, iq4_value(b.nibble(IQ4_XS::kQs + 16 * B + i % 16, i % 32 / 16)));
  } else if constexpr (kType == TensorType::kMXFP4) {
    const uint32_t e = b.u8(MXFP4::kE);
    const float d = __uint_as_float(e < 2 ? 0x00200000U << e : (e - 1) << 23);
    return times(d, fp4_value(b.nibble(MXFP4::kQs + i % 16, i / 16)));
  } else if constexpr (kType == TensorType::kNVFP4) {
    const uint32_t x = b.u8(NVFP4::kD + i / 16);
    const uint32_t exponent = (x >> 3) & 15U;
    float d = __uint_as_float(((exponent + 119U) << 23) | (x & 7U) << 20);
    if (exponent == 0) d = times(0x1p-10F, static_cast<int32_t>(x & 7U));
    if (x == 0x7F) d = 0.0F;
    return times(d, fp4_value(b.nibble(NVFP4::kQs + 8 * (i / 16) + i % 8, i % 16 / 8)));
  } else if constexpr (kType == TensorType::kTQ1_0) {
    uint32_t byte = 0;
    uint32_t n = 0;
    if (i < 160) {
      byte = b.u8(TQ1_0::kQs + i % 32), n = i / 32;
    } else if (i < 240) {
      byte = b.u8(TQ1_0::kQs + 32 + (i - 160) % 16), n = (i - 160) / 16;
    } else {
      byte = b.u8(TQ1_0::kQh + (i - 240) % 4), n = (i - 240) / 4;
    }
    for (; n > 0; --n) byte *= 3;
    return times(b.f16(TQ1_0::kD), static_cast<int32_t>(((byte & 255U) * 3) >> 8) - 1);
  } else if constexpr (kType == TensorType::kTQ2_0) {
    return times(b.f16(TQ2_0::kD), two_bits(b, TQ2_0::kQs, i) - 1);
  } else if constexpr (kType == TensorType::kQ1_0) {
    const float d = b.f16(0);
    return ((b.u8(Q1_0::kQs + i / 8) >> (i % 8)) & 1U) != 0 ? d : -d;
  } else {
    return times(b.f16(0), static_cast<int32_t>((b.u8(Q2_0::kQs + i / 4) >> (2 * (i % 4))) & 3U) - 1);
  }
}

template <TensorType kType>
__device__ __forceinline__ float grid_element(const Bytes& b, uint32_t i, const Codebooks& books) {
  using namespace numerics;
  const uint32_t B = i / 32;
  const uint32_t g = i / 8;
  if constexpr (kType == TensorType::kIQ2_XXS) {
    const uint32_t word = b.u32(IQ2_XXS::kQs + 8 * B + 4);
    const float scale = times(times(b.f16(0), __fadd_rn(0.5F, static_cast<float>(word >> 28))), 0.25F);
    const uint32_t signs = even_signs((word >> (7 * (g % 4))) & 127U);
    return signed_grid(books.iq2_xxs, 8 * b.u8(IQ2_XXS::kQs + 8 * B + g % 4) + i % 8, signs >> (i % 8), scale);
  } else if constexpr (kType == TensorType::kIQ2_XS) {
    const uint32_t code = b.u16(IQ2_XS::kQs + 2 * g);
    const uint32_t s = b.nibble(IQ2_XS::kScales + g / 4, g % 4 / 2);
    const float scale = times(times(b.f16(0), __fadd_rn(0.5F, static_cast<float>(s))), 0.25F);
    return signed_grid(books.iq2_xs, 8 * (code & 511U) + i % 8, even_signs(code >> 9) >> (i % 8), scale);
  } else if constexpr (kType == TensorType::kIQ2_S) {
    const uint32_t high = (b.u8(IQ2_S::kQh + g / 4) >> (2 * (g % 4))) & 3U;
    const uint32_t s = b.nibble(IQ2_S::kScales + g / 4, g % 4 / 2);
    const float scale = times(times(b.f16(0), __fadd_rn(0.5F, static_cast<float>(s))), 0.25F);
    const uint32_t index = b.u8(IQ2_S::kQs + g) | high << 8;
    return signed_grid(books.iq2_s, 8 * index + i % 8, b.u8(IQ2_S::kSigns + g) >> (i % 8), scale);
  } else if constexpr (kType == TensorType::kIQ3_XXS) {
    const uint32_t word = b.u32(IQ3_XXS::kSignsAndScales + 4 * B);
    const float scale = times(times(b.f16(0), __fadd_rn(0.5F, static_cast<float>(word >> 28))), 0.5F);
    const uint32_t signs = even_signs((word >> (7 * (g % 4))) & 127U);
    return signed_grid(books.iq3_xxs, 4 * b.u8(IQ3_XXS::kQs + i / 4) + i % 4, signs >> (i % 8), scale);
  } else if constexpr (kType == TensorType::kIQ3_S) {
    const uint32_t s = b.nibble(IQ3_S::kScales + B / 2, B % 2);
    const float scale = times(b.f16(0), static_cast<int32_t>(1 + 2 * s));
    const uint32_t index = b.u8(IQ3_S::kQs + i / 4) | ((b.u8(IQ3_S::kQh + B) >> (i / 4 % 8)) & 1U) << 8;
    return signed_grid(books.iq3_s, 4 * index + i % 4, b.u8(IQ3_S::kSigns + g) >> (i % 8), scale);
  } else if constexpr (kType == TensorType::kIQ1_S) {
    const uint32_t qh = b.u16(IQ1_S::kQh + 2 * B);
    const float scale = times(b.f16(0), static_cast<int32_t>(2 * ((qh >> 12) & 7U) + 1));
    const uint32_t index = b.u8(IQ1_S::kQs + g) | ((qh >> (3 * (g % 4))) & 7U) << 8;
    const float shift = (qh & 0x8000U) != 0 ? -0.125F : 0.125F;
    return times(scale, __fadd_rn(static_cast<float>(books.iq1[8 * index + i % 8]), shift));
  } else {
    uint32_t d_bits = 0;
    for (uint32_t w = 0; w < 4; ++w) d_bits |= (b.u16(IQ1_M::kScales + 2 * w) >> 12) << (4 * w);
    const uint32_t word = b.u16(IQ1_M::kScales + 2 * (B / 2));
    const uint32_t s = (word >> (6 * (B % 2) + 3 * (g % 4 / 2))) & 7U;
    const uint32_t n = b.nibble(IQ1_M::kQh + g / 2, g % 2);
    const uint32_t index = b.u8(IQ1_M::kQs + g) | (n & 7U) << 8;
    const float scale = times(f16_to_f32(static_cast<uint16_t>(d_bits)), static_cast<int32_t>(2 * s + 1));
    const float shift = (n & 8U) != 0 ? -0.125F : 0.125F;
    return times(scale, __fadd_rn(static_cast<float>(books.iq1[8 * index + i % 8]), shift));
  }
}

// Element i of the row at `row`.
template <TensorType kType>
__device__ __forceinline__ float row_element(const uint8_t* row, uint32_t i, const Codebooks& books) {
  constexpr format::TypeInfo kInfo = format::type_info(kType);
  const Bytes b{row + static_cast<uint64_t>(i / kInfo.block_elems) * kInfo.block_bytes};
  const uint32_t at = i % kInfo.block_elems;
  if constexpr (kType == TensorType::kF32) {
    return __uint_as_float(*reinterpret_cast<const uint32_t*>(b.p));
  } else if constexpr (kType == TensorType::kF16) {
    return f16_to_f32(*reinterpret_cast<const uint16_t*>(b.p));
  } else if constexpr (kType == TensorType::kBF16) {
    return bf16_to_f32(*reinterpret_cast<const uint16_t*>(b.p));
  } else if constexpr (kType == TensorType::kQ4_0 || kType == TensorType::kQ4_1 || kType == TensorType::kQ5_0 ||
                       kType == TensorType::kQ5_1 || kType == TensorType::kQ8_0) {
    return linear_element<kType>(b, at);
  } else if constexpr (kType == TensorType::kQ2_K || kType == TensorType::kQ3_K || kType == TensorType::kQ4_K ||
                       kType == TensorType::kQ5_K || kType == TensorType::kQ6_K) {
    return k_element<kType>(b, at);
  } else if constexpr (kType == TensorType::kIQ2_XXS || kType == TensorType::kIQ2_XS || kType == TensorType::kIQ2_S ||
                       kType == TensorType::kIQ3_XXS || kType == TensorType::kIQ3_S || kType == TensorType::kIQ1_S ||
                       kType == TensorType::kIQ1_M) {
    return grid_element<kType>(b, at, books);
  } else {
    return code_element<kType>(b, at);
  }
}

}  // namespace

// X(tensor type): every weight type.
// clang-format off
#define OUTRIDER_CUDA_TYPES(X)                                                                                   \
  X(kF32)                                                                                                        \
  X(kF16) X(kBF16) X(kQ4_0) X(kQ4_1) X(kQ5_0) X(kQ5_1) X(kQ8_0) X(kQ2_K) X(kQ3_K) X(kQ4_K) X(kQ5_K) X(kQ6_K)     \
      X(kIQ2_XXS) X(kIQ2_XS) X(kIQ2_S) X(kIQ3_XXS) X(kIQ3_S) X(kIQ1_S) X(kIQ1_M) X(kIQ4_NL) X(kIQ4_XS) X(kMXFP4) \
          X(kNVFP4) X(kTQ1_0) X(kTQ2_0) X(kQ1_0) X(kQ2_0)
// clang-format on

}  // namespace outrider::cuda
