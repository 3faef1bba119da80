// SPDX-License-Identifier: Apache-2.0
// From router logits to chosen experts and weights (../shared/spec/architectures-core.md section 4): a few hundred
// numbers in one order of operations, the same code on every ISA.
#pragma once

#include <cstdint>

#include "outrider/base/isa.h"

namespace outrider::kernels {

enum class RouterScore : uint8_t { kSoftmax, kSigmoid, kSoftmaxOfChosen, kSqrtSoftplus };

struct RouterSpec {
  RouterScore score = RouterScore::kSoftmax;
  uint32_t n_experts = 0;  // 1..1025
  uint32_t n_used = 0;     // 1..n_experts
  uint32_t n_groups = 0;   // grouping is active when > 1
  uint32_t n_groups_used = 0;
  bool normalize = false;  // divide by max(sum of chosen weights, 2^-14)
  float weight_scale = 1;  // 0 and 1 mean none; applied after normalising
};

// logits (n_experts); selection_bias (n_experts) or nullptr: added for choosing only. Writes n_used ids in descending
// selection value (ties: lower id first) and their weights. scratch: 3 * n_experts floats.
// Softmax: m = max, e_i = exp(l_i - m), p_i = e_i / sum; every sum by the float law (index = expert, or rank among the
// chosen). n_experts is a multiple of n_groups. A group's value is the sum of its two largest selection values; ties
// between groups: lower first; the rest of the groups select as -infinity.
// Returns false when a logit or a selection value is NaN or a weight is not finite (the caller fails the request,
// naming the layer); ids are then 0..n_used-1, weights 0. Does not allocate.
using RouteFn = bool (*)(const RouterSpec& spec, const float* logits, const float* selection_bias, float* scratch,
                         uint32_t* ids, float* weights) noexcept;
RouteFn choose_route(Isa isa) noexcept;

}  // namespace outrider::kernels
