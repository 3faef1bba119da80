// SPDX-License-Identifier: Apache-2.0
#include "outrider/cuda/product/packed_rows.cuh"

namespace outrider::cuda {

OUTRIDER_PACKED(Iq4Xs, iq4_xs)

}  // namespace outrider::cuda
