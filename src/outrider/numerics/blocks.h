// SPDX-License-Identifier: Apache-2.0
// Layouts of the block formats: where each field lies in a block, the code tables, and the small unpacking rules that
// dequantisation and the integer products share. Fields are byte offsets, not C structs, because blocks are unaligned
// (18, 34, 66, 110, 210 bytes): read them with load_u16, load_u32 and load_f16. Source of the facts: ggml-common.h of
// ggml-org/llama.cpp; formulas in docs/numerics.md "Dequantisation".
// Internal linkage throughout, so that files built with instruction-set flags may include it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "outrider/numerics/float16.h"

namespace outrider::numerics {
namespace {

// ---- field offsets, in bytes from the start of a block ----
// clang-format off: one line a format

struct Q4_0 {
  static constexpr uint32_t kElems = 32, kBytes = 18, kD = 0, kQs = 2;
};
struct Q4_1 {
  static constexpr uint32_t kElems = 32, kBytes = 20, kD = 0, kM = 2, kQs = 4;
};
struct Q5_0 {
  static constexpr uint32_t kElems = 32, kBytes = 22, kD = 0, kQh = 2, kQs = 6;
};
struct Q5_1 {
  static constexpr uint32_t kElems = 32, kBytes = 24, kD = 0, kM = 2, kQh = 4, kQs = 8;
};
struct Q8_0 {
  static constexpr uint32_t kElems = 32, kBytes = 34, kD = 0, kQs = 2;
};
struct IQ4_NL {
  static constexpr uint32_t kElems = 32, kBytes = 18, kD = 0, kQs = 2;
};
struct MXFP4 {
  static constexpr uint32_t kElems = 32, kBytes = 17, kE = 0, kQs = 1;
};
struct NVFP4 {
  static constexpr uint32_t kElems = 64, kBytes = 36, kD = 0, kQs = 4;
};
struct Q1_0 {
  static constexpr uint32_t kElems = 128, kBytes = 18, kD = 0, kQs = 2;
};
struct Q2_0 {
  static constexpr uint32_t kElems = 64, kBytes = 18, kD = 0, kQs = 2;
};
struct Q2_K {
  static constexpr uint32_t kElems = 256, kBytes = 84, kScales = 0, kQs = 16, kD = 80, kDmin = 82;
};
struct Q3_K {
  static constexpr uint32_t kElems = 256, kBytes = 110, kHmask = 0, kQs = 32, kScales = 96, kD = 108;
};
struct Q4_K {
  static constexpr uint32_t kElems = 256, kBytes = 144, kD = 0, kDmin = 2, kScales = 4, kQs = 16;
};
struct Q5_K {
  static constexpr uint32_t kElems = 256, kBytes = 176, kD = 0, kDmin = 2, kScales = 4, kQh = 16, kQs = 48;
};
struct Q6_K {
  static constexpr uint32_t kElems = 256, kBytes = 210, kQl = 0, kQh = 128, kScales = 192, kD = 208;
};
struct IQ4_XS {
  static constexpr uint32_t kElems = 256, kBytes = 136, kD = 0, kScalesH = 2, kScalesL = 4, kQs = 8;
};
struct IQ2_XXS {
  static constexpr uint32_t kElems = 256, kBytes = 66, kD = 0, kQs = 2;
};
struct IQ2_XS {
  static constexpr uint32_t kElems = 256, kBytes = 74, kD = 0, kQs = 2, kScales = 66;
};
struct IQ2_S {
  static constexpr uint32_t kElems = 256, kBytes = 82, kD = 0, kQs = 2, kSigns = 34, kQh = 66, kScales = 74;
};
struct IQ3_XXS {
  static constexpr uint32_t kElems = 256, kBytes = 98, kD = 0, kQs = 2, kSignsAndScales = 66;
};
struct IQ3_S {
  static constexpr uint32_t kElems = 256, kBytes = 110, kD = 0, kQs = 2, kQh = 66, kSigns = 74, kScales = 106;
};
struct IQ1_S {
  static constexpr uint32_t kElems = 256, kBytes = 50, kD = 0, kQs = 2, kQh = 34;
};
struct IQ1_M {
  static constexpr uint32_t kElems = 256, kBytes = 56, kQs = 0, kQh = 32, kScales = 48;
};
struct TQ1_0 {
  static constexpr uint32_t kElems = 256, kBytes = 54, kQs = 0, kQh = 48, kD = 52;
};
struct TQ2_0 {
  static constexpr uint32_t kElems = 256, kBytes = 66, kQs = 0, kD = 64;
};
// clang-format on

// ---- code tables ----

// IQ4_NL and IQ4_XS.
[[maybe_unused]] constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                    1,    13,   25,  38,  53,  69,  89,  113};
// MXFP4 and NVFP4: E2M1 doubled, so that codes are integers; the scales below are halved to match. Code 8 is +0.
[[maybe_unused]] constexpr int8_t kFp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// ---- unaligned little-endian reads ----

[[maybe_unused]] inline uint8_t load_u8(const std::byte* p) noexcept { return static_cast<uint8_t>(*p); }
[[maybe_unused]] inline int8_t load_i8(const std::byte* p) noexcept { return static_cast<int8_t>(*p); }
[[maybe_unused]] inline uint16_t load_u16(const std::byte* p) noexcept {
  uint16_t value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
[[maybe_unused]] inline uint32_t load_u32(const std::byte* p) noexcept {
  uint32_t value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
[[maybe_unused]] inline float load_f16(const std::byte* p) noexcept { return f16_to_f32(load_u16(p)); }

// ---- scales ----

// MXFP4: half of the E8M0 value, 2^(e-128); e = 0 and 1 are f32 subnormals. e = 255 (NaN by OCP) gives 2^127, as in
// ggml.
[[maybe_unused]] inline float e8m0_half(uint8_t e) noexcept {
  return std::bit_cast<float>(e < 2 ? 0x00200000U << e : static_cast<uint32_t>(e - 1) << 23);
}

// NVFP4: half of the unsigned E4M3 value; bit 7 is ignored, but the byte 0x7F means 0 (0xFF gives 240, as in ggml).
[[maybe_unused]] inline float ue4m3_half(uint8_t x) noexcept {
  const uint32_t exponent = (x >> 3) & 15U;
  const uint32_t mantissa = x & 7U;
  if (x == 0x7F) return 0.0F;
  if (exponent == 0) return static_cast<float>(mantissa) * 0x1p-10F;
  return std::bit_cast<float>(((exponent + 119U) << 23) | (mantissa << 20));
}

// Q4_K, Q5_K: 6-bit scale and minimum of sub-block `sub` (32 elements, 0..7) out of the 12 packed bytes at `s`.
struct ScaleMin {
  uint8_t scale, min;
};
[[maybe_unused]] inline ScaleMin k4_scale_min(const std::byte* s, uint32_t sub) noexcept {
  if (sub < 4) {
    return {static_cast<uint8_t>(load_u8(s + sub) & 63), static_cast<uint8_t>(load_u8(s + sub + 4) & 63)};
  }
  const uint8_t low = load_u8(s + sub + 4);
  return {static_cast<uint8_t>((low & 15) | (load_u8(s + sub - 4) >> 6) << 4),
          static_cast<uint8_t>((low >> 4) | (load_u8(s + sub) >> 6) << 4)};
}

// Q3_K: signed 6-bit scale of sub-block `sub` (16 elements, 0..15) out of the 12 packed bytes at `s`, -32..31.
[[maybe_unused]] inline int32_t q3_k_scale(const std::byte* s, uint32_t sub) noexcept {
  const uint32_t low = (load_u8(s + sub % 8) >> (4 * (sub / 8))) & 15U;
  const uint32_t high = (load_u8(s + 8 + sub % 4) >> (2 * (sub / 4))) & 3U;
  return static_cast<int32_t>(low | high << 4) - 32;
}

// IQ4_XS: signed 6-bit scale of sub-block `sub` (32 elements, 0..7) of the block at `block`, -32..31.
[[maybe_unused]] inline int32_t iq4_xs_scale(const std::byte* block, uint32_t sub) noexcept {
  const uint32_t low = (load_u8(block + IQ4_XS::kScalesL + sub / 2) >> (4 * (sub % 2))) & 15U;
  const uint32_t high = (static_cast<uint32_t>(load_u16(block + IQ4_XS::kScalesH)) >> (2 * sub)) & 3U;
  return static_cast<int32_t>(low | high << 4) - 32;
}

// IQ2_XXS, IQ2_XS, IQ3_XXS: 7-bit sign code to the byte of 8 sign bits, whose number of ones is even.
[[maybe_unused]] inline uint8_t even_signs(uint32_t code) noexcept {
  uint32_t parity = code ^ (code >> 4);
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return static_cast<uint8_t>(code | (parity & 1U) << 7);
}

}  // namespace
}  // namespace outrider::numerics
