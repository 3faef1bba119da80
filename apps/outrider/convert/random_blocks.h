// SPDX-License-Identifier: Apache-2.0
// Random weights of any weight type, made as blocks: random codes under scales that give the values a wanted spread.
// Several GB/s a thread, where quantising random floats would do tens of MB/s.
#pragma once

#include <cstddef>
#include <cstdint>

#include "outrider/format/tensor_type.h"

namespace outrider::apps {

// What makes blocks of one type with values of root mean square `rms` and mean about zero. Immutable.
class RandomBlocks {
 public:
  // `type`: one with is_weight.
  RandomBlocks(format::TensorType type, float rms);

  // Fills n_blocks blocks. The same seed gives the same bytes.
  void fill(std::byte* blocks, uint64_t n_blocks, uint64_t seed) const noexcept;

 private:
  format::TensorType type_;
  float rms_;
  float d_ = 1;  // scale under which random codes have rms_
};

}  // namespace outrider::apps
