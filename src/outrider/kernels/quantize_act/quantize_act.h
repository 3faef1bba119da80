// SPDX-License-Identifier: Apache-2.0
// One f32 row to the activation format of numerics/activation.h. Same bits on every ISA.
#pragma once

#include <cstdint>

#include "outrider/base/isa.h"

namespace outrider::kernels {

// x (k), k a multiple of 32 -> q (k), d (k / 32), sum32 (k / 32), sum16 (k / 16).
using QuantizeActFn = void (*)(const float* x, uint32_t k, int8_t* q, float* d, int32_t* sum32, int16_t* sum16) noexcept;
QuantizeActFn choose_quantize_act(Isa isa) noexcept;

}  // namespace outrider::kernels
