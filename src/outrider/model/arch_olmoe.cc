// SPDX-License-Identifier: Apache-2.0
// OLMoE (spec 7.2): q and k are normed over all heads at once, before the split; router weights are used as they are;
// the expert width is feed_forward_length.
#include "outrider/model/arch.h"

namespace outrider::model {

ArchRules read_olmoe(const KeyReader&, ModelSpec& spec) {
  spec.rope.pairing = kernels::RopePairing::kHalves;
  spec.qk_norm = QkNorm::kFullWidth;
  spec.expert_ff = spec.dense_ff;
  return {.qk_norm_required = true};
}

}  // namespace outrider::model
