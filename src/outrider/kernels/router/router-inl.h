// SPDX-License-Identifier: Apache-2.0
// The one body of route(). Its variants differ in compiler flags only: without hardware fma in the instruction set,
// each fma of the law is a call. Internal linkage and no inline function of another header: any instruction set may
// include it.
#pragma once

#include "outrider/kernels/functions/float_law_ref-inl.h"
#include "outrider/kernels/functions/functions_ref-inl.h"
#include "outrider/kernels/router/router.h"

namespace outrider::kernels {
namespace {

// values_i = e^(values_i - max) / sum.
void softmax(float* values, uint32_t n) noexcept {
  float m = values[0];
  for (uint32_t i = 1; i < n; ++i) m = values[i] > m ? values[i] : m;
  FloatLanes lanes;
  for (uint32_t i = 0; i < n; ++i) {
    values[i] = exp_ref(values[i] - m);
    lanes.join(i, values[i], 1.0F);
  }
  const float sum = lanes.fold();
  for (uint32_t i = 0; i < n; ++i) values[i] /= sum;
}

void make_scores(RouterScore score, const float* logits, uint32_t n, float* scores) noexcept {
  for (uint32_t e = 0; e < n; ++e) scores[e] = logits[e];
  switch (score) {
    case RouterScore::kSoftmax:
      softmax(scores, n);
      break;
    case RouterScore::kSigmoid:
      for (uint32_t e = 0; e < n; ++e) scores[e] = sigmoid_ref(scores[e]);
      break;
    case RouterScore::kSoftmaxOfChosen:
      break;
    case RouterScore::kSqrtSoftplus:
      for (uint32_t e = 0; e < n; ++e) scores[e] = __builtin_sqrtf(softplus_ref(scores[e]));
      break;
  }
}

// Sets the selection values outside the best groups to -infinity. A group's value is the sum of its two largest.
void keep_best_groups(const RouterSpec& spec, float* selection, float* group_values) noexcept {
  constexpr float kNone = -__builtin_inff();
  const uint32_t group_size = spec.n_experts / spec.n_groups;
  for (uint32_t g = 0; g < spec.n_groups; ++g) {
    float largest = kNone;
    float second = kNone;
    for (uint32_t e = g * group_size; e < (g + 1) * group_size; ++e) {
      if (selection[e] > largest) {
        second = largest;
        largest = selection[e];
      } else if (selection[e] > second) {
        second = selection[e];
      }
    }
    group_values[g] = group_size > 1 ? largest + second : largest;
  }
  for (uint32_t g = 0; g < spec.n_groups; ++g) {
    uint32_t n_better = 0;
    for (uint32_t other = 0; other < spec.n_groups; ++other) {
      n_better += group_values[other] > group_values[g] || (group_values[other] == group_values[g] && other < g);
    }
    if (n_better < spec.n_groups_used) continue;
    for (uint32_t e = g * group_size; e < (g + 1) * group_size; ++e) selection[e] = kNone;
  }
}

// The n_used largest in falling order. Experts come in rising id and only a strictly larger value overtakes, so ties go
// to the lower id.
void choose_largest(const float* selection, uint32_t n, uint32_t n_used, uint32_t* ids) noexcept {
  uint32_t n_chosen = 0;
  for (uint32_t e = 0; e < n; ++e) {
    if (n_chosen == n_used && !(selection[e] > selection[ids[n_used - 1]])) continue;
    uint32_t at = n_chosen < n_used ? n_chosen++ : n_used - 1;
    for (; at > 0 && selection[e] > selection[ids[at - 1]]; --at) ids[at] = ids[at - 1];
    ids[at] = e;
  }
}

void scale_weights(const RouterSpec& spec, float* weights) noexcept {
  if (spec.normalize) {
    FloatLanes lanes;
    for (uint32_t i = 0; i < spec.n_used; ++i) lanes.join(i, weights[i], 1.0F);
    float sum = lanes.fold();
    sum = sum > 0x1p-14F ? sum : 0x1p-14F;
    for (uint32_t i = 0; i < spec.n_used; ++i) weights[i] /= sum;
  }
  if (spec.weight_scale != 0.0F && spec.weight_scale != 1.0F) {
    for (uint32_t i = 0; i < spec.n_used; ++i) weights[i] *= spec.weight_scale;
  }
}

bool route_body(const RouterSpec& spec, const float* logits, const float* selection_bias, float* scratch, uint32_t* ids,
                float* weights) noexcept {
  float* scores = scratch;
  float* selection = scratch + spec.n_experts;
  make_scores(spec.score, logits, spec.n_experts, scores);
  bool is_number = true;
  for (uint32_t e = 0; e < spec.n_experts; ++e) {
    selection[e] = selection_bias != nullptr ? scores[e] + selection_bias[e] : scores[e];
    is_number = is_number && logits[e] == logits[e] && selection[e] == selection[e];
  }
  if (is_number) {
    if (spec.n_groups > 1) keep_best_groups(spec, selection, scratch + 2 * static_cast<uint64_t>(spec.n_experts));
    choose_largest(selection, spec.n_experts, spec.n_used, ids);
    for (uint32_t i = 0; i < spec.n_used; ++i) weights[i] = scores[ids[i]];
    if (spec.score == RouterScore::kSoftmaxOfChosen) softmax(weights, spec.n_used);
    scale_weights(spec, weights);
    for (uint32_t i = 0; i < spec.n_used; ++i) is_number = is_number && __builtin_fabsf(weights[i]) <= 0x1.fffffep+127F;
  }
  if (!is_number) {
    for (uint32_t i = 0; i < spec.n_used; ++i) {
      ids[i] = i;
      weights[i] = 0;
    }
  }
  return is_number;
}

}  // namespace
}  // namespace outrider::kernels
