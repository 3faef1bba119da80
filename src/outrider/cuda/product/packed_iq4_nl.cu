// SPDX-License-Identifier: Apache-2.0
#include "outrider/cuda/product/packed_rows.cuh"

namespace outrider::cuda {

OUTRIDER_PACKED(Iq4Nl, iq4_nl)

}  // namespace outrider::cuda
