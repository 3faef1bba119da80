// SPDX-License-Identifier: Apache-2.0
// Rotary angles of a position, made in double and rounded once, so that every device multiplies with the same bits.
// Pair i turns by position * frequency_i, frequency_i = base^(-2i/n_rot) / divisor_i, scaled by 1/factor (linear) or by
// the YaRN blend (Peng et al. 2023; ../shared/spec/architectures-core.md section 3.2). Threads: immutable.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "outrider/model/model.h"

namespace outrider::engine {

class RopeTable {
 public:
  // `divisors`: n_rot / 2 of them, or empty.
  RopeTable(const model::RopeSpec& spec, std::span<const float> divisors);

  // Writes n_rot / 2 (cos, sin) pairs, magnitude multiplied in.
  void fill(uint32_t position, float* cos_sin) const noexcept;

 private:
  std::vector<double> frequencies_;  // (n_rot / 2)
  double magnitude_;
};

}  // namespace outrider::engine
