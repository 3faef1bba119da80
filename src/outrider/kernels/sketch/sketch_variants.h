// SPDX-License-Identifier: Apache-2.0
// The variants of the sketch's kernels. Dispatch, tests and benches loop over sketch_variants().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "outrider/kernels/sketch/sketch.h"

namespace outrider::kernels {

void sketch_block_ref(const Sketch& sketch, uint32_t block, const float* rows, uint32_t n) noexcept;
void sketch_block_avx2(const Sketch& sketch, uint32_t block, const float* rows, uint32_t n) noexcept;

void sketch_scores_ref(const Sketch& sketch, const std::byte* tables, uint32_t block_begin, uint32_t block_end,
                       float* scores) noexcept;
void sketch_scores_avx2(const Sketch& sketch, const std::byte* tables, uint32_t block_begin, uint32_t block_end,
                        float* scores) noexcept;

struct SketchVariant {
  Isa needs;
  SketchBlockFn block;
  SketchScoresFn scores;
};
// Rising needs; the first needs nothing. Scores are bound by memory, so AVX-512 has nothing of its own.
std::span<const SketchVariant> sketch_variants() noexcept;

}  // namespace outrider::kernels
