// SPDX-License-Identifier: Apache-2.0
// Qwen3, dense (spec 7.4 without the experts): per-head norm of q and k before rotary, head width independent of
// d_model.
#include "outrider/base/error.h"
#include "outrider/model/arch.h"

namespace outrider::model {

ArchRules read_qwen3(const KeyReader& keys, ModelSpec& spec) {
  if (spec.is_moe()) {
    fail(ErrorKind::kBadFile, "{}: key {} is {}, wanted none: qwen3 is dense, the one with experts is qwen3moe",
         keys.file(), keys.key("expert_count"), spec.router.n_experts);
  }
  spec.rope.pairing = kernels::RopePairing::kHalves;
  spec.qk_norm = QkNorm::kPerHead;
  return {.qk_norm_required = true, .may_be_dense = true};
}

}  // namespace outrider::model
