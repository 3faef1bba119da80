// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/matmul/float_avx512-inl.h"

namespace outrider::kernels {

void matmul_f32_avx512(const MatmulArgs& args) noexcept { run_float<StoredF32>(args); }

}  // namespace outrider::kernels
