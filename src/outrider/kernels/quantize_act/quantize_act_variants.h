// SPDX-License-Identifier: Apache-2.0
// The variants of quantize_act. Dispatch, tests and benches loop over quantize_act_variants().
#pragma once

#include <cstdint>
#include <span>

#include "outrider/kernels/quantize_act/quantize_act.h"

namespace outrider::kernels {

void quantize_act_ref(const float* x, uint32_t k, int8_t* q, float* d, int32_t* sum32, int16_t* sum16) noexcept;
void quantize_act_avx2(const float* x, uint32_t k, int8_t* q, float* d, int32_t* sum32, int16_t* sum16) noexcept;
void quantize_act_avx512(const float* x, uint32_t k, int8_t* q, float* d, int32_t* sum32, int16_t* sum16) noexcept;

struct QuantizeActVariant {
  Isa needs;
  QuantizeActFn fn;
};
// Rising needs; the first needs nothing.
std::span<const QuantizeActVariant> quantize_act_variants() noexcept;

}  // namespace outrider::kernels
