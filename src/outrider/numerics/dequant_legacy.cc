// SPDX-License-Identifier: Apache-2.0
// Unblocked floats and the blocks of 32 with linear codes. Byte j of qs holds element j (low nibble) and j + 16 (high).
#include <cstring>

#include "outrider/numerics/blocks.h"
#include "outrider/numerics/dequant_families.h"

namespace outrider::numerics::internal {
namespace {

struct Nibbles {
  int32_t low, high;
};
inline Nibbles nibbles(const std::byte* p) noexcept {
  const uint8_t byte = load_u8(p);
  return {byte & 15, byte >> 4};
}

// The fifth bit of elements j and j + 16, in place.
inline Nibbles fifth_bits(uint32_t qh, uint32_t j) noexcept {
  return {static_cast<int32_t>(((qh >> j) & 1U) << 4), static_cast<int32_t>(((qh >> (j + 16)) & 1U) << 4)};
}

}  // namespace

void dequantize_f32(const std::byte* blocks, float* out, uint64_t n_elems) noexcept {
  std::memcpy(out, blocks, n_elems * sizeof(float));
}

void dequantize_f16(const std::byte* blocks, float* out, uint64_t n_elems) noexcept {
  for (uint64_t i = 0; i < n_elems; ++i) out[i] = load_f16(blocks + 2 * i);
}

void dequantize_bf16(const std::byte* blocks, float* out, uint64_t n_elems) noexcept {
  for (uint64_t i = 0; i < n_elems; ++i) out[i] = bf16_to_f32(load_u16(blocks + 2 * i));
}

void dequantize_q4_0(const std::byte* blocks, float* out, uint64_t n_elems) noexcept {
  for_each_block<Q4_0>(blocks, out, n_elems, [](const std::byte* block, float* y) {
    const float d = load_f16(block + Q4_0::kD);
    for (uint32_t j = 0; j < 16; ++j) {
      const auto [low, high] = nibbles(block + Q4_0::kQs + j);
      y[j] = d * static_cast<float>(low - 8);
      y[j + 16] = d * static_cast<float>(high - 8);
    }
  });
}

void dequantize_q4_1(const std::byte* blocks, float* out, uint64_t n_elems) noexcept {
  for_each_block<Q4_1>(blocks, out, n_elems, [](const std::byte* block, float* y) {
    const float d = load_f16(block + Q4_1::kD);
    const float m = load_f16(block + Q4_1::kM);
    for (uint32_t j = 0; j < 16; ++j) {
      const auto [low, high] = nibbles(block + Q4_1::kQs + j);
      y[j] = d * static_cast<float>(low) + m;
      y[j + 16] = d * static_cast<float>(high) + m;
    }
  });
}

void dequantize_q5_0(const std::byte* blocks, float* out, uint64_t n_elems) noexcept {
  for_each_block<Q5_0>(blocks, out, n_elems, [](const std::byte* block, float* y) {
    const float d = load_f16(block + Q5_0::kD);
    const uint32_t qh = load_u32(block + Q5_0::kQh);
    for (uint32_t j = 0; j < 16; ++j) {
      const auto [low, high] = nibbles(block + Q5_0::kQs + j);
      const auto [low5, high5] = fifth_bits(qh, j);
      y[j] = d * static_cast<float>((low | low5) - 16);
      y[j + 16] = d * static_cast<float>((high | high5) - 16);
    }
  });
}

void dequantize_q5_1(const std::byte* blocks, float* out, uint64_t n_elems) noexcept {
  for_each_block<Q5_1>(blocks, out, n_elems, [](const std::byte* block, float* y) {
    const float d = load_f16(block + Q5_1::kD);
    const float m = load_f16(block + Q5_1::kM);
    const uint32_t qh = load_u32(block + Q5_1::kQh);
    for (uint32_t j = 0; j < 16; ++j) {
      const auto [low, high] = nibbles(block + Q5_1::kQs + j);
      const auto [low5, high5] = fifth_bits(qh, j);
      y[j] = d * static_cast<float>(low | low5) + m;
      y[j + 16] = d * static_cast<float>(high | high5) + m;
    }
  });
}

void dequantize_q8_0(const std::byte* blocks, float* out, uint64_t n_elems) noexcept {
  for_each_block<Q8_0>(blocks, out, n_elems, [](const std::byte* block, float* y) {
    const float d = load_f16(block + Q8_0::kD);
    for (uint32_t i = 0; i < 32; ++i) y[i] = d * static_cast<float>(load_i8(block + Q8_0::kQs + i));
  });
}

}  // namespace outrider::numerics::internal
