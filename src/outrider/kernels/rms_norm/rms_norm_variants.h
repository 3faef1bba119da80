// SPDX-License-Identifier: Apache-2.0
// The variants of rms_norm, all exact. Dispatch and tests loop over rms_norm_variants().
#pragma once

#include <span>

#include "outrider/kernels/rms_norm/rms_norm.h"

namespace outrider::kernels {

void rms_norm_ref(const float* x, const float* weight, float eps, uint32_t n, float* y) noexcept;
void rms_norm_avx2(const float* x, const float* weight, float eps, uint32_t n, float* y) noexcept;
void rms_norm_avx512(const float* x, const float* weight, float eps, uint32_t n, float* y) noexcept;

struct RmsNormVariant {
  Isa needs;
  RmsNormFn fn;
};
// Rising needs; the first needs nothing.
std::span<const RmsNormVariant> rms_norm_variants() noexcept;

}  // namespace outrider::kernels
