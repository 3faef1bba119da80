// SPDX-License-Identifier: Apache-2.0
// Expert layers of the types with tables.
#include "outrider/cuda/product/experts.cuh"

namespace outrider::cuda {

OUTRIDER_EXPERTS(Iq4Nl, iq4_nl)
OUTRIDER_EXPERTS(Iq4Xs, iq4_xs)
OUTRIDER_EXPERTS(Mxfp4, mxfp4)

}  // namespace outrider::cuda
