// SPDX-License-Identifier: Apache-2.0
// The K formats: 256 elements with packed sub-scales. In a block, B = i / 32 and k = i / 16 name the sub-blocks.
#include "outrider/numerics/blocks.h"
#include "outrider/numerics/dequant_families.h"

namespace outrider::numerics::internal {
namespace {

// Two-bit code of element 32 * sub32 + l: 32 bytes a half of the block, two bits a quarter of the half.
inline int32_t two_bits(const std::byte* qs, uint32_t sub32, uint32_t l) noexcept {
  return (load_u8(qs + sub32 / 4 * 32 + l) >> (2 * (sub32 % 4))) & 3;
}

// Nibble of element 32 * sub32 + l of Q4_K and Q5_K: 64 elements share 32 bytes, the even sub-block is low.
inline int32_t nibble(const std::byte* qs, uint32_t sub32, uint32_t l) noexcept {
  return (load_u8(qs + sub32 / 2 * 32 + l) >> (4 * (sub32 % 2))) & 15;
}

}  // namespace

void dequantize_q2_k(const std::byte* blocks, float* out, uint64_t n_elems) noexcept {
  for_each_block<Q2_K>(blocks, out, n_elems, [](const std::byte* block, float* y) {
    const float d = load_f16(block + Q2_K::kD);
    const float dmin = load_f16(block + Q2_K::kDmin);
    for (uint32_t sub = 0; sub < 16; ++sub) {
      const uint8_t packed = load_u8(block + Q2_K::kScales + sub);
      const float scale = d * static_cast<float>(packed & 15);
      const float min = dmin * static_cast<float>(packed >> 4);
      for (uint32_t j = 0; j < 16; ++j) {
        const int32_t q = two_bits(block + Q2_K::kQs, sub / 2, 16 * (sub % 2) + j);
        y[16 * sub + j] = scale * static_cast<float>(q) - min;
      }
    }
  });
}

void dequantize_q3_k(const std::byte* blocks, float* out, uint64_t n_elems) noexcept {
  for_each_block<Q3_K>(blocks, out, n_elems, [](const std::byte* block, float* y) {
    const float d = load_f16(block + Q3_K::kD);
    for (uint32_t sub = 0; sub < 16; ++sub) {
      const float scale = d * static_cast<float>(q3_k_scale(block + Q3_K::kScales, sub));
      for (uint32_t j = 0; j < 16; ++j) {
        const uint32_t l = 16 * (sub % 2) + j;
        const int32_t high = (load_u8(block + Q3_K::kHmask + l) >> (sub / 2)) & 1;  // set: nothing is subtracted
        const int32_t q = two_bits(block + Q3_K::kQs, sub / 2, l) - (high != 0 ? 0 : 4);
        y[16 * sub + j] = scale * static_cast<float>(q);
      }
    }
  });
}

void dequantize_q4_k(const std::byte* blocks, float* out, uint64_t n_elems) noexcept {
  for_each_block<Q4_K>(blocks, out, n_elems, [](const std::byte* block, float* y) {
    const float d = load_f16(block + Q4_K::kD);
    const float dmin = load_f16(block + Q4_K::kDmin);
    for (uint32_t sub = 0; sub < 8; ++sub) {
      const ScaleMin packed = k4_scale_min(block + Q4_K::kScales, sub);
      const float scale = d * static_cast<float>(packed.scale);
      const float min = dmin * static_cast<float>(packed.min);
      for (uint32_t l = 0; l < 32; ++l) {
        y[32 * sub + l] = scale * static_cast<float>(nibble(block + Q4_K::kQs, sub, l)) - min;
      }
    }
  });
}

void dequantize_q5_k(const std::byte* blocks, float* out, uint64_t n_elems) noexcept {
  for_each_block<Q5_K>(blocks, out, n_elems, [](const std::byte* block, float* y) {
    const float d = load_f16(block + Q5_K::kD);
    const float dmin = load_f16(block + Q5_K::kDmin);
    for (uint32_t sub = 0; sub < 8; ++sub) {
      const ScaleMin packed = k4_scale_min(block + Q5_K::kScales, sub);
      const float scale = d * static_cast<float>(packed.scale);
      const float min = dmin * static_cast<float>(packed.min);
      for (uint32_t l = 0; l < 32; ++l) {
        const int32_t high = (load_u8(block + Q5_K::kQh + l) >> sub) & 1;
        y[32 * sub + l] = scale * static_cast<float>(nibble(block + Q5_K::kQs, sub, l) | high << 4) - min;
      }
    }
  });
}

void dequantize_q6_k(const std::byte* blocks, float* out, uint64_t n_elems) noexcept {
  for_each_block<Q6_K>(blocks, out, n_elems, [](const std::byte* block, float* y) {
    const float d = load_f16(block + Q6_K::kD);
    for (uint32_t sub = 0; sub < 16; ++sub) {
      const float scale = d * static_cast<float>(load_i8(block + Q6_K::kScales + sub));
      const uint32_t half = sub / 8;
      const uint32_t quarter = sub % 8 / 2;
      for (uint32_t j = 0; j < 16; ++j) {
        const uint32_t l = 16 * (sub % 2) + j;
        const int32_t low = (load_u8(block + Q6_K::kQl + 64 * half + 32 * (quarter % 2) + l) >> (quarter / 2 * 4)) & 15;
        const int32_t high = (load_u8(block + Q6_K::kQh + 32 * half + l) >> (2 * quarter)) & 3;
        y[16 * sub + j] = scale * static_cast<float>((low | high << 4) - 32);
      }
    }
  });
}

}  // namespace outrider::numerics::internal
