// SPDX-License-Identifier: Apache-2.0
// One function per type that can be made, grouped by family into quantize_*.cc; quantize.cc has the table. Private to
// the module.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "outrider/numerics/float16.h"

namespace outrider::numerics::internal {

using QuantizeFn = void (*)(const float* x, std::byte* blocks, uint64_t n_elems) noexcept;

void quantize_f32(const float* x, std::byte* blocks, uint64_t n_elems) noexcept;
void quantize_f16(const float* x, std::byte* blocks, uint64_t n_elems) noexcept;
void quantize_bf16(const float* x, std::byte* blocks, uint64_t n_elems) noexcept;
void quantize_q4_0(const float* x, std::byte* blocks, uint64_t n_elems) noexcept;
void quantize_q4_1(const float* x, std::byte* blocks, uint64_t n_elems) noexcept;
void quantize_q5_0(const float* x, std::byte* blocks, uint64_t n_elems) noexcept;
void quantize_q5_1(const float* x, std::byte* blocks, uint64_t n_elems) noexcept;
void quantize_q8_0(const float* x, std::byte* blocks, uint64_t n_elems) noexcept;
void quantize_mxfp4(const float* x, std::byte* blocks, uint64_t n_elems) noexcept;

void quantize_q2_k(const float* x, std::byte* blocks, uint64_t n_elems) noexcept;
void quantize_q4_k(const float* x, std::byte* blocks, uint64_t n_elems) noexcept;
void quantize_q5_k(const float* x, std::byte* blocks, uint64_t n_elems) noexcept;

void quantize_q3_k(const float* x, std::byte* blocks, uint64_t n_elems) noexcept;
void quantize_q6_k(const float* x, std::byte* blocks, uint64_t n_elems) noexcept;
void quantize_iq4_nl(const float* x, std::byte* blocks, uint64_t n_elems) noexcept;
void quantize_iq4_xs(const float* x, std::byte* blocks, uint64_t n_elems) noexcept;

// ---- helpers of the families ----

// Calls body(x of the block, block) for each block of format B.
template <typename B, typename Body>
inline void make_each_block(const float* x, std::byte* blocks, uint64_t n_elems, Body body) noexcept {
  for (uint64_t i = 0; i < n_elems; i += B::kElems, x += B::kElems, blocks += B::kBytes) body(x, blocks);
}

inline void store_u8(std::byte* p, uint32_t value) noexcept { *p = static_cast<std::byte>(value); }
inline void store_u16(std::byte* p, uint16_t value) noexcept { std::memcpy(p, &value, sizeof value); }
inline void store_u32(std::byte* p, uint32_t value) noexcept { std::memcpy(p, &value, sizeof value); }

// A scale as f16 bits; beyond the range of f16 the largest finite value, so that no block decodes to infinity or NaN.
inline uint16_t scale_bits(float scale) noexcept {
  const uint16_t bits = f32_to_f16(scale);
  return (bits & 0x7FFFU) == 0x7C00U ? static_cast<uint16_t>(bits - 1) : bits;
}
inline float rounded_scale(float scale) noexcept { return f16_to_f32(scale_bits(scale)); }

// Nearest integer in [low, high], ties to even. The addition of 1.5 * 2^23 leaves the integer in the low bits.
inline int32_t round_clamped(float x, int32_t low, int32_t high) noexcept {
  const float least = static_cast<float>(low);
  const float most = static_cast<float>(high);
  x = x < least ? least : x;
  x = x > most ? most : x;
  return static_cast<int32_t>(std::bit_cast<uint32_t>(x + 12582912.0F) - 0x4B400000U);
}

// The first element of largest magnitude, with its sign.
inline float extreme_of(const float* x, uint32_t n) noexcept {
  float extreme = 0;
  for (uint32_t i = 0; i < n; ++i) {
    if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
  }
  return extreme;
}

}  // namespace outrider::numerics::internal
