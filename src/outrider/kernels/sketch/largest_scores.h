// SPDX-License-Identifier: Apache-2.0
// Which of many scores are the n largest, in a small part of the time that the scores take (kernels/sketch/sketch.h).
#pragma once

#include <cstdint>
#include <span>

namespace outrider::kernels {

// How many numbers largest_scores() needs of scratch.
uint64_t largest_scores_scratch(uint64_t n_scores, uint64_t n) noexcept;

// Writes the indices of the out.size() largest of at most 2^32 scores in no particular order; of equal scores the lower
// indices. The same set on every machine. NaN and -infinity are never among them. Returns how many it wrote: fewer than
// out.size() only where there are no more. Does not allocate.
uint32_t largest_scores(std::span<const float> scores, std::span<uint32_t> out, std::span<uint64_t> scratch) noexcept;

}  // namespace outrider::kernels
