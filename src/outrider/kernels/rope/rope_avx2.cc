// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/vec/vec_avx2-inl.h"
// The vector type comes first.
#include "outrider/kernels/rope/rope_variants.h"
#include "outrider/kernels/rope/rope_vec-inl.h"

namespace outrider::kernels {

void rope_avx2(float* x, const float* cos_sin, uint32_t n_rot, RopePairing pairing) noexcept {
  rope_vec<VecAvx2>(x, cos_sin, n_rot, pairing);
}

}  // namespace outrider::kernels
