// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/matmul/matmul.h"

#include "outrider/kernels/matmul/matmul_variants.h"

namespace outrider::kernels {
namespace {

// clang-format off
constexpr MatmulVariant kVariants[] = {
#define OUTRIDER_ROW(type, kernel) {format::TensorType::type, Isa::kScalar, matmul_##kernel##_ref},
    OUTRIDER_MATMUL_TYPES(OUTRIDER_ROW)
#undef OUTRIDER_ROW
#define OUTRIDER_ROW(type, kernel) {format::TensorType::type, Isa::kScalar, matmul_generic_ref},
    OUTRIDER_MATMUL_DECODED(OUTRIDER_ROW)
#undef OUTRIDER_ROW
#if defined(__x86_64__)
#define OUTRIDER_ROW(type, kernel) {format::TensorType::type, Isa::kAvx2, matmul_##kernel##_avx2},
    OUTRIDER_MATMUL_TYPES(OUTRIDER_ROW)
    OUTRIDER_MATMUL_DECODED(OUTRIDER_ROW)
#undef OUTRIDER_ROW
#define OUTRIDER_ROW(type, kernel) {format::TensorType::type, Isa::kAvx512, matmul_##kernel##_avx512},
    OUTRIDER_MATMUL_TYPES(OUTRIDER_ROW)
    OUTRIDER_MATMUL_DECODED(OUTRIDER_ROW)
#undef OUTRIDER_ROW
#endif
};
// clang-format on

}  // namespace

std::span<const MatmulVariant> matmul_variants() noexcept { return kVariants; }

ActivationForm activation_form(format::TensorType type) noexcept {
  using enum format::TensorType;
  switch (type) {
    case kQ4_0:
    case kQ4_1:
    case kQ5_0:
    case kQ5_1:
    case kQ8_0:
    case kQ2_K:
    case kQ3_K:
    case kQ4_K:
    case kQ5_K:
    case kQ6_K:
    case kIQ4_NL:
    case kIQ4_XS:
    case kMXFP4:
      return ActivationForm::kQuantized;
    default:
      return ActivationForm::kFloat;
  }
}

MatmulFn choose_matmul(Isa isa, format::TensorType type) noexcept {
  MatmulFn best = nullptr;
  for (const MatmulVariant& variant : kVariants) {
    if (variant.type == type && variant.needs <= isa) best = variant.fn;
  }
  return best;
}

}  // namespace outrider::kernels
