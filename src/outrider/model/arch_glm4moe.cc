// SPDX-License-Identifier: Apache-2.0
// GLM-4.5, 4.5-Air, 4.6 (spec 7.5): leading dense layers, sigmoid router with a selection bias, ungated shared experts,
// partial rotary, optional per-head QK norm, one NextN block after the trunk. `post_attention_norm` is the pre-FFN
// norm.
#include "outrider/model/arch.h"

namespace outrider::model {

ArchRules read_glm4moe(const KeyReader& keys, ModelSpec& spec) {
  spec.rope.pairing = kernels::RopePairing::kHalves;
  spec.qk_norm = QkNorm::kPerHead;
  const uint32_t n_shared = keys.require_uint("expert_shared_count", 0, 64);
  const uint32_t expert_ff = keys.find_first_uint("expert_feed_forward_length", 0, kMaxWidth).value_or(0);
  spec.expert_ff = expert_ff != 0 ? expert_ff : expert_ff_from_dense(keys, spec);
  spec.shared_ff = spec.expert_ff * n_shared;
  spec.n_leading_dense = keys.find_uint("leading_dense_block_count", 0, spec.n_layers).value_or(0);
  // Codes of the file: 0 not set, 1 softmax, 2 sigmoid, 4 square root of softplus. Not set means sigmoid here.
  switch (keys.find_uint("expert_gating_func", 0, 4).value_or(0)) {
    case 1:
      spec.router.score = kernels::RouterScore::kSoftmax;
      break;
    case 3:
      spec.router.score = kernels::RouterScore::kSoftmaxOfChosen;
      break;
    case 4:
      spec.router.score = kernels::RouterScore::kSqrtSoftplus;
      break;
    default:
      spec.router.score = kernels::RouterScore::kSigmoid;
      break;
  }
  spec.router.normalize = keys.find_bool("expert_weights_norm").value_or(false);
  spec.router.weight_scale = static_cast<float>(keys.find_real("expert_weights_scale", 0, 1e6).value_or(1));
  return {.ffn_norm = "post_attention_norm", .selection_bias = true};
}

}  // namespace outrider::model
