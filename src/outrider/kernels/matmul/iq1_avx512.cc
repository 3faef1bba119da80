// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/matmul/decoded_avx512-inl.h"

namespace outrider::kernels {

void matmul_iq1_s_avx512(const MatmulArgs& args) noexcept { run_decoded<DecodedIq1S>(args); }
void matmul_iq1_m_avx512(const MatmulArgs& args) noexcept { run_decoded<DecodedIq1M>(args); }

}  // namespace outrider::kernels
