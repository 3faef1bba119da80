// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/vec/vec_avx512-inl.h"
// The vector type comes first.
#include "outrider/kernels/elementwise/elementwise_variants.h"
#include "outrider/kernels/elementwise/elementwise_vec-inl.h"

namespace outrider::kernels {

const ElementwiseFns kElementwiseAvx512 = kElementwiseVec<VecAvx512>;

}  // namespace outrider::kernels
