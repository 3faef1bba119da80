// SPDX-License-Identifier: Apache-2.0
// Rows of the token embedding, read from the drive as tokens ask for them: the matrix is large (a tenth of a model with
// a large vocabulary) and a token needs one row of it, so where memory is short its place serves the experts better.
// Through the page cache, which keeps the rows of frequent tokens while nobody needs the memory.
// Threads: owned by one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "outrider/base/aligned_buffer.h"
#include "outrider/engine/engine.h"
#include "outrider/io/file.h"
#include "outrider/kernels/matmul/matmul.h"
#include "outrider/model/model.h"

namespace outrider::engine {

class EmbeddingRows {
 public:
  // Room for `chunk` rows. Throws Error(kIo) for a file that cannot be opened.
  EmbeddingRows(const model::Model& model, uint32_t chunk, io::FaultPlan* faults);

  // Reads the rows of `tokens` (at most `chunk`, all in the vocabulary). Row i of the result belongs to tokens[i].
  // Throws Error(kIo) naming file, offset, wanted and got.
  kernels::Weights read(std::span<const int32_t> tokens);
  // 0, 1, ... `chunk` - 1: what embed() takes with the result of read().
  std::span<const int32_t> row_numbers(size_t n) const noexcept { return {numbers_.data(), n}; }

  static uint64_t n_bytes(const model::Model& model, uint32_t chunk) noexcept;

 private:
  const format::Tensor& tensor_;
  io::FaultPlan* faults_;
  io::File file_;
  AlignedBuffer rows_;
  std::vector<int32_t> numbers_;
};

// False where the head multiplies with the same tensor, which then is read whole for every token.
bool embedding_can_stay_on_drive(const model::Model& model) noexcept;

}  // namespace outrider::engine
