// SPDX-License-Identifier: Apache-2.0
// What the parts of the sketch share. Internal linkage and no inline function of another header: any instruction set
// may include it.
#pragma once

namespace outrider::kernels {
namespace {

inline constexpr float kLargestNumber = 0x1p50F;  // products of two, summed over a row, stay within f32

inline float or_zero(float v) noexcept { return __builtin_fabsf(v) <= kLargestNumber ? v : 0.0F; }

inline float fold_8_lanes(const float* lanes) noexcept {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

}  // namespace
}  // namespace outrider::kernels
