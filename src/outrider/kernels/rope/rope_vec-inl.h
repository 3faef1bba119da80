// SPDX-License-Identifier: Apache-2.0
// rope on vectors, for every instruction set. Include after a vec_*-inl.h.
#pragma once

#include "outrider/kernels/rope/rope.h"

namespace outrider::kernels {
namespace {

// Rotates V::kWidth pairs by the angles at cos_sin.
template <typename V>
void rotate(typename V::F& a, typename V::F& b, const float* cos_sin) noexcept {
  typename V::F c, s;
  V::split_pairs(V::load(cos_sin), V::load(cos_sin + V::kWidth), c, s);
  const auto first = V::fms(a, c, V::mul(b, s));
  b = V::fma(a, s, V::mul(b, c));
  a = first;
}

template <typename V>
void rope_vec(float* x, const float* cos_sin, uint32_t n_rot, RopePairing pairing) noexcept {
  constexpr uint32_t kW = V::kWidth;
  const uint32_t n_pairs = n_rot / 2;
  const bool interleaved = pairing == RopePairing::kInterleaved;
  uint32_t i = 0;
  for (; i + kW <= n_pairs; i += kW) {
    if (interleaved) {
      float* at = x + 2 * i;
      typename V::F a, b, low, high;
      V::split_pairs(V::load(at), V::load(at + kW), a, b);
      rotate<V>(a, b, cos_sin + 2 * i);
      V::join_pairs(a, b, low, high);
      V::store(at, low);
      V::store(at + kW, high);
    } else {
      auto a = V::load(x + i);
      auto b = V::load(x + n_pairs + i);
      rotate<V>(a, b, cos_sin + 2 * i);
      V::store(x + i, a);
      V::store(x + n_pairs + i, b);
    }
  }
  for (; i < n_pairs; ++i) {
    float* first = x + (interleaved ? 2 * i : i);
    float* second = interleaved ? first + 1 : first + n_pairs;
    const float c = cos_sin[2 * i];
    const float s = cos_sin[2 * i + 1];
    const float a = *first;
    const float b = *second;
    *first = __builtin_fmaf(a, c, -(b * s));
    *second = __builtin_fmaf(a, s, b * c);
  }
}

}  // namespace
}  // namespace outrider::kernels
