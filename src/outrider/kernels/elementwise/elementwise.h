// SPDX-License-Identifier: Apache-2.0
// Elementwise operations of a layer, f32, same bits on every ISA. exp, sigmoid, silu and softplus are our own, of fma
// only (docs/numerics.md "Functions" states method and error bound).
#pragma once

#include <cstdint>

#include "outrider/base/isa.h"

namespace outrider::kernels {

struct ElementwiseFns {
  // out_i = silu(gate_i) * up_i; out may be gate or up.
  void (*swiglu)(const float* gate, const float* up, float* out, uint64_t n) noexcept;
  // out_i = silu(x_i).
  void (*silu)(const float* x, float* out, uint64_t n) noexcept;
  // y_i = y_i + x_i.
  void (*add)(float* y, const float* x, uint64_t n) noexcept;
  // y_i = fma(weight, x_i, y_i): one expert joins the sum.
  void (*add_scaled)(float* y, const float* x, float weight, uint64_t n) noexcept;
  // gpt-oss: g = min(gate, limit), u = clamp(up, -limit, limit), out = g * sigmoid(alpha * g) * (u + 1).
  void (*swiglu_clamped)(const float* gate, const float* up, float alpha, float limit, float* out, uint64_t n) noexcept;
  // True when all n are finite.
  bool (*all_finite)(const float* x, uint64_t n) noexcept;
};
const ElementwiseFns& choose_elementwise(Isa isa) noexcept;

// Scalar forms of the same functions, for the router, the sampler and tests.
float exp_f32(float x) noexcept;
float sigmoid_f32(float x) noexcept;
float softplus_f32(float x) noexcept;  // ln(1 + e^x)

// Index of the largest value, the lowest index on ties; NaN never wins; n when nothing is a number.
uint64_t argmax(const float* x, uint64_t n) noexcept;

}  // namespace outrider::kernels
