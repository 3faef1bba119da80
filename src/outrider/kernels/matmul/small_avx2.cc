// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/matmul/decoded_avx2-inl.h"
#include "outrider/kernels/matmul/small_formats_avx2-inl.h"

namespace outrider::kernels {

void matmul_tq1_0_avx2(const MatmulArgs& args) noexcept { run_decoded<DecodedTq1>(args); }
void matmul_tq2_0_avx2(const MatmulArgs& args) noexcept { run_decoded<DecodedTq2>(args); }
void matmul_q1_0_avx2(const MatmulArgs& args) noexcept { run_decoded<DecodedQ1>(args); }
void matmul_q2_0_avx2(const MatmulArgs& args) noexcept { run_decoded<DecodedQ2>(args); }
void matmul_nvfp4_avx2(const MatmulArgs& args) noexcept { run_decoded<DecodedNvfp4>(args); }

}  // namespace outrider::kernels
