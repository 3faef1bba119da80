// SPDX-License-Identifier: Apache-2.0
// The variants of the elementwise operations, all exact. Dispatch and tests loop over elementwise_variants().
#pragma once

#include <span>

#include "outrider/kernels/elementwise/elementwise.h"

namespace outrider::kernels {

extern const ElementwiseFns kElementwiseRef;
extern const ElementwiseFns kElementwiseAvx2;
extern const ElementwiseFns kElementwiseAvx512;

struct ElementwiseVariant {
  Isa needs;
  const ElementwiseFns* fns;
};
// Rising needs; the first needs nothing.
std::span<const ElementwiseVariant> elementwise_variants() noexcept;

}  // namespace outrider::kernels
