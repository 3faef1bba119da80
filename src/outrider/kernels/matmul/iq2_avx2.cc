// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/matmul/decoded_avx2-inl.h"

namespace outrider::kernels {

void matmul_iq2_xxs_avx2(const MatmulArgs& args) noexcept { run_decoded<DecodedIq2Xxs>(args); }
void matmul_iq2_xs_avx2(const MatmulArgs& args) noexcept { run_decoded<DecodedIq2Xs>(args); }
void matmul_iq2_s_avx2(const MatmulArgs& args) noexcept { run_decoded<DecodedIq2S>(args); }

}  // namespace outrider::kernels
