// SPDX-License-Identifier: Apache-2.0
// The table of matmul variants: weight type, instruction set, function. Dispatch, tests and benches loop over it.
#pragma once

#include <span>

#include "outrider/kernels/matmul/matmul.h"

// clang-format off
// X(kernel): one file per kernel and ISA. `generic` dequantises and then multiplies by the float law.
#define OUTRIDER_MATMUL_KERNELS(X)                                                                      \
  X(f32) X(f16) X(bf16) X(generic) X(q4_0) X(q4_1) X(q5_0) X(q5_1) X(q8_0) X(q2_k) X(q3_k) X(q4_k) X(q5_k) \
  X(q6_k) X(iq4_nl) X(iq4_xs) X(mxfp4)

// X(weight type, kernel): every is_weight type once.
#define OUTRIDER_MATMUL_TYPES(X)                                                                         \
  X(kF32, f32) X(kF16, f16) X(kBF16, bf16) X(kQ4_0, q4_0) X(kQ4_1, q4_1) X(kQ5_0, q5_0) X(kQ5_1, q5_1)   \
  X(kQ8_0, q8_0) X(kQ2_K, q2_k) X(kQ3_K, q3_k) X(kQ4_K, q4_k) X(kQ5_K, q5_k) X(kQ6_K, q6_k)              \
  X(kIQ4_NL, iq4_nl) X(kIQ4_XS, iq4_xs) X(kMXFP4, mxfp4) X(kIQ2_XXS, generic) X(kIQ2_XS, generic)        \
  X(kIQ2_S, generic) X(kIQ3_XXS, generic) X(kIQ3_S, generic) X(kIQ1_S, generic) X(kIQ1_M, generic)       \
  X(kTQ1_0, generic) X(kTQ2_0, generic) X(kNVFP4, generic) X(kQ1_0, generic) X(kQ2_0, generic)
// clang-format on

namespace outrider::kernels {

#define OUTRIDER_DECLARE(kernel)                                \
  void matmul_##kernel##_ref(const MatmulArgs& args) noexcept;  \
  void matmul_##kernel##_avx2(const MatmulArgs& args) noexcept; \
  void matmul_##kernel##_avx512(const MatmulArgs& args) noexcept;
OUTRIDER_MATMUL_KERNELS(OUTRIDER_DECLARE)
#undef OUTRIDER_DECLARE

// The shape of a stored block, for files that may not call inline functions of other modules (style.md section 7).
struct BlockShape {
  uint32_t elems, bytes;
};
BlockShape block_shape(format::TensorType type) noexcept;
inline constexpr uint32_t kMostBlockElems = 256;

struct MatmulVariant {
  format::TensorType type;
  Isa needs;
  MatmulFn fn;
};
// Rising needs within a type; every is_weight type has a kScalar row, which is the specification.
std::span<const MatmulVariant> matmul_variants() noexcept;

}  // namespace outrider::kernels
