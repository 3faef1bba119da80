// SPDX-License-Identifier: Apache-2.0
// rms_norm on vectors, for every instruction set. Include after a vec_*-inl.h.
#pragma once

#include "outrider/kernels/vec/float_law_vec-inl.h"

namespace outrider::kernels {
namespace {

template <typename V>
float sum_of_squares(const float* x, uint32_t n) noexcept {
  constexpr uint32_t kW = V::kWidth;
  constexpr uint32_t kRegs = kLaneRegs<V>;
  typename V::F acc[kRegs];
  for (auto& a : acc) a = V::zero();
  uint32_t i = 0;
  for (; i + 32 <= n; i += 32) {
#pragma GCC unroll 4
    for (uint32_t a = 0; a < kRegs; ++a) {
      const auto v = V::load(x + i + a * kW);
      acc[a] = V::fma(v, v, acc[a]);
    }
  }
  for (uint32_t a = 0; i < n; ++a) {
    const uint32_t part = n - i < kW ? n - i : kW;
    const auto v = V::load_part(x + i, part);
    acc[a] = V::fma_part(v, v, acc[a], part);
    i += part;
  }
  return fold_8(V::fold_to_8(acc));
}

template <typename V>
void rms_norm_vec(const float* x, const float* weight, float eps, uint32_t n, float* y) noexcept {
  constexpr uint32_t kW = V::kWidth;
  const float mean = sum_of_squares<V>(x, n) / static_cast<float>(n);
  const auto r = V::set1(1.0F / __builtin_sqrtf(mean + eps));
  for (uint32_t i = 0; i < n; i += kW) {
    const uint32_t part = n - i < kW ? n - i : kW;
    auto v = V::mul(load_upto<V>(x + i, part), r);
    if (weight != nullptr) v = V::mul(load_upto<V>(weight + i, part), v);
    store_upto<V>(y + i, v, part);
  }
}

}  // namespace
}  // namespace outrider::kernels
