// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/functions/float_law_ref-inl.h"
#include "outrider/kernels/rms_norm/rms_norm_variants.h"

namespace outrider::kernels {

void rms_norm_ref(const float* x, const float* weight, float eps, uint32_t n, float* y) noexcept {
  FloatLanes squares;
  for (uint32_t i = 0; i < n; ++i) squares.join(i, x[i], x[i]);
  const float mean = squares.fold() / static_cast<float>(n);
  const float r = 1.0F / __builtin_sqrtf(mean + eps);
  for (uint32_t i = 0; i < n; ++i) {
    const float scaled = x[i] * r;
    y[i] = weight != nullptr ? weight[i] * scaled : scaled;
  }
}

}  // namespace outrider::kernels
