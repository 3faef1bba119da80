// SPDX-License-Identifier: Apache-2.0
#include "outrider/numerics/dequant.h"

#include "outrider/base/check.h"
#include "outrider/numerics/dequant_families.h"

namespace outrider::numerics {
namespace {

using format::TensorType;

struct Entry {
  TensorType type;
  DequantizeFn fn;
};

constexpr Entry kTable[] = {
    {TensorType::kF32, internal::dequantize_f32},         {TensorType::kF16, internal::dequantize_f16},
    {TensorType::kBF16, internal::dequantize_bf16},       {TensorType::kQ4_0, internal::dequantize_q4_0},
    {TensorType::kQ4_1, internal::dequantize_q4_1},       {TensorType::kQ5_0, internal::dequantize_q5_0},
    {TensorType::kQ5_1, internal::dequantize_q5_1},       {TensorType::kQ8_0, internal::dequantize_q8_0},
    {TensorType::kIQ4_NL, internal::dequantize_iq4_nl},   {TensorType::kIQ4_XS, internal::dequantize_iq4_xs},
    {TensorType::kMXFP4, internal::dequantize_mxfp4},     {TensorType::kNVFP4, internal::dequantize_nvfp4},
    {TensorType::kQ2_K, internal::dequantize_q2_k},       {TensorType::kQ3_K, internal::dequantize_q3_k},
    {TensorType::kQ4_K, internal::dequantize_q4_k},       {TensorType::kQ5_K, internal::dequantize_q5_k},
    {TensorType::kQ6_K, internal::dequantize_q6_k},       {TensorType::kIQ1_S, internal::dequantize_iq1_s},
    {TensorType::kIQ1_M, internal::dequantize_iq1_m},     {TensorType::kIQ2_XXS, internal::dequantize_iq2_xxs},
    {TensorType::kIQ2_XS, internal::dequantize_iq2_xs},   {TensorType::kIQ2_S, internal::dequantize_iq2_s},
    {TensorType::kIQ3_XXS, internal::dequantize_iq3_xxs}, {TensorType::kIQ3_S, internal::dequantize_iq3_s},
    {TensorType::kTQ1_0, internal::dequantize_tq1_0},     {TensorType::kTQ2_0, internal::dequantize_tq2_0},
    {TensorType::kQ1_0, internal::dequantize_q1_0},       {TensorType::kQ2_0, internal::dequantize_q2_0},
};

constexpr bool table_covers_every_weight_type() {
  for (const format::TypeInfo& info : format::kTensorTypes) {
    int n_found = 0;
    for (const Entry& entry : kTable) n_found += entry.type == info.type;
    if (n_found != (info.is_weight ? 1 : 0)) return false;
  }
  return true;
}
static_assert(table_covers_every_weight_type());

}  // namespace

DequantizeFn dequantize_fn(TensorType type) noexcept {
  for (const Entry& entry : kTable) {
    if (entry.type == type) return entry.fn;
  }
  OUTRIDER_CHECK(false, "no dequantisation of tensor type {}", static_cast<uint32_t>(type));
  return nullptr;
}

void dequantize(TensorType type, const std::byte* blocks, float* out, uint64_t n_elems) noexcept {
  const uint32_t block_elems = format::type_info(type).block_elems;
  OUTRIDER_DCHECK(n_elems % block_elems == 0, "{} elements, blocks of {}", n_elems, block_elems);
  static_cast<void>(block_elems);
  dequantize_fn(type)(blocks, out, n_elems);
}

}  // namespace outrider::numerics
