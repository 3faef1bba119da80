// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/matmul/decoded_avx512-inl.h"

namespace outrider::kernels {

void matmul_iq2_xxs_avx512(const MatmulArgs& args) noexcept { run_decoded<DecodedIq2Xxs>(args); }
void matmul_iq2_xs_avx512(const MatmulArgs& args) noexcept { run_decoded<DecodedIq2Xs>(args); }
void matmul_iq2_s_avx512(const MatmulArgs& args) noexcept { run_decoded<DecodedIq2S>(args); }

}  // namespace outrider::kernels
