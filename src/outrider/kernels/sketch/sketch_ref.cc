// SPDX-License-Identifier: Apache-2.0
// The scalar specification of the sketch's kernels. Sums of f32: column j joins lane j mod 8 in rising j, a product and
// then an addition; lanes fold 4, 2, 1. A score adds its segments in rising order, the same way, and what is along the
// direction at last.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "outrider/kernels/sketch/sketch-inl.h"
#include "outrider/kernels/sketch/sketch_variants.h"

namespace outrider::kernels {
namespace {

float dot(const float* a, const float* b, uint32_t k) noexcept {
  float lanes[8] = {};
  for (uint32_t j = 0; j < k; j += 8) {
    for (uint32_t t = 0; t < 8; ++t) lanes[t] += a[j + t] * b[j + t];
  }
  return fold_8_lanes(lanes);
}

}  // namespace

void sketch_block_ref(const Sketch& sketch, uint32_t block, const float* rows, uint32_t n) noexcept {
  const uint32_t k = sketch.k;
  const float* direction = sketch.direction;
  const float* scale = sketch.column_scale;
  uint8_t* signs = sketch.signs + uint64_t{block} * (k / 8) * kSketchBlockRows;
  float* row_scale = sketch.row_scale + uint64_t{block} * kSketchBlockRows;
  float* row_along = sketch.row_along + uint64_t{block} * kSketchBlockRows;
  const float square = dot(scale, scale, k);
  for (uint32_t r = 0; r < n; ++r) {
    const float* row = rows + uint64_t{r} * k;
    row_along[r] = or_zero(dot(row, direction, k));
    float products[8] = {};
    for (uint32_t j = 0; j < k; j += 8) {
      uint32_t bits = 0;
      for (uint32_t t = 0; t < 8; ++t) {
        const float rest = row[j + t] - row_along[r] * direction[j + t];
        products[t] += std::fabs(rest) * scale[j + t];
        bits |= static_cast<uint32_t>(rest >= 0.0F) << t;
      }
      signs[uint64_t{j} / 8 * kSketchBlockRows + r] = static_cast<uint8_t>(bits);
    }
    row_scale[r] = or_zero(fold_8_lanes(products) / square);
  }
  clear_block_tail(sketch, block, n);
}

void sketch_scores_ref(const Sketch& sketch, const std::byte* tables, uint32_t block_begin, uint32_t block_end,
                       float* scores) noexcept {
  const uint32_t n_groups = sketch.k / 8;
  const auto* entries = reinterpret_cast<const uint8_t*>(tables);
  float along;
  std::memcpy(&along, tables + 4 * uint64_t{sketch.k}, sizeof(along));
  for (uint32_t block = block_begin; block < block_end; ++block) {
    const uint8_t* signs = sketch.signs + uint64_t{block} * n_groups * kSketchBlockRows;
    const uint64_t first_row = uint64_t{block} * kSketchBlockRows;
    const auto n = static_cast<uint32_t>(std::min<uint64_t>(kSketchBlockRows, sketch.n_rows - first_row));
    float sums[kSketchBlockRows] = {};
    const std::byte* steps = tables + 4 * uint64_t{sketch.k} + sizeof(float);
    for (uint32_t begin = 0; begin < n_groups; begin += kSketchSegment / 8, steps += sizeof(float)) {
      const uint32_t end = std::min(begin + kSketchSegment / 8, n_groups);
      int32_t counts[kSketchBlockRows];
      std::fill_n(counts, kSketchBlockRows, static_cast<int32_t>(end - begin) * -128);  // entries are 64 too large
      for (uint32_t c = begin; c < end; ++c) {
        const uint8_t* table = entries + uint64_t{c} * 32;
        for (uint32_t r = 0; r < kSketchBlockRows; ++r) {
          const uint8_t byte = signs[uint64_t{c} * kSketchBlockRows + r];
          counts[r] += table[byte & 15] + table[16 + (byte >> 4)];
        }
      }
      float step;
      std::memcpy(&step, steps, sizeof(step));
      for (uint32_t r = 0; r < kSketchBlockRows; ++r) sums[r] += static_cast<float>(counts[r]) * step;
    }
    for (uint32_t r = 0; r < n; ++r) {
      const uint64_t row = first_row + r;
      scores[row] = sums[r] * sketch.row_scale[row] + along * sketch.row_along[row];
    }
  }
}

}  // namespace outrider::kernels
