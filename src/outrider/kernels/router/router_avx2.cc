// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/router/router-inl.h"
#include "outrider/kernels/router/router_variants.h"

namespace outrider::kernels {

bool route_avx2(const RouterSpec& spec, const float* logits, const float* selection_bias, float* scratch, uint32_t* ids,
                float* weights) noexcept {
  return route_body(spec, logits, selection_bias, scratch, ids, weights);
}

}  // namespace outrider::kernels
