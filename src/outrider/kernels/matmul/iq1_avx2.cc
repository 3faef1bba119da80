// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/matmul/decoded_avx2-inl.h"

namespace outrider::kernels {

void matmul_iq1_s_avx2(const MatmulArgs& args) noexcept { run_decoded<DecodedIq1S>(args); }
void matmul_iq1_m_avx2(const MatmulArgs& args) noexcept { run_decoded<DecodedIq1M>(args); }

}  // namespace outrider::kernels
