// SPDX-License-Identifier: Apache-2.0
// What the variants of sketch_block() share. Internal linkage and no inline function of another header: any instruction
// set may include it.
#pragma once

namespace outrider::kernels {
namespace {

inline float fold_8_lanes(const float* lanes) noexcept {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

// 0 where the quotient is not finite.
inline float row_scale_of(float product, float square) noexcept {
  const float scale = product / square;
  return scale <= 0x1.fffffep+127F ? scale : 0.0F;
}

}  // namespace
}  // namespace outrider::kernels
