// SPDX-License-Identifier: Apache-2.0
// Qwen1.5-MoE and Qwen2-MoE (spec 7.3): biases on q, k and v, router weights not renormalised, one shared expert gated
// by a sigmoid. Early files lack the expert widths.
#include "outrider/model/arch.h"

namespace outrider::model {

ArchRules read_qwen2moe(const KeyReader& keys, ModelSpec& spec) {
  spec.rope.pairing = kernels::RopePairing::kHalves;
  const uint32_t expert_ff = keys.find_first_uint("expert_feed_forward_length", 0, kMaxWidth).value_or(0);
  spec.expert_ff = expert_ff != 0 ? expert_ff : expert_ff_from_dense(keys, spec);
  const uint32_t shared_ff = keys.find_uint("expert_shared_feed_forward_length", 0, kMaxWidth).value_or(0);
  spec.shared_ff = shared_ff != 0 ? shared_ff : spec.dense_ff;
  return {.shared_gate = true};
}

}  // namespace outrider::model
