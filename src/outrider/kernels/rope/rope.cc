// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/rope/rope.h"

#include "outrider/kernels/rope/rope_variants.h"

namespace outrider::kernels {
namespace {

constexpr RopeVariant kVariants[] = {
    {Isa::kScalar, rope_ref},
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
