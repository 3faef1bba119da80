// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/vec/vec_avx512-inl.h"
// The vector type comes first.
#include "outrider/kernels/attention/attention_variants.h"
#include "outrider/kernels/attention/attention_vec-inl.h"

namespace outrider::kernels {

void attention_avx512(const AttentionArgs& args) noexcept { attention_vec<VecAvx512>(args); }

}  // namespace outrider::kernels
