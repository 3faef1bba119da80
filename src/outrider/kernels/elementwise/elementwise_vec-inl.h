// SPDX-License-Identifier: Apache-2.0
// The elementwise operations on vectors, for every instruction set. Include after a vec_*-inl.h.
#pragma once

#include "outrider/kernels/elementwise/elementwise.h"
#include "outrider/kernels/functions/functions_vec-inl.h"

namespace outrider::kernels {
namespace {

// out_i = op(a_i, b_i).
template <typename V, typename Op>
void map2(const float* a, const float* b, float* out, uint64_t n, Op op) noexcept {
  uint64_t i = 0;
  for (; i + V::kWidth <= n; i += V::kWidth) V::store(out + i, op(V::load(a + i), V::load(b + i)));
  if (i < n) {
    const auto part = static_cast<uint32_t>(n - i);
    V::store_part(out + i, op(V::load_part(a + i, part), V::load_part(b + i, part)), part);
  }
}

template <typename V>
void swiglu_vec(const float* gate, const float* up, float* out, uint64_t n) noexcept {
  map2<V>(gate, up, out, n, [](auto g, auto u) { return V::mul(silu_vec<V>(g), u); });
}

template <typename V>
void silu_of_vec(const float* x, float* out, uint64_t n) noexcept {
  map2<V>(x, x, out, n, [](auto v, auto) { return silu_vec<V>(v); });
}

template <typename V>
void add_vec(float* y, const float* x, uint64_t n) noexcept {
  map2<V>(y, x, y, n, [](auto a, auto b) { return V::add(a, b); });
}

template <typename V>
void add_scaled_vec(float* y, const float* x, float weight, uint64_t n) noexcept {
  map2<V>(y, x, y, n, [w = V::set1(weight)](auto a, auto b) { return V::fma(w, b, a); });
}

template <typename V>
void swiglu_clamped_vec(const float* gate, const float* up, float alpha, float limit, float* out, uint64_t n) noexcept {
  const auto low = V::set1(-limit);
  const auto high = V::set1(limit);
  const auto one = V::set1(1.0F);
  map2<V>(gate, up, out, n, [=, a = V::set1(alpha)](auto g, auto u) {
    g = V::smaller_or_second(high, g);
    u = V::smaller_or_second(high, V::greater_or_second(low, u));
    return V::mul(V::mul(g, sigmoid_vec<V>(V::mul(a, g))), V::add(u, one));
  });
}

template <typename V>
bool all_finite_vec(const float* x, uint64_t n) noexcept {
  uint64_t i = 0;
  for (; i + V::kWidth <= n; i += V::kWidth) {
    if (!V::all_finite(V::load(x + i))) return false;
  }
  return i == n || V::all_finite(V::load_part(x + i, static_cast<uint32_t>(n - i)));
}

template <typename V>
inline constexpr ElementwiseFns kElementwiseVec = {swiglu_vec<V>,     silu_of_vec<V>,        add_vec<V>,
                                                   add_scaled_vec<V>, swiglu_clamped_vec<V>, all_finite_vec<V>};

}  // namespace
}  // namespace outrider::kernels
