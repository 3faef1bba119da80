// SPDX-License-Identifier: Apache-2.0
// A coarse copy of a large matrix (the output head), one bit a weight, that tells which rows are worth an exact
// product:
//   w_ij ~ row_along_i * direction_j + row_scale_i * column_scale_j * (sign_ij ? +1 : -1)
// direction is the unit vector along the mean row, row_along_i = w_i . direction, sign_ij the sign of what is left of
// w_ij. Rows of trained heads have a good part of their squares along that direction, rare tokens more than common
// ones, so a number a row for it is worth much more than the columns' means
// (bench/results/amd-epyc-milan/2026-11-30-sketch.txt).
//
// It serves guesses only: no result depends on it. A head of 151,936 x 2,048 takes 40 MB, so that its scores cost what
// reading 40 MB costs. Scores are integers within a segment of columns and f32 in one order after that: the same bits
// on every ISA. Nothing here allocates. Values that are not finite spoil guesses but nothing else: what is beyond 2^50,
// of x and of all that is made of it and of the weights, counts as 0, so that scores are finite.
#pragma once

#include <cstddef>
#include <cstdint>

#include "outrider/base/isa.h"

namespace outrider::kernels {

inline constexpr uint32_t kSketchBlockRows = 32;
inline constexpr uint32_t kSketchSegment = 512;  // columns that share a step; at most 2,064, where uint16 sums end

// n_blocks = ceil(n_rows / 32); k is a multiple of 32. Row r of block b has, for columns 8c .. 8c+7, the byte
// signs[(b * k/8 + c) * 32 + r], bit t for column 8c + t: one shuffle looks four columns of 32 rows up.
struct Sketch {
  uint32_t n_rows = 0;
  uint32_t k = 0;
  uint8_t* signs = nullptr;       // (n_blocks, k / 8, 32)
  float* row_scale = nullptr;     // (n_blocks * 32), 0 from n_rows on
  float* row_along = nullptr;     // (n_blocks * 32), 0 from n_rows on
  float* direction = nullptr;     // (k), of length 1 or 0
  float* column_scale = nullptr;  // (k)
};
uint64_t sketch_bytes(uint32_t n_rows, uint32_t k) noexcept;
// Parts of `memory` (sketch_bytes(), aligned to 64), each aligned to 64. Writes nothing.
Sketch lay_out_sketch(std::byte* memory, uint32_t n_rows, uint32_t k) noexcept;

// The direction, and the columns' root mean square of what is left, from a sample of rows (n_sample_rows >= 1, k):
// some 1,000, evenly over all. Before the first block.
void sketch_columns(const Sketch& sketch, const float* rows, uint32_t n_sample_rows) noexcept;

// Fills in rows 32 * block .. of which there are n (1..32; fewer than 32 only in the last block), from rows (n, k).
// row_scale is the least-squares value: the sum of column_scale_j |w_ij - row_along_i direction_j| over that of
// column_scale_j^2. Different blocks may be made by different threads at once.
using SketchBlockFn = void (*)(const Sketch& sketch, uint32_t block, const float* rows, uint32_t n) noexcept;
SketchBlockFn choose_sketch_block(Isa isa) noexcept;

// The products of one x (k) with the columns' scales as lookup tables, aligned to 64: for each 4 columns 16 bytes,
// entry m = 64 + round((sum over t of (bit t of m ? p_t : -p_t)) / step), 1..127, where p = column_scale * (x less
// what of it is along the direction); then x . direction, f32; then for each segment of kSketchSegment columns (the
// last may be shorter) its step, f32.
uint64_t sketch_table_bytes(uint32_t k) noexcept;
void sketch_tables(const Sketch& sketch, const float* x, std::byte* tables) noexcept;

// scores_i = row_scale_i * (sum of step * (entry - 64)) + row_along_i * (x . direction), an estimate of w_i . x, for
// the rows of blocks begin .. end-1, none past n_rows; scores (n_rows), those of other blocks are left alone.
using SketchScoresFn = void (*)(const Sketch& sketch, const std::byte* tables, uint32_t block_begin, uint32_t block_end,
                                float* scores) noexcept;
SketchScoresFn choose_sketch_scores(Isa isa) noexcept;

}  // namespace outrider::kernels
