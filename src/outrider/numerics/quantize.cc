// SPDX-License-Identifier: Apache-2.0
#include "outrider/numerics/quantize.h"

#include "outrider/base/check.h"
#include "outrider/numerics/quantize_families.h"

namespace outrider::numerics {
namespace {

using format::TensorType;

struct Entry {
  TensorType type;
  internal::QuantizeFn fn;
};

constexpr Entry kTable[] = {
    {TensorType::kF32, internal::quantize_f32},       {TensorType::kF16, internal::quantize_f16},
    {TensorType::kBF16, internal::quantize_bf16},     {TensorType::kQ4_0, internal::quantize_q4_0},
    {TensorType::kQ4_1, internal::quantize_q4_1},     {TensorType::kQ5_0, internal::quantize_q5_0},
    {TensorType::kQ5_1, internal::quantize_q5_1},     {TensorType::kQ8_0, internal::quantize_q8_0},
    {TensorType::kMXFP4, internal::quantize_mxfp4},   {TensorType::kQ2_K, internal::quantize_q2_k},
    {TensorType::kQ3_K, internal::quantize_q3_k},     {TensorType::kQ4_K, internal::quantize_q4_k},
    {TensorType::kQ5_K, internal::quantize_q5_k},     {TensorType::kQ6_K, internal::quantize_q6_k},
    {TensorType::kIQ4_NL, internal::quantize_iq4_nl}, {TensorType::kIQ4_XS, internal::quantize_iq4_xs},
};

internal::QuantizeFn find(TensorType type) noexcept {
  for (const Entry& entry : kTable) {
    if (entry.type == type) return entry.fn;
  }
  return nullptr;
}

}  // namespace

bool can_quantize(TensorType type) noexcept { return find(type) != nullptr; }

void quantize(TensorType type, const float* x, std::byte* blocks, uint64_t n_elems) noexcept {
  const internal::QuantizeFn fn = find(type);
  OUTRIDER_CHECK(fn != nullptr, "no quantiser for {}", format::type_info(type).name);
  OUTRIDER_CHECK(n_elems % format::type_info(type).block_elems == 0, "{} elements, blocks of {}", n_elems,
                 format::type_info(type).block_elems);
  fn(x, blocks, n_elems);
}

}  // namespace outrider::numerics
