// SPDX-License-Identifier: Apache-2.0
#include "outrider/cuda/product/packed_rows.cuh"

namespace outrider::cuda {

OUTRIDER_PACKED(Q5K, q5_k)

}  // namespace outrider::cuda
