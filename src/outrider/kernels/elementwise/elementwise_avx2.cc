// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/vec/vec_avx2-inl.h"
// The vector type comes first.
#include "outrider/kernels/elementwise/elementwise_variants.h"
#include "outrider/kernels/elementwise/elementwise_vec-inl.h"

namespace outrider::kernels {

const ElementwiseFns kElementwiseAvx2 = kElementwiseVec<VecAvx2>;

}  // namespace outrider::kernels
