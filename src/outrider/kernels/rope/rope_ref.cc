// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/rope/rope_variants.h"

namespace outrider::kernels {

void rope_ref(float* x, const float* cos_sin, uint32_t n_rot, RopePairing pairing) noexcept {
  const uint32_t n_pairs = n_rot / 2;
  const bool interleaved = pairing == RopePairing::kInterleaved;
  for (uint32_t i = 0; i < n_pairs; ++i) {
    float* first = x + (interleaved ? 2 * i : i);
    float* second = interleaved ? first + 1 : first + n_pairs;
    const float c = cos_sin[2 * i];
    const float s = cos_sin[2 * i + 1];
    const float a = *first;
    const float b = *second;
    *first = __builtin_fmaf(a, c, -(b * s));
    *second = __builtin_fmaf(a, s, b * c);
  }
}

}  // namespace outrider::kernels
