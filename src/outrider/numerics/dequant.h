// SPDX-License-Identifier: Apache-2.0
// Block formats to f32, exactly as docs/numerics.md states per type: bit-equal to ggml's reference dequantisers
// (tests/golden/dequant.json) except where that page says otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

#include "outrider/format/tensor_type.h"

namespace outrider::numerics {

// Dequantises n_elems elements (a whole number of blocks) at `blocks`, which may be unaligned, to `out`.
// Types with is_weight only.
void dequantize(format::TensorType type, const std::byte* blocks, float* out, uint64_t n_elems) noexcept;

// The same for one type, looked up once.
using DequantizeFn = void (*)(const std::byte* blocks, float* out, uint64_t n_elems) noexcept;
DequantizeFn dequantize_fn(format::TensorType type) noexcept;

}  // namespace outrider::numerics
