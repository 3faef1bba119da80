// SPDX-License-Identifier: Apache-2.0
// Expert layers of the K-quants.
#include "outrider/cuda/product/experts.cuh"

namespace outrider::cuda {

#define OUTRIDER_EXPERTS(unit, name)                                               \
  void give_##name(const ProductParams& p, uint32_t n_jobs, cudaStream_t stream) { \
    hand_over<Unit##unit, true>(p, n_jobs, stream);                                \
  }                                                                                \
  void take_##name(const ProductParams& p, uint32_t n_jobs, cudaStream_t stream) { \
    hand_over<Unit##unit, false>(p, n_jobs, stream);                               \
  }
OUTRIDER_EXPERTS(Q2K, q2_k)
OUTRIDER_EXPERTS(Q3K, q3_k)
OUTRIDER_EXPERTS(Q4K, q4_k)
OUTRIDER_EXPERTS(Q5K, q5_k)
OUTRIDER_EXPERTS(Q6K, q6_k)
#undef OUTRIDER_EXPERTS

}  // namespace outrider::cuda
