// SPDX-License-Identifier: Apache-2.0
// Formats whose 4-bit codes index a table of 16 values, and the one- and two-bit formats.
#include "outrider/numerics/blocks.h"
#include "outrider/numerics/dequant_families.h"

namespace outrider::numerics::internal {
namespace {

// n bytes of codes: byte j holds y[j] (low nibble) and y[j + n] (high).
inline void lookup(const std::byte* qs, uint32_t n, float d, const int8_t (&values)[16], float* y) noexcept {
  for (uint32_t j = 0; j < n; ++j) {
    const uint8_t byte = load_u8(qs + j);
    y[j] = d * static_cast<float>(values[byte & 15]);
    y[j + n] = d * static_cast<float>(values[byte >> 4]);
  }
}

// Two-bit code of element i of a 256-element block with the layout of the K formats: 32 bytes a half, 2 bits a quarter.
inline int32_t two_bits(const std::byte* qs, uint32_t i) noexcept {
  return (load_u8(qs + i / 128 * 32 + i % 32) >> (2 * (i % 128 / 32))) & 3;
}

// Base-3 digit n (0 the most significant) of a byte that holds them as a fixed-point fraction of 256.
inline int32_t base3_digit(uint8_t byte, uint32_t n) noexcept {
  constexpr uint8_t kPow3[5] = {1, 3, 9, 27, 81};
  const auto shifted = static_cast<uint8_t>(byte * kPow3[n]);  // the wrap at 256 drops the digits before n
  return (shifted * 3) >> 8;
}

}  // namespace

void dequantize_iq4_nl(const std::byte* blocks, float* out, uint64_t n_elems) noexcept {
  for_each_block<IQ4_NL>(blocks, out, n_elems, [](const std::byte* block, float* y) {
    lookup(block + IQ4_NL::kQs, 16, load_f16(block + IQ4_NL::kD), kIq4Values, y);
  });
}

void dequantize_iq4_xs(const std::byte* blocks, float* out, uint64_t n_elems) noexcept {
  for_each_block<IQ4_XS>(blocks, out, n_elems, [](const std::byte* block, float* y) {
    const float d = load_f16(block + IQ4_XS::kD);
    for (uint32_t sub = 0; sub < 8; ++sub) {
      const float scale = d * static_cast<float>(iq4_xs_scale(block, sub));
      lookup(block + IQ4_XS::kQs + 16 * sub, 16, scale, kIq4Values, y + 32 * sub);
    }
  });
}

void dequantize_mxfp4(const std::byte* blocks, float* out, uint64_t n_elems) noexcept {
  for_each_block<MXFP4>(blocks, out, n_elems, [](const std::byte* block, float* y) {
    lookup(block + MXFP4::kQs, 16, e8m0_half(load_u8(block + MXFP4::kE)), kFp4Values, y);
  });
}

void dequantize_nvfp4(const std::byte* blocks, float* out, uint64_t n_elems) noexcept {
  for_each_block<NVFP4>(blocks, out, n_elems, [](const std::byte* block, float* y) {
    for (uint32_t sub = 0; sub < 4; ++sub) {
      lookup(block + NVFP4::kQs + 8 * sub, 8, ue4m3_half(load_u8(block + NVFP4::kD + sub)), kFp4Values, y + 16 * sub);
    }
  });
}

void dequantize_tq1_0(const std::byte* blocks, float* out, uint64_t n_elems) noexcept {
  for_each_block<TQ1_0>(blocks, out, n_elems, [](const std::byte* block, float* y) {
    const float d = load_f16(block + TQ1_0::kD);
    const std::byte* qs = block + TQ1_0::kQs;
    const std::byte* qh = block + TQ1_0::kQh;
    const auto value = [d](uint8_t byte, uint32_t n) { return static_cast<float>(base3_digit(byte, n) - 1) * d; };
    for (uint32_t i = 0; i < 160; ++i) y[i] = value(load_u8(qs + i % 32), i / 32);
    for (uint32_t i = 0; i < 80; ++i) y[160 + i] = value(load_u8(qs + 32 + i % 16), i / 16);
    for (uint32_t i = 0; i < 16; ++i) y[240 + i] = value(load_u8(qh + i % 4), i / 4);
  });
}

void dequantize_tq2_0(const std::byte* blocks, float* out, uint64_t n_elems) noexcept {
  for_each_block<TQ2_0>(blocks, out, n_elems, [](const std::byte* block, float* y) {
    const float d = load_f16(block + TQ2_0::kD);
    for (uint32_t i = 0; i < 256; ++i) y[i] = static_cast<float>(two_bits(block + TQ2_0::kQs, i) - 1) * d;
  });
}

void dequantize_q1_0(const std::byte* blocks, float* out, uint64_t n_elems) noexcept {
  for_each_block<Q1_0>(blocks, out, n_elems, [](const std::byte* block, float* y) {
    const float d = load_f16(block + Q1_0::kD);
    for (uint32_t i = 0; i < 128; ++i) y[i] = ((load_u8(block + Q1_0::kQs + i / 8) >> (i % 8)) & 1) != 0 ? d : -d;
  });
}

void dequantize_q2_0(const std::byte* blocks, float* out, uint64_t n_elems) noexcept {
  for_each_block<Q2_0>(blocks, out, n_elems, [](const std::byte* block, float* y) {
    const float d = load_f16(block + Q2_0::kD);
    for (uint32_t i = 0; i < 64; ++i) {
      y[i] = d * static_cast<float>(((load_u8(block + Q2_0::kQs + i / 4) >> (2 * (i % 4))) & 3) - 1);
    }
  });
}

}  // namespace outrider::numerics::internal
