// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/vec/vec_avx512-inl.h"
// The vector type comes first.
#include "outrider/kernels/rms_norm/rms_norm_variants.h"
#include "outrider/kernels/rms_norm/rms_norm_vec-inl.h"

namespace outrider::kernels {

void rms_norm_avx512(const float* x, const float* weight, float eps, uint32_t n, float* y) noexcept {
  rms_norm_vec<VecAvx512>(x, weight, eps, n, y);
}

}  // namespace outrider::kernels
