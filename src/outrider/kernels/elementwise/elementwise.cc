// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/elementwise/elementwise.h"

#include "outrider/kernels/elementwise/elementwise_variants.h"
#include "outrider/kernels/functions/functions_ref-inl.h"

namespace outrider::kernels {
namespace {

constexpr ElementwiseVariant kVariants[] = {
    {Isa::kScalar, &kElementwiseRef},
#if defined(__x86_64__)
    {Isa::kAvx2, &kElementwiseAvx2},
    {Isa::kAvx512, &kElementwiseAvx512},
#endif
};

}  // namespace

std::span<const ElementwiseVariant> elementwise_variants() noexcept { return kVariants; }

const ElementwiseFns& choose_elementwise(Isa isa) noexcept {
  const ElementwiseFns* best = nullptr;
  for (const ElementwiseVariant& variant : kVariants) {
    if (variant.needs <= isa) best = variant.fns;
  }
  return *best;
}

float exp_f32(float x) noexcept { return exp_ref(x); }
float sigmoid_f32(float x) noexcept { return sigmoid_ref(x); }
float softplus_f32(float x) noexcept { return softplus_ref(x); }

uint64_t argmax(const float* x, uint64_t n) noexcept {
  uint64_t best = n;
  for (uint64_t i = 0; i < n; ++i) {
    if (best == n ? x[i] == x[i] : x[i] > x[best]) best = i;
  }
  return best;
}

}  // namespace outrider::kernels
