// SPDX-License-Identifier: Apache-2.0
// Llama and Mixtral (spec 7.1): interleaved rotary over the whole head, optional rope_freqs divisors and biases. With
// expert_count > 0 every layer is MoE, its expert width is feed_forward_length, and an expert may lack its gate.
#include "outrider/base/error.h"
#include "outrider/model/arch.h"

namespace outrider::model {

ArchRules read_llama(const KeyReader& keys, ModelSpec& spec) {
  spec.rope.pairing = kernels::RopePairing::kInterleaved;
  if (spec.rope.n_rot != spec.dk) {
    fail(ErrorKind::kBadFile, "{}: key {} is {}, wanted the head width {}", keys.file(),
         keys.key("rope.dimension_count"), spec.rope.n_rot, spec.dk);
  }
  if (spec.is_moe()) {
    spec.expert_ff = spec.dense_ff;
    spec.router.normalize = true;
  }
  return {.gate_optional = true, .rope_freqs = true, .output_bias = true, .may_be_dense = true};
}

}  // namespace outrider::model
