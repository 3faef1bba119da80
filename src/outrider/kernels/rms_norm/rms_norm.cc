// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/rms_norm/rms_norm.h"

#include "outrider/kernels/rms_norm/rms_norm_variants.h"

namespace outrider::kernels {
namespace {

constexpr RmsNormVariant kVariants[] = {
    {Isa::kScalar, rms_norm_ref},
#if defined(__x86_64__)
    {Isa::kAvx2, rms_norm_avx2},
    {Isa::kAvx512, rms_norm_avx512},
#endif
};

}  // namespace

std::span<const RmsNormVariant> rms_norm_variants() noexcept { return kVariants; }

RmsNormFn choose_rms_norm(Isa isa) noexcept {
  RmsNormFn best = nullptr;
  for (const RmsNormVariant& variant : kVariants) {
    if (variant.needs <= isa) best = variant.fn;
  }
  return best;
}

}  // namespace outrider::kernels
