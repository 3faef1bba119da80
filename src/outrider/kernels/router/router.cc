// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/router/router.h"

#include "outrider/kernels/router/router_variants.h"

namespace outrider::kernels {
namespace {

constexpr RouteVariant kVariants[] = {
    {Isa::kScalar, route_ref},
#if defined(__x86_64__)
    {Isa::kAvx2, route_avx2},
#endif
};

}  // namespace

std::span<const RouteVariant> route_variants() noexcept { return kVariants; }

RouteFn choose_route(Isa isa) noexcept {
  RouteFn best = nullptr;
  for (const RouteVariant& variant : kVariants) {
    if (variant.needs <= isa) best = variant.fn;
  }
  return best;
}

}  // namespace outrider::kernels
