// SPDX-License-Identifier: Apache-2.0
// The grid formats: an index picks 8 or 4 magnitudes from a codebook, signs are apart (IQ1: signed grid plus a shift).
// Per block, B = i / 32 names the sub-block and g = i / 8 the group.
#include "outrider/numerics/blocks.h"
#include "outrider/numerics/dequant_families.h"
#include "outrider/numerics/iq_grids.h"

namespace outrider::numerics::internal {
namespace {

// y[j] = scale * values[j], negated where bit j of `signs` is set.
template <size_t kWidth>
inline void put_signed(const std::array<int8_t, kWidth>& values, uint32_t signs, float scale, float* y) noexcept {
  for (uint32_t j = 0; j < kWidth; ++j) {
    const float magnitude = scale * static_cast<float>(values[j]);
    y[j] = ((signs >> j) & 1U) != 0 ? -magnitude : magnitude;
  }
}

inline void put_shifted(const std::array<int8_t, 8>& values, float shift, float scale, float* y) noexcept {
  for (uint32_t j = 0; j < 8; ++j) y[j] = scale * (static_cast<float>(values[j]) + shift);
}

inline uint32_t nibble(const std::byte* p, uint32_t which) noexcept { return (load_u8(p) >> (4 * which)) & 15U; }

}  // namespace

void dequantize_iq2_xxs(const std::byte* blocks, float* out, uint64_t n_elems) noexcept {
  for_each_block<IQ2_XXS>(blocks, out, n_elems, [](const std::byte* block, float* y) {
    const float d = load_f16(block + IQ2_XXS::kD);
    for (uint32_t sub = 0; sub < 8; ++sub) {
      const std::byte* packed = block + IQ2_XXS::kQs + 8 * sub;  // four index bytes, then signs and scale
      const uint32_t word = load_u32(packed + 4);
      const float scale = d * (0.5F + static_cast<float>(word >> 28)) * 0.25F;
      for (uint32_t g = 0; g < 4; ++g) {
        put_signed(kIq2XxsGrid[load_u8(packed + g)], even_signs((word >> (7 * g)) & 127U), scale, y + 32 * sub + 8 * g);
      }
    }
  });
}

void dequantize_iq2_xs(const std::byte* blocks, float* out, uint64_t n_elems) noexcept {
  for_each_block<IQ2_XS>(blocks, out, n_elems, [](const std::byte* block, float* y) {
    const float d = load_f16(block + IQ2_XS::kD);
    for (uint32_t g = 0; g < 32; ++g) {
      const uint32_t code = load_u16(block + IQ2_XS::kQs + 2 * g);
      const uint32_t s = nibble(block + IQ2_XS::kScales + g / 4, g % 4 / 2);
      const float scale = d * (0.5F + static_cast<float>(s)) * 0.25F;
      put_signed(kIq2XsGrid[code & 511U], even_signs(code >> 9), scale, y + 8 * g);
    }
  });
}

void dequantize_iq2_s(const std::byte* blocks, float* out, uint64_t n_elems) noexcept {
  for_each_block<IQ2_S>(blocks, out, n_elems, [](const std::byte* block, float* y) {
    const float d = load_f16(block + IQ2_S::kD);
    for (uint32_t g = 0; g < 32; ++g) {
      const uint32_t high = (load_u8(block + IQ2_S::kQh + g / 4) >> (2 * (g % 4))) & 3U;
      const uint32_t s = nibble(block + IQ2_S::kScales + g / 4, g % 4 / 2);
      const float scale = d * (0.5F + static_cast<float>(s)) * 0.25F;
      put_signed(kIq2SGrid[load_u8(block + IQ2_S::kQs + g) | high << 8], load_u8(block + IQ2_S::kSigns + g), scale,
                 y + 8 * g);
    }
  });
}

void dequantize_iq3_xxs(const std::byte* blocks, float* out, uint64_t n_elems) noexcept {
  for_each_block<IQ3_XXS>(blocks, out, n_elems, [](const std::byte* block, float* y) {
    const float d = load_f16(block + IQ3_XXS::kD);
    for (uint32_t sub = 0; sub < 8; ++sub) {
      const uint32_t word = load_u32(block + IQ3_XXS::kSignsAndScales + 4 * sub);
      const float scale = d * (0.5F + static_cast<float>(word >> 28)) * 0.5F;
      for (uint32_t v = 0; v < 8; ++v) {  // vectors of 4; two share a byte of signs
        const uint32_t signs = even_signs((word >> (7 * (v / 2))) & 127U) >> (4 * (v % 2));
        put_signed(kIq3XxsGrid[load_u8(block + IQ3_XXS::kQs + 8 * sub + v)], signs, scale, y + 32 * sub + 4 * v);
      }
    }
  });
}

void dequantize_iq3_s(const std::byte* blocks, float* out, uint64_t n_elems) noexcept {
  for_each_block<IQ3_S>(blocks, out, n_elems, [](const std::byte* block, float* y) {
    const float d = load_f16(block + IQ3_S::kD);
    for (uint32_t sub = 0; sub < 8; ++sub) {
      const uint32_t s = nibble(block + IQ3_S::kScales + sub / 2, sub % 2);
      const float scale = d * static_cast<float>(1 + 2 * s);
      const uint32_t qh = load_u8(block + IQ3_S::kQh + sub);
      for (uint32_t v = 0; v < 8; ++v) {
        const uint32_t index = load_u8(block + IQ3_S::kQs + 8 * sub + v) | ((qh >> v) & 1U) << 8;
        const uint32_t signs = load_u8(block + IQ3_S::kSigns + 4 * sub + v / 2) >> (4U * (v % 2));
        put_signed(kIq3SGrid[index], signs, scale, y + 32 * sub + 4 * v);
      }
    }
  });
}

void dequantize_iq1_s(const std::byte* blocks, float* out, uint64_t n_elems) noexcept {
  for_each_block<IQ1_S>(blocks, out, n_elems, [](const std::byte* block, float* y) {
    const float d = load_f16(block + IQ1_S::kD);
    for (uint32_t sub = 0; sub < 8; ++sub) {
      const uint32_t qh = load_u16(block + IQ1_S::kQh + 2 * sub);
      const float scale = d * static_cast<float>(2 * ((qh >> 12) & 7U) + 1);
      const float shift = (qh & 0x8000U) != 0 ? -0.125F : 0.125F;
      for (uint32_t g = 0; g < 4; ++g) {
        const uint32_t index = load_u8(block + IQ1_S::kQs + 4 * sub + g) | ((qh >> (3 * g)) & 7U) << 8;
        put_shifted(kIq1Grid[index], shift, scale, y + 32 * sub + 8 * g);
      }
    }
  });
}

void dequantize_iq1_m(const std::byte* blocks, float* out, uint64_t n_elems) noexcept {
  for_each_block<IQ1_M>(blocks, out, n_elems, [](const std::byte* block, float* y) {
    const std::byte* scales = block + IQ1_M::kScales;
    uint32_t d_bits = 0;  // the block scale is spread over the top nibbles of the four scale words
    for (uint32_t w = 0; w < 4; ++w) d_bits |= static_cast<uint32_t>(load_u16(scales + 2 * w) >> 12) << (4 * w);
    const float d = f16_to_f32(static_cast<uint16_t>(d_bits));
    for (uint32_t g = 0; g < 32; ++g) {
      const uint32_t sub = g / 4;
      const uint32_t word = load_u16(scales + 2 * (sub / 2));
      const uint32_t s = (word >> (6 * (sub % 2) + 3 * (g % 4 / 2))) & 7U;
      const uint32_t n = nibble(block + IQ1_M::kQh + g / 2, g % 2);
      const uint32_t index = load_u8(block + IQ1_M::kQs + g) | (n & 7U) << 8;
      put_shifted(kIq1Grid[index], (n & 8U) != 0 ? -0.125F : 0.125F, d * static_cast<float>(2 * s + 1), y + 8 * g);
    }
  });
}

}  // namespace outrider::numerics::internal
