// SPDX-License-Identifier: Apache-2.0
#include "outrider/numerics/float16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace outrider::numerics {
namespace {

// The value of f16 bits by the definition of binary16, in double.
double f16_value(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const double fraction = (bits & 1023) / 1024.0;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 31) return fraction != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  return sign * (exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1.0 + fraction, exponent - 15));
}

// The bits of the f16 nearest to x, ties to even, by rounding in double to the format's ulp at x.
uint16_t nearest_f16(float x) {
  const auto sign = static_cast<uint16_t>(std::signbit(x) ? 0x8000 : 0);
  const double magnitude = std::fabs(static_cast<double>(x));
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), -14);
  const double in_ulps = std::nearbyint(std::ldexp(magnitude, 10 - exponent));  // 0..2048, the default mode is RNE
  const double rounded = std::ldexp(in_ulps, exponent - 10);
  if (rounded > 65504) return sign | 0x7C00;
  if (rounded < 0x1p-14) return static_cast<uint16_t>(sign | static_cast<int>(std::ldexp(rounded, 24)));
  const int e = std::ilogb(rounded);
  return static_cast<uint16_t>(sign | (e + 15) << 10 | (static_cast<int>(std::ldexp(rounded, 10 - e)) - 1024));
}

uint16_t nearest_bf16(float x) {
  const auto sign = static_cast<uint16_t>(std::signbit(x) ? 0x8000 : 0);
  const double magnitude = std::fabs(static_cast<double>(x));
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), -126);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(magnitude, 7 - exponent)), exponent - 7);
  if (rounded >= 0x1p128) return sign | 0x7F80;
  return static_cast<uint16_t>(sign | std::bit_cast<uint32_t>(static_cast<float>(rounded)) >> 16);
}

TEST(Float16, EveryF16WidensToItsValueAndComesBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto h = static_cast<uint16_t>(bits);
    const float wide = f16_to_f32(h);
    if (std::isnan(f16_value(h))) {
      EXPECT_TRUE(std::isnan(wide)) << bits;
      EXPECT_EQ(f32_to_f16(wide), h | 0x0200) << bits;  // payload and sign kept, made quiet
      continue;
    }
    ASSERT_EQ(static_cast<double>(wide), f16_value(h)) << bits;
    ASSERT_EQ(std::signbit(wide), (bits & 0x8000) != 0) << bits;
    ASSERT_EQ(f32_to_f16(wide), h) << bits;
  }
}

TEST(Float16, EveryBf16WidensToItsValueAndComesBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto b = static_cast<uint16_t>(bits);
    const float wide = bf16_to_f32(b);
    if (std::isnan(wide)) {
      EXPECT_EQ(f32_to_bf16(wide), b | 0x0040) << bits;
      continue;
    }
    ASSERT_EQ(f32_to_bf16(wide), b) << bits;
  }
}

// A monotone rounding is right everywhere if it is right at and next to every tie.
TEST(Float16, F16RoundsToNearestEvenAroundEveryTie) {
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const double low = f16_value(static_cast<uint16_t>(bits));
    const double high = bits + 1 == 0x7C00 ? 65536.0 : f16_value(static_cast<uint16_t>(bits + 1));
    const auto tie = static_cast<float>((low + high) / 2);  // 12 significant bits: exact
    for (const float sign : {1.0F, -1.0F}) {
      for (const float x : {std::nextafter(tie, 0.0F), tie, std::nextafter(tie, 1e9F)}) {
        ASSERT_EQ(f32_to_f16(sign * x), nearest_f16(sign * x)) << x;
      }
    }
  }
}

TEST(Float16, Bf16RoundsToNearestEvenAroundEveryTie) {
  for (uint32_t bits = 0; bits < 0x7F80; ++bits) {
    const auto tie = std::bit_cast<float>(bits << 16 | 0x8000U);
    for (const float sign : {1.0F, -1.0F}) {
      for (const float x : {std::nextafter(tie, 0.0F), tie, std::nextafter(tie, 3e38F)}) {
        ASSERT_EQ(f32_to_bf16(sign * x), nearest_bf16(sign * x)) << x;
      }
    }
  }
}

TEST(Float16, NarrowingAgreesWithTheDoubleReferenceOnASweepOfAllFloats) {
  for (uint64_t bits = 0; bits < (1ULL << 32); bits += 3001) {
    const auto x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (std::isnan(x)) {
      ASSERT_TRUE(std::isnan(f16_to_f32(f32_to_f16(x)))) << bits;
      ASSERT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(x)))) << bits;
      continue;
    }
    ASSERT_EQ(f32_to_f16(x), std::isinf(x) ? (x < 0 ? 0xFC00 : 0x7C00) : nearest_f16(x)) << bits;
    ASSERT_EQ(f32_to_bf16(x), std::isinf(x) ? (x < 0 ? 0xFF80 : 0x7F80) : nearest_bf16(x)) << bits;
  }
}

}  // namespace
}  // namespace outrider::numerics
