// SPDX-License-Identifier: Apache-2.0
// Expert layers of the types with tables.
#include "outrider/cuda/product/experts.cuh"

namespace outrider::cuda {

#define OUTRIDER_EXPERTS(unit, name)                                               \
  void give_##name(const ProductParams& p, uint32_t n_jobs, cudaStream_t stream) { \
    hand_over<Unit##unit, true>(p, n_jobs, stream);                                \
  }                                                                                \
  void take_##name(const ProductParams& p, uint32_t n_jobs, cudaStream_t stream) { \
    hand_over<Unit##unit, false>(p, n_jobs, stream);                               \
  }
OUTRIDER_EXPERTS(Iq4Nl, iq4_nl)
OUTRIDER_EXPERTS(Iq4Xs, iq4_xs)
OUTRIDER_EXPERTS(Mxfp4, mxfp4)
#undef OUTRIDER_EXPERTS

}  // namespace outrider::cuda
