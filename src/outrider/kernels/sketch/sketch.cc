// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/sketch/sketch.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "outrider/kernels/sketch/sketch-inl.h"
#include "outrider/kernels/sketch/sketch_variants.h"

namespace outrider::kernels {
namespace {

constexpr SketchVariant kVariants[] = {
    {Isa::kScalar, sketch_block_ref, sketch_scores_ref},
#if defined(__x86_64__)
    {Isa::kAvx2, sketch_block_avx2, sketch_scores_avx2},
#endif
};

const SketchVariant& best_variant(Isa isa) noexcept {
  const SketchVariant* best = kVariants;
  for (const SketchVariant& variant : kVariants) {
    if (variant.needs <= isa) best = &variant;
  }
  return *best;
}

constexpr uint64_t kAlign = 64;
uint64_t aligned(uint64_t bytes) noexcept { return (bytes + kAlign - 1) / kAlign * kAlign; }
uint64_t n_blocks(uint32_t n_rows) noexcept { return (uint64_t{n_rows} + kSketchBlockRows - 1) / kSketchBlockRows; }
uint64_t sign_bytes(uint32_t n_rows, uint32_t k) noexcept { return aligned(n_blocks(n_rows) * (k / 8) * 32); }
uint64_t row_bytes(uint32_t n_rows) noexcept { return n_blocks(n_rows) * kSketchBlockRows * sizeof(float); }
uint64_t column_bytes(uint32_t k) noexcept { return aligned(uint64_t{k} * sizeof(float)); }

float dot(const float* a, const float* b, uint32_t n) noexcept {
  float sum = 0;
  for (uint32_t j = 0; j < n; ++j) sum += a[j] * b[j];
  return sum;
}

// Four columns' products, in steps, to their 16 entries.
void write_entries(const float* p, float inverse_step, uint8_t* entries) noexcept {
  const float p0 = p[0] * inverse_step, p1 = p[1] * inverse_step;
  const float p2 = p[2] * inverse_step, p3 = p[3] * inverse_step;
  const float low[4] = {-p0 - p1, p0 - p1, p1 - p0, p0 + p1};
  const float high[4] = {-p2 - p3, p2 - p3, p3 - p2, p2 + p3};
  for (int h = 0; h < 4; ++h) {
    for (int l = 0; l < 4; ++l) {
      // At 1.5 * 2^23 the spacing of f32 is 1, so the addition rounds and the low byte is the entry.
      entries[4 * h + l] = static_cast<uint8_t>(std::bit_cast<uint32_t>((low[l] + high[h]) + (0x1.8p23F + 64.0F)));
    }
  }
}

}  // namespace

std::span<const SketchVariant> sketch_variants() noexcept { return kVariants; }
SketchBlockFn choose_sketch_block(Isa isa) noexcept { return best_variant(isa).block; }
SketchScoresFn choose_sketch_scores(Isa isa) noexcept { return best_variant(isa).scores; }

uint64_t sketch_bytes(uint32_t n_rows, uint32_t k) noexcept {
  return sign_bytes(n_rows, k) + 2 * row_bytes(n_rows) + 2 * column_bytes(k);
}

Sketch lay_out_sketch(std::byte* memory, uint32_t n_rows, uint32_t k) noexcept {
  std::byte* rows = memory + sign_bytes(n_rows, k);
  std::byte* columns = rows + 2 * row_bytes(n_rows);
  return {.n_rows = n_rows,
          .k = k,
          .signs = reinterpret_cast<uint8_t*>(memory),
          .row_scale = reinterpret_cast<float*>(rows),
          .row_along = reinterpret_cast<float*>(rows + row_bytes(n_rows)),
          .direction = reinterpret_cast<float*>(columns),
          .column_scale = reinterpret_cast<float*>(columns + column_bytes(k))};
}

void sketch_columns(const Sketch& sketch, const float* rows, uint32_t n_sample_rows) noexcept {
  const uint32_t k = sketch.k;
  const float inverse_n = 1.0F / static_cast<float>(n_sample_rows);
  float* direction = sketch.direction;
  float* scale = sketch.column_scale;
  std::fill_n(direction, k, 0.0F);
  std::fill_n(scale, k, 0.0F);
  for (uint32_t r = 0; r < n_sample_rows; ++r) {
    const float* row = rows + uint64_t{r} * k;
    for (uint32_t j = 0; j < k; ++j) direction[j] += or_zero(row[j]) * inverse_n;
  }
  const float length = std::sqrt(dot(direction, direction, k));
  const float inverse_length = length >= 0x1p-50F ? 1 / length : 0;
  for (uint32_t j = 0; j < k; ++j) direction[j] *= inverse_length;
  for (uint32_t r = 0; r < n_sample_rows; ++r) {
    const float* row = rows + uint64_t{r} * k;
    const float along = or_zero(dot(row, direction, k));
    for (uint32_t j = 0; j < k; ++j) {
      const float rest = or_zero(row[j] - along * direction[j]);
      scale[j] += rest * rest * inverse_n;
    }
  }
  for (uint32_t j = 0; j < k; ++j) scale[j] = std::sqrt(scale[j]);
}

uint64_t sketch_table_bytes(uint32_t k) noexcept {
  const uint64_t n_segments = (uint64_t{k} + kSketchSegment - 1) / kSketchSegment;
  return aligned(4 * uint64_t{k} + (1 + n_segments) * sizeof(float));
}

void sketch_tables(const Sketch& sketch, const float* x, std::byte* tables) noexcept {
  auto* entries = reinterpret_cast<uint8_t*>(tables);
  std::byte* steps = tables + 4 * uint64_t{sketch.k};
  float along = 0;
  for (uint32_t j = 0; j < sketch.k; ++j) along += or_zero(x[j]) * sketch.direction[j];
  along = or_zero(along);
  std::memcpy(steps, &along, sizeof(along));
  steps += sizeof(float);
  for (uint32_t begin = 0; begin < sketch.k; begin += kSketchSegment, steps += sizeof(float)) {
    const uint32_t n = std::min(kSketchSegment, sketch.k - begin);
    float products[kSketchSegment];
    for (uint32_t j = 0; j < n; ++j) {
      const float rest = or_zero(x[begin + j]) - along * sketch.direction[begin + j];
      products[j] = or_zero(rest * sketch.column_scale[begin + j]);
    }
    float largest = 0;
    for (uint32_t j = 0; j < n; j += 4) {
      largest = std::max(largest, (std::fabs(products[j]) + std::fabs(products[j + 1])) +
                                      (std::fabs(products[j + 2]) + std::fabs(products[j + 3])));
    }
    const bool is_zero = largest < 0x1p-100F;  // the inverse would leave f32
    const float step = is_zero ? 0.0F : largest / 63.0F;
    const float inverse_step = is_zero ? 0.0F : 63.0F / largest;
    std::memcpy(steps, &step, sizeof(step));
    for (uint32_t j = 0; j < n; j += 4) write_entries(products + j, inverse_step, entries + 4 * uint64_t{begin + j});
  }
}

}  // namespace outrider::kernels
