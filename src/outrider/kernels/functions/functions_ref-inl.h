// SPDX-License-Identifier: Apache-2.0
// exp, sigmoid, silu and softplus in f32: the specification, one operation after the other. functions_vec-inl.h does
// the very same sequence on vectors, so every variant gives these bits. Why our own: libm's differ between machines.
// Method of exp: x = n ln2 + r, |r| <= ln2/2, by two fma; e^r = 1 + r + r^2 P(r), P of degree 4 (our minimax fit,
// relative error 3.1e-9); then 2^n in two exact factors, so that results below 2^-126 are rounded once (gradual
// underflow). e^-inf = 0, overflow gives +inf (x >= 88.722839), NaN gives NaN (its payload is not part of the law).
// Errors: the kMaxUlp constants below, in units of the last place of the true value, measured against double over every
// f32 of 1e-12 to 200 in magnitude and a 64th of the smaller ones; Functions.ErrorBoundsHold guards them by a sample.
// Internal linkage and no inline function of another header: files of any instruction set may include it.
#pragma once

#include <cstdint>

namespace outrider::kernels {
namespace {

inline constexpr double kExpMaxUlp = 0.90;       // all x, subnormal results too
inline constexpr double kSigmoidMaxUlp = 2.49;   // x >= kSigmoidLow
inline constexpr double kSiluMaxUlp = 2.87;      // x >= kSigmoidLow
inline constexpr double kSoftplusMaxUlp = 2.80;  // all x
// Below it e^-x comes near overflow: sigmoid errs by at most 2^-125, silu by 2^-118 (they become 0 from -88.722839 on).
inline constexpr float kSigmoidLow = -87.0F;

inline constexpr float kExpLow = -104.0F;  // e^-104 < 2^-150 rounds to 0
inline constexpr float kExpHigh = 89.0F;   // e^89 overflows
inline constexpr float kLog2E = 0x1.715476p+0F;
inline constexpr float kRoundShift = 0x1.8p+23F;   // adding it rounds to an integer (nearest even) in the low bits
inline constexpr float kLn2High = 0x1.62e4p-1F;    // 15 bits: n * kLn2High is exact
inline constexpr float kLn2Low = 0x1.7f7d1cp-20F;  // ln 2 - kLn2High
inline constexpr float kExpPoly[5] = {0x1.fffffcp-2F, 0x1.555492p-3F, 0x1.5558f2p-5F, 0x1.123a2p-7F, 0x1.6a23cep-10F};
// atanh(s) / s = 1 + z Q(z), z = s^2 <= 1/9 (our minimax fit, relative error 1.2e-10).
inline constexpr float kAtanhPoly[5] = {0x1.555558p-2F, 0x1.9996a8p-3F, 0x1.25097cp-3F, 0x1.b6d5b2p-4F, 0x1.f1b2c2p-4F};

[[maybe_unused]] inline float exp_ref(float x) noexcept {
  x = kExpLow > x ? kExpLow : x;  // in this form a NaN stays
  x = kExpHigh < x ? kExpHigh : x;
  const float shifted = __builtin_fmaf(x, kLog2E, kRoundShift);
  const float n = shifted - kRoundShift;
  float r = __builtin_fmaf(n, -kLn2High, x);
  r = __builtin_fmaf(n, -kLn2Low, r);
  float p = kExpPoly[4];
  for (int i = 3; i >= 0; --i) p = __builtin_fmaf(p, r, kExpPoly[i]);
  p = __builtin_fmaf(p, r, 1.0F);
  p = __builtin_fmaf(p, r, 1.0F);
  const auto exponent =
      static_cast<int32_t>(__builtin_bit_cast(uint32_t, shifted) - __builtin_bit_cast(uint32_t, kRoundShift));
  const int32_t half = exponent >> 1;
  const auto scale = [](int32_t e) { return __builtin_bit_cast(float, (static_cast<uint32_t>(e) + 127U) << 23); };
  return p * scale(half) * scale(static_cast<int32_t>(static_cast<uint32_t>(exponent) - static_cast<uint32_t>(half)));
}

// 1 / (1 + e^-x), IEEE division.
[[maybe_unused]] inline float sigmoid_ref(float x) noexcept { return 1.0F / (1.0F + exp_ref(-x)); }

[[maybe_unused]] inline float silu_ref(float x) noexcept { return x * sigmoid_ref(x); }

// ln(1 + e^x) = max(x, 0) + 2 atanh(u / (2 + u)), u = e^-|x|.
[[maybe_unused]] inline float softplus_ref(float x) noexcept {
  const float u = exp_ref(x > 0.0F ? -x : x);
  const float s = u / (2.0F + u);
  const float z = s * s;
  float q = kAtanhPoly[4];
  for (int i = 3; i >= 0; --i) q = __builtin_fmaf(q, z, kAtanhPoly[i]);
  const float twice = s + s;
  const float log1p = __builtin_fmaf(twice * z, q, twice);
  return (x > 0.0F ? x : 0.0F) + log1p;
}

}  // namespace
}  // namespace outrider::kernels
