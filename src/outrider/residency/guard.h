// SPDX-License-Identifier: Apache-2.0
// What a prediction may push out (design.md section 6): not an expert that was demanded twice or more and is hotter
// than the predicted one by 25 % and 4. Heat is a count of demands that halves every `half_life_tokens` tokens. Asked
// beside the policy's own admit(), whatever the policy is: a wrong guess must cost idle time only, never a warm expert.
// Pure; memory is fixed at construction. Threads: thread-compatible.
#pragma once

#include <cstdint>
#include <span>

#include "outrider/residency/layer_table.h"

namespace outrider::residency {

class EvictionGuard {
 public:
  explicit EvictionGuard(std::span<const uint32_t> n_experts, double half_life_tokens = 256);

  // A pass demands these experts; `uses[i]` tokens chose experts[i].
  void observe(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> uses) noexcept;
  void end_step(uint32_t n_tokens) noexcept;
  // May `predicted` take the slot of `victim`?
  bool admits(uint32_t layer, uint32_t predicted, uint32_t victim) const noexcept;

  // The decayed count, for a warm start.
  double heat(uint32_t layer, uint32_t expert) const noexcept { return heat_.at(layer, expert).weight / weight_; }

 private:
  struct Heat {
    double weight = 0;  // in units of weight_
    uint32_t n_demands = 0;
  };
  LayerTable<Heat> heat_;
  const double half_life_tokens_;
  double half_lives_ = 0;  // since the last rescale
  double weight_ = 1;      // of a use now: new uses grow instead of old ones shrinking
};

}  // namespace outrider::residency
