// SPDX-License-Identifier: Apache-2.0
// The table of matmul variants: weight type, instruction set, function. Dispatch, tests and benches loop over it.
#pragma once

#include <span>

#include "outrider/kernels/matmul/matmul.h"

// clang-format off
// X(kernel): one file per kernel and ISA.
#define OUTRIDER_MATMUL_KERNELS(X)                                                                      \
  X(f32) X(f16) X(bf16) X(q4_0) X(q4_1) X(q5_0) X(q5_1) X(q8_0) X(q2_k) X(q3_k) X(q4_k) X(q5_k) X(q6_k) \
  X(iq4_nl) X(iq4_xs) X(mxfp4)

// X(weight type, kernel): the types with a scalar kernel of their own.
#define OUTRIDER_MATMUL_TYPES(X)                                                                         \
  X(kF32, f32) X(kF16, f16) X(kBF16, bf16) X(kQ4_0, q4_0) X(kQ4_1, q4_1) X(kQ5_0, q5_0) X(kQ5_1, q5_1)   \
  X(kQ8_0, q8_0) X(kQ2_K, q2_k) X(kQ3_K, q3_k) X(kQ4_K, q4_k) X(kQ5_K, q5_k) X(kQ6_K, q6_k)              \
  X(kIQ4_NL, iq4_nl) X(kIQ4_XS, iq4_xs) X(kMXFP4, mxfp4)

// X(weight type, kernel): the types that are dequantised and multiplied by the float law. matmul_generic_ref is the scalar
// kernel of all of them; files of the others hold a family.
#define OUTRIDER_MATMUL_DECODED(X)                                                                        \
  X(kIQ2_XXS, iq2_xxs) X(kIQ2_XS, iq2_xs) X(kIQ2_S, iq2_s) X(kIQ3_XXS, iq3_xxs) X(kIQ3_S, iq3_s)          \
  X(kIQ1_S, iq1_s) X(kIQ1_M, iq1_m) X(kTQ1_0, tq1_0) X(kTQ2_0, tq2_0) X(kNVFP4, nvfp4) X(kQ1_0, q1_0)     \
  X(kQ2_0, q2_0)
// clang-format on

namespace outrider::kernels {

#define OUTRIDER_DECLARE(kernel)                                \
  void matmul_##kernel##_ref(const MatmulArgs& args) noexcept;  \
  void matmul_##kernel##_avx2(const MatmulArgs& args) noexcept; \
  void matmul_##kernel##_avx512(const MatmulArgs& args) noexcept;
OUTRIDER_MATMUL_KERNELS(OUTRIDER_DECLARE)
#undef OUTRIDER_DECLARE
void matmul_generic_ref(const MatmulArgs& args) noexcept;
#define OUTRIDER_DECLARE(type, kernel)                          \
  void matmul_##kernel##_avx2(const MatmulArgs& args) noexcept; \
  void matmul_##kernel##_avx512(const MatmulArgs& args) noexcept;
OUTRIDER_MATMUL_DECODED(OUTRIDER_DECLARE)
#undef OUTRIDER_DECLARE

struct MatmulVariant {
  format::TensorType type;
  Isa needs;
  MatmulFn fn;
};
// Rising needs within a type; every is_weight type has a kScalar row, which is the specification.
std::span<const MatmulVariant> matmul_variants() noexcept;

}  // namespace outrider::kernels
