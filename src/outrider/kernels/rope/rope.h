// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding (Su et al. 2021) of one head vector, from a host-made table.
#pragma once

#include <cstdint>

#include "outrider/base/isa.h"

namespace outrider::kernels {

enum class RopePairing : uint8_t {
  kInterleaved,  // pair i is elements (2i, 2i+1): llama, deepseek2
  kHalves,       // pair i is elements (i, i + n_rot/2): NEOX, everything else
};

// cos_sin: n_rot/2 (cos, sin) pairs for this position, magnitude already multiplied in, made in double and rounded
// once. (a, b) -> (fma(a, c, -(b * s)), fma(a, s, b * c)). Elements from n_rot on are untouched. In place on x (>=
// n_rot).
using RopeFn = void (*)(float* x, const float* cos_sin, uint32_t n_rot, RopePairing pairing) noexcept;
RopeFn choose_rope(Isa isa) noexcept;

}  // namespace outrider::kernels
