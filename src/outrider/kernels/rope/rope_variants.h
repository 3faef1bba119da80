// SPDX-License-Identifier: Apache-2.0
// The variants of rope, all exact. Dispatch and tests loop over rope_variants().
#pragma once

#include <span>

#include "outrider/kernels/rope/rope.h"

namespace outrider::kernels {

void rope_ref(float* x, const float* cos_sin, uint32_t n_rot, RopePairing pairing) noexcept;
void rope_avx2(float* x, const float* cos_sin, uint32_t n_rot, RopePairing pairing) noexcept;
void rope_avx512(float* x, const float* cos_sin, uint32_t n_rot, RopePairing pairing) noexcept;

struct RopeVariant {
  Isa needs;
  RopeFn fn;
};
// Rising needs; the first needs nothing.
std::span<const RopeVariant> rope_variants() noexcept;

}  // namespace outrider::kernels
