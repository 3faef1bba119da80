// SPDX-License-Identifier: Apache-2.0
// functions_ref-inl.h on vectors: the same operations in the same order. Include after a vec_*-inl.h.
#pragma once

#include "outrider/kernels/functions/functions_ref-inl.h"

namespace outrider::kernels {
namespace {

template <typename V>
typename V::F exp_vec(typename V::F x) noexcept {
  using F = typename V::F;
  x = V::greater_or_second(V::set1(kExpLow), x);
  x = V::smaller_or_second(V::set1(kExpHigh), x);
  const F shifted = V::fma(x, V::set1(kLog2E), V::set1(kRoundShift));
  const F n = V::sub(shifted, V::set1(kRoundShift));
  F r = V::fma(n, V::set1(-kLn2High), x);
  r = V::fma(n, V::set1(-kLn2Low), r);
  F p = V::set1(kExpPoly[4]);
#pragma GCC unroll 4
  for (int i = 3; i >= 0; --i) p = V::fma(p, r, V::set1(kExpPoly[i]));
  p = V::fma(p, r, V::set1(1.0F));
  p = V::fma(p, r, V::set1(1.0F));
  const auto exponent = V::isub(V::bits(shifted), V::bits(V::set1(kRoundShift)));
  const auto half = V::half(exponent);
  return V::mul(V::mul(p, V::pow2(half)), V::pow2(V::isub(exponent, half)));
}

template <typename V>
typename V::F sigmoid_vec(typename V::F x) noexcept {
  const auto one = V::set1(1.0F);
  return V::div(one, V::add(one, exp_vec<V>(V::negate(x))));
}

template <typename V>
typename V::F silu_vec(typename V::F x) noexcept {
  return V::mul(x, sigmoid_vec<V>(x));
}

}  // namespace
}  // namespace outrider::kernels
