// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/matmul/decoded_avx2-inl.h"

namespace outrider::kernels {

void matmul_iq3_xxs_avx2(const MatmulArgs& args) noexcept { run_decoded<DecodedIq3Xxs>(args); }
void matmul_iq3_s_avx2(const MatmulArgs& args) noexcept { run_decoded<DecodedIq3S>(args); }

}  // namespace outrider::kernels
