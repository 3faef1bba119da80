// SPDX-License-Identifier: Apache-2.0
// Qwen3-MoE (spec 7.4): per-head norm of q and k before rotary, softmax router with renormalised weights, no shared
// expert, every layer MoE; feed_forward_length is an unused dense width.
#include "outrider/model/arch.h"

namespace outrider::model {

ArchRules read_qwen3moe(const KeyReader& keys, ModelSpec& spec) {
  spec.rope.pairing = kernels::RopePairing::kHalves;
  spec.qk_norm = QkNorm::kPerHead;
  const uint32_t expert_ff = keys.find_first_uint("expert_feed_forward_length", 0, kMaxWidth).value_or(0);
  spec.expert_ff = expert_ff != 0 ? expert_ff : expert_ff_from_dense(keys, spec);
  spec.router.normalize = true;
  return {.qk_norm_required = true};
}

}  // namespace outrider::model
