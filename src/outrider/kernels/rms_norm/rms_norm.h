// SPDX-License-Identifier: Apache-2.0
// y_j = w_j * (x_j * r), r = 1 / sqrt(mean(x^2) + eps), all f32 (Zhang and Sennrich 2019).
// Sum of squares by the float law (lane i mod 32, fma, rising i; lanes fold 16, 8, 4, 2, 1); then IEEE division by n,
// add eps, IEEE square root, IEEE 1/s; then two roundings per element, x * r first.
#pragma once

#include <cstdint>

#include "outrider/base/isa.h"

namespace outrider::kernels {

// y may be x. `weight` (n) may be nullptr (all ones: the second multiply is skipped).
using RmsNormFn = void (*)(const float* x, const float* weight, float eps, uint32_t n, float* y) noexcept;
RmsNormFn choose_rms_norm(Isa isa) noexcept;

}  // namespace outrider::kernels
