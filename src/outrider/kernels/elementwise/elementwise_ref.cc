// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/elementwise/elementwise_variants.h"
#include "outrider/kernels/functions/functions_ref-inl.h"

namespace outrider::kernels {
namespace {

void swiglu(const float* gate, const float* up, float* out, uint64_t n) noexcept {
  for (uint64_t i = 0; i < n; ++i) out[i] = silu_ref(gate[i]) * up[i];
}

void silu(const float* x, float* out, uint64_t n) noexcept {
  for (uint64_t i = 0; i < n; ++i) out[i] = silu_ref(x[i]);
}

void add(float* y, const float* x, uint64_t n) noexcept {
  for (uint64_t i = 0; i < n; ++i) y[i] = y[i] + x[i];
}

void add_scaled(float* y, const float* x, float weight, uint64_t n) noexcept {
  for (uint64_t i = 0; i < n; ++i) y[i] = __builtin_fmaf(weight, x[i], y[i]);
}

void swiglu_clamped(const float* gate, const float* up, float alpha, float limit, float* out, uint64_t n) noexcept {
  for (uint64_t i = 0; i < n; ++i) {
    const float g = limit < gate[i] ? limit : gate[i];  // in this form a NaN stays
    float u = -limit > up[i] ? -limit : up[i];
    u = limit < u ? limit : u;
    out[i] = (g * sigmoid_ref(alpha * g)) * (u + 1.0F);
  }
}

bool all_finite(const float* x, uint64_t n) noexcept {
  for (uint64_t i = 0; i < n; ++i) {
    if ((__builtin_bit_cast(uint32_t, x[i]) & 0x7F800000U) == 0x7F800000U) return false;
  }
  return true;
}

}  // namespace

const ElementwiseFns kElementwiseRef = {swiglu, silu, add, add_scaled, swiglu_clamped, all_finite};

}  // namespace outrider::kernels
