// SPDX-License-Identifier: Apache-2.0
// Formats whose block is decided by one rule, without a search: the same rules as ggml's reference quantisers
// (../shared/spec/gguf-and-quants.md section 8), so that files agree.
#include <algorithm>
#include <cmath>

#include "outrider/numerics/blocks.h"
#include "outrider/numerics/quantize_families.h"

namespace outrider::numerics::internal {
namespace {

// 1 / d, or 0 for d = 0 (and for a d so small that 1 / d overflows: the block is zero at the precision of f16 anyway).
inline float reciprocal(float d) noexcept { return std::fabs(d) < 0x1p-120F ? 0.0F : 1.0F / d; }

// trunc(x) for x >= 0, no more than `most`.
inline uint32_t truncated(float x, uint32_t most) noexcept {
  return x >= static_cast<float>(most) ? most : static_cast<uint32_t>(std::max(x, 0.0F));
}

struct Range {
  float low, high;
};
inline Range range_of(const float* x, uint32_t n) noexcept {
  Range range{x[0], x[0]};
  for (uint32_t i = 1; i < n; ++i) range = {std::min(range.low, x[i]), std::max(range.high, x[i])};
  return range;
}

// Writes 32 codes of up to 5 bits: nibbles of j and j + 16 share byte j; returns the fifth bits.
inline uint32_t store_codes(const uint32_t (&codes)[32], std::byte* qs) noexcept {
  uint32_t fifth = 0;
  for (uint32_t j = 0; j < 16; ++j) store_u8(qs + j, (codes[j] & 15U) | (codes[j + 16] & 15U) << 4);
  for (uint32_t i = 0; i < 32; ++i) fifth |= (codes[i] >> 4) << i;
  return fifth;
}

// Signed codes of `bits` bits: the extreme element gets the lowest code.
inline uint16_t signed_codes(const float* x, uint32_t bits, uint32_t (&codes)[32]) noexcept {
  const auto half = static_cast<float>(1U << (bits - 1));
  const float d = extreme_of(x, 32) / -half;
  const float inverse = reciprocal(d);
  for (uint32_t i = 0; i < 32; ++i) codes[i] = truncated(x[i] * inverse + (half + 0.5F), (1U << bits) - 1);
  return scale_bits(d);
}

struct ScaleAndMin {
  uint16_t d, m;
};
inline ScaleAndMin affine_codes(const float* x, uint32_t bits, uint32_t (&codes)[32]) noexcept {
  const uint32_t most = (1U << bits) - 1;
  const auto [low, high] = range_of(x, 32);
  const float d = (high - low) / static_cast<float>(most);
  const float inverse = reciprocal(d);
  for (uint32_t i = 0; i < 32; ++i) codes[i] = truncated((x[i] - low) * inverse + 0.5F, most);
  return {scale_bits(d), scale_bits(low)};
}

// Code of the table value nearest to v; of two equally near the one with the lower code.
inline uint32_t nearest_fp4(float v) noexcept {
  const float magnitude = std::fabs(v);
  uint32_t code = 0;
  for (uint32_t c = 1; c < 8; ++c) {
    const float middle = static_cast<float>(kFp4Values[c - 1] + kFp4Values[c]) * 0.5F;
    code += magnitude > middle ? 1U : 0U;
  }
  return v < 0 && code != 0 ? code + 8 : code;
}

}  // namespace

void quantize_f32(const float* x, std::byte* blocks, uint64_t n_elems) noexcept {
  std::memcpy(blocks, x, n_elems * sizeof(float));
}

void quantize_f16(const float* x, std::byte* blocks, uint64_t n_elems) noexcept {
  for (uint64_t i = 0; i < n_elems; ++i) store_u16(blocks + 2 * i, f32_to_f16(x[i]));
}

void quantize_bf16(const float* x, std::byte* blocks, uint64_t n_elems) noexcept {
  for (uint64_t i = 0; i < n_elems; ++i) store_u16(blocks + 2 * i, f32_to_bf16(x[i]));
}

void quantize_q4_0(const float* x, std::byte* blocks, uint64_t n_elems) noexcept {
  make_each_block<Q4_0>(x, blocks, n_elems, [](const float* v, std::byte* block) {
    uint32_t codes[32];
    store_u16(block + Q4_0::kD, signed_codes(v, 4, codes));
    store_codes(codes, block + Q4_0::kQs);
  });
}

void quantize_q5_0(const float* x, std::byte* blocks, uint64_t n_elems) noexcept {
  make_each_block<Q5_0>(x, blocks, n_elems, [](const float* v, std::byte* block) {
    uint32_t codes[32];
    store_u16(block + Q5_0::kD, signed_codes(v, 5, codes));
    store_u32(block + Q5_0::kQh, store_codes(codes, block + Q5_0::kQs));
  });
}

void quantize_q4_1(const float* x, std::byte* blocks, uint64_t n_elems) noexcept {
  make_each_block<Q4_1>(x, blocks, n_elems, [](const float* v, std::byte* block) {
    uint32_t codes[32];
    const auto [d, m] = affine_codes(v, 4, codes);
    store_u16(block + Q4_1::kD, d);
    store_u16(block + Q4_1::kM, m);
    store_codes(codes, block + Q4_1::kQs);
  });
}

void quantize_q5_1(const float* x, std::byte* blocks, uint64_t n_elems) noexcept {
  make_each_block<Q5_1>(x, blocks, n_elems, [](const float* v, std::byte* block) {
    uint32_t codes[32];
    const auto [d, m] = affine_codes(v, 5, codes);
    store_u16(block + Q5_1::kD, d);
    store_u16(block + Q5_1::kM, m);
    store_u32(block + Q5_1::kQh, store_codes(codes, block + Q5_1::kQs));
  });
}

void quantize_q8_0(const float* x, std::byte* blocks, uint64_t n_elems) noexcept {
  make_each_block<Q8_0>(x, blocks, n_elems, [](const float* v, std::byte* block) {
    const float d = std::fabs(extreme_of(v, 32)) / 127.0F;
    const float inverse = reciprocal(d);
    store_u16(block + Q8_0::kD, scale_bits(d));
    for (uint32_t i = 0; i < 32; ++i) {  // nearest, ties away from zero; adding 0.5 first could round up
      const float scaled = std::fabs(v[i] * inverse);
      const uint32_t whole = truncated(scaled, 127);
      const uint32_t magnitude = std::min(whole + (scaled - static_cast<float>(whole) >= 0.5F ? 1U : 0U), 127U);
      store_u8(block + Q8_0::kQs + i, v[i] < 0 ? 0U - magnitude : magnitude);
    }
  });
}

void quantize_mxfp4(const float* x, std::byte* blocks, uint64_t n_elems) noexcept {
  make_each_block<MXFP4>(x, blocks, n_elems, [](const float* v, std::byte* block) {
    const float most = std::fabs(extreme_of(v, 32));
    const int exponent = most == 0 ? 0 : std::clamp(std::ilogb(most) - 2 + 127, 0, 254);
    const double inverse = std::ldexp(1.0, 128 - exponent);  // in double, because 2^128 is not an f32
    uint32_t codes[32];
    for (uint32_t i = 0; i < 32; ++i) codes[i] = nearest_fp4(static_cast<float>(v[i] * inverse));
    store_u8(block + MXFP4::kE, static_cast<uint32_t>(exponent));
    store_codes(codes, block + MXFP4::kQs);
  });
}

}  // namespace outrider::numerics::internal
