// SPDX-License-Identifier: Apache-2.0
// What the parts of the sketch share. Internal linkage and no inline function of another header: any instruction set
// may include it.
#pragma once

#include "outrider/kernels/sketch/sketch.h"

namespace outrider::kernels {
namespace {

inline constexpr float kLargestNumber = 0x1p50F;  // products of two, summed over a row, stay within f32

inline float or_zero(float v) noexcept { return __builtin_fabsf(v) <= kLargestNumber ? v : 0.0F; }

inline float fold_8_lanes(const float* lanes) noexcept {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

// Rows from n on of a block, which are beyond the matrix.
inline void clear_block_tail(const Sketch& sketch, uint32_t block, uint32_t n) noexcept {
  const uint64_t n_groups = sketch.k / 8, first = uint64_t{block} * kSketchBlockRows;
  for (uint64_t r = n; r < kSketchBlockRows; ++r) {
    for (uint64_t c = 0; c < n_groups; ++c) sketch.signs[(block * n_groups + c) * kSketchBlockRows + r] = 0;
    sketch.row_scale[first + r] = sketch.row_along[first + r] = 0;
  }
}

}  // namespace
}  // namespace outrider::kernels
