// SPDX-License-Identifier: Apache-2.0
// Expert layers of the K-quants.
#include "outrider/cuda/product/experts.cuh"

namespace outrider::cuda {

OUTRIDER_EXPERTS(Q2K, q2_k)
OUTRIDER_EXPERTS(Q3K, q3_k)
OUTRIDER_EXPERTS(Q4K, q4_k)
OUTRIDER_EXPERTS(Q5K, q5_k)
OUTRIDER_EXPERTS(Q6K, q6_k)

}  // namespace outrider::cuda
