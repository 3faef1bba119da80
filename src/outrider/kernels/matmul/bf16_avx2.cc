// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/matmul/float_avx2-inl.h"

namespace outrider::kernels {

void matmul_bf16_avx2(const MatmulArgs& args) noexcept { run_float<StoredBf16>(args); }

}  // namespace outrider::kernels
