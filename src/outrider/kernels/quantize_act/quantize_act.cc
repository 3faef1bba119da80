// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/quantize_act/quantize_act.h"

#include "outrider/kernels/quantize_act/quantize_act_variants.h"

namespace outrider::kernels {
namespace {

constexpr QuantizeActVariant kVariants[] = {
    {Isa::kScalar, quantize_act_ref},
#if defined(__x86_64__)
    {Isa::kAvx2, quantize_act_avx2},
    {Isa::kAvx512, quantize_act_avx512},
#endif
};

}  // namespace

std::span<const QuantizeActVariant> quantize_act_variants() noexcept { return kVariants; }

QuantizeActFn choose_quantize_act(Isa isa) noexcept {
  QuantizeActFn best = nullptr;
  for (const QuantizeActVariant& variant : kVariants) {
    if (variant.needs <= isa) best = variant.fn;
  }
  return best;
}

}  // namespace outrider::kernels
