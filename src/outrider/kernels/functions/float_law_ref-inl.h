// SPDX-License-Identifier: Apache-2.0
// The float law of docs/numerics.md as plain code: element i joins lane i mod 32 by fma in rising i; lanes fold
// 16, 8, 4, 2, 1 (lane j takes lane j + 16, and so on). Internal linkage, see functions_ref-inl.h.
#pragma once

#include <cstdint>

namespace outrider::kernels {
namespace {

inline constexpr uint32_t kFloatLanes = 32;

struct FloatLanes {
  float lane[kFloatLanes] = {};

  void join(uint64_t i, float a, float b) noexcept {
    float& acc = lane[i % kFloatLanes];
    acc = __builtin_fmaf(a, b, acc);
  }
  // Destroys the lanes.
  float fold() noexcept {
    for (uint32_t half = kFloatLanes / 2; half >= 1; half /= 2) {
      for (uint32_t j = 0; j < half; ++j) lane[j] += lane[j + half];
    }
    return lane[0];
  }
};

}  // namespace
}  // namespace outrider::kernels
