// SPDX-License-Identifier: Apache-2.0
// The variants of the router, all exact. Dispatch and tests loop over route_variants().
#pragma once

#include <span>

#include "outrider/kernels/router/router.h"

namespace outrider::kernels {

bool route_ref(const RouterSpec& spec, const float* logits, const float* selection_bias, float* scratch, uint32_t* ids,
               float* weights) noexcept;
bool route_avx2(const RouterSpec& spec, const float* logits, const float* selection_bias, float* scratch, uint32_t* ids,
                float* weights) noexcept;

struct RouteVariant {
  Isa needs;
  RouteFn fn;
};
// Rising needs; the first needs nothing.
std::span<const RouteVariant> route_variants() noexcept;

}  // namespace outrider::kernels
