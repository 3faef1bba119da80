// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/matmul/row_formats_32_avx2-inl.h"
#include "outrider/kernels/matmul/tile_avx2-inl.h"

namespace outrider::kernels {

void matmul_q4_0_avx2(const MatmulArgs& args) noexcept { run_matmul<GroupQ4_0, RowQ4_0>(args); }

}  // namespace outrider::kernels
