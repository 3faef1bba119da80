// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/matmul/row_formats_256_avx2-inl.h"
#include "outrider/kernels/matmul/tile_avx2-inl.h"

namespace outrider::kernels {

void matmul_q4_k_avx2(const MatmulArgs& args) noexcept { run_matmul<GroupQ4K, RowQ4K>(args); }

}  // namespace outrider::kernels
