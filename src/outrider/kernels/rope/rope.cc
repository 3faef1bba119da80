// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/rope/rope.h"

#include "outrider/kernels/rope/rope_variants.h"

namespace outrider::kernels {
namespace {

constexpr RopeVariant kVariants[] = {
    {Isa::kScalar, rope_ref},
#if defined(__x86_64__)
    {Isa::kAvx2, rope_avx2},
    {Isa::kAvx512, rope_avx512},
#endif
};

}  // namespace

std::span<const RopeVariant> rope_variants() noexcept { return kVariants; }

RopeFn choose_rope(Isa isa) noexcept {
  RopeFn best = nullptr;
  for (const RopeVariant& variant : kVariants) {
    if (variant.needs <= isa) best = variant.fn;
  }
  return best;
}

}  // namespace outrider::kernels
