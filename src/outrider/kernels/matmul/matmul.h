// SPDX-License-Identifier: Apache-2.0
// Weights (n_rows, k) times activations (tokens, k): out[i][r] = row_r . x_{token i}. The law of docs/numerics.md
// "Products": every variant gives the same bits as the scalar one (matmul_ref), whatever the rows, tokens or split.
//
// Quantised weights use the int8 activations (q, d, sum32, sum16): block b of a row contributes
//   acc[b mod 8] = fma(float(isum_b), d_w * d_a, acc[b mod 8])     rising b; mins by a second fma right after
// and the 8 lanes fold 0+4,1+5,2+6,3+7 -> 0+2,1+3 -> 0+1. F32, F16, BF16 weights and types without an integer kernel
// use the f32 activations: element i joins lane i mod 32 by fma in rising i; lanes fold 16, 8, 4, 2, 1.
// matmul_law.h has the product unit of each type. The functions keep no state, need up to 320 KiB of stack, and run
// fastest on weights in 2 MiB pages, on activations aligned to 64 bytes and on at least 16 rows a call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "outrider/base/isa.h"
#include "outrider/format/tensor_type.h"
#include "outrider/numerics/activation.h"

namespace outrider::kernels {

struct Weights {
  format::TensorType type = format::TensorType::kF32;
  const std::byte* data = nullptr;  // any alignment; row r at data + r * row_bytes
  uint64_t row_bytes = 0;
  uint32_t n_rows = 0;
  uint32_t k = 0;
};

struct MatmulArgs {
  Weights weights;
  uint32_t row_begin = 0, row_end = 0;   // rows to compute: [row_begin, row_end)
  numerics::Activations x;               // x.k == weights.k; the part that activation_form() names is filled in
  const uint32_t* token_rows = nullptr;  // row of x for output i; nullptr = identity
  uint32_t n_tokens = 0;
  float* out = nullptr;  // out[i * out_stride + r]; does not overlap the inputs
  uint64_t out_stride = 0;
};

using MatmulFn = void (*)(const MatmulArgs& args) noexcept;

enum class ActivationForm : uint8_t { kQuantized, kFloat };

// Which part of Activations a weight type multiplies with. The same on every ISA (it is part of the law).
ActivationForm activation_form(format::TensorType type) noexcept;

// The variant for `type` on `isa`: the best one that needs no more than `isa`. Never null for is_weight types.
MatmulFn choose_matmul(Isa isa, format::TensorType type) noexcept;

}  // namespace outrider::kernels
