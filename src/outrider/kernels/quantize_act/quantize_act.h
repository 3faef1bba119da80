// SPDX-License-Identifier: Apache-2.0
// One f32 row to the activation format of numerics/activation.h. Same bits on every ISA.
//
// The corners of that format, stated in full: amax is the largest |x| of the block. When the block holds a NaN or an
// infinity, q and both sums are 0 and d is the quiet NaN 0x7FC00000. When amax < 2^-121, where 127 / amax would leave
// f32, q, d and both sums are 0. Else q = RNE(x * (127 / amax)), never outside -127..127, and d = amax / 127, which may
// be subnormal. The thread must run with round-to-nearest and without flush-to-zero.
#pragma once

#include <cstdint>

#include "outrider/base/isa.h"

namespace outrider::kernels {

// x (k), k a multiple of 32 -> q (k), d (k / 32), sum32 (k / 32), sum16 (k / 16).
using QuantizeActFn = void (*)(const float* x, uint32_t k, int8_t* q, float* d, int32_t* sum32,
                               int16_t* sum16) noexcept;
QuantizeActFn choose_quantize_act(Isa isa) noexcept;

}  // namespace outrider::kernels
