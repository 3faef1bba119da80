// SPDX-License-Identifier: Apache-2.0
// f32 to block formats, for `outrider quantize`, `synth` and tests.
#pragma once

#include <cstddef>
#include <cstdint>

#include "outrider/format/tensor_type.h"

namespace outrider::numerics {

// True for the types quantize() can make: F32, F16, BF16, Q4_0, Q8_0, Q4_K, Q6_K, MXFP4 at least.
bool can_quantize(format::TensorType type) noexcept;

// Quantises n_elems elements (a whole number of blocks) of `x` into `blocks`. Deterministic. x must be finite.
void quantize(format::TensorType type, const float* x, std::byte* blocks, uint64_t n_elems) noexcept;

}  // namespace outrider::numerics
