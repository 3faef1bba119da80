// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/matmul/formats_256_avx512-inl.h"
#include "outrider/kernels/matmul/tile_avx512-inl.h"

namespace outrider::kernels {

void matmul_q3_k_avx512(const MatmulArgs& args) noexcept { run_matmul<WideQ3K>(args); }

}  // namespace outrider::kernels
