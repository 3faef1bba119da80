// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/matmul/row_formats_32_avx2-inl.h"
#include "outrider/kernels/matmul/tile_avx2-inl.h"

namespace outrider::kernels {

void matmul_mxfp4_avx2(const MatmulArgs& args) noexcept { run_matmul<GroupMxfp4, RowMxfp4>(args); }

}  // namespace outrider::kernels
