// SPDX-License-Identifier: Apache-2.0
// Expert layers of the types of 32 elements a block.
#include "outrider/cuda/product/experts.cuh"

namespace outrider::cuda {

OUTRIDER_EXPERTS(Q4_0, q4_0)
OUTRIDER_EXPERTS(Q4_1, q4_1)
OUTRIDER_EXPERTS(Q5_0, q5_0)
OUTRIDER_EXPERTS(Q5_1, q5_1)
OUTRIDER_EXPERTS(Q8_0, q8_0)

}  // namespace outrider::cuda
