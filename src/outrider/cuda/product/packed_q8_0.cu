// SPDX-License-Identifier: Apache-2.0
#include "outrider/cuda/product/packed_rows.cuh"

namespace outrider::cuda {

OUTRIDER_PACKED(Q8_0, q8_0)

}  // namespace outrider::cuda
