// SPDX-License-Identifier: Apache-2.0
#include "outrider/cuda/product/packed_rows.cuh"

namespace outrider::cuda {

OUTRIDER_PACKED(Q4_0, q4_0)

}  // namespace outrider::cuda
