// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/matmul/float_avx2-inl.h"

namespace outrider::kernels {

void matmul_f16_avx2(const MatmulArgs& args) noexcept { run_float<StoredF16>(args); }

}  // namespace outrider::kernels
