// SPDX-License-Identifier: Apache-2.0
// One block of 32 activations by a warp: kernels/quantize_act/quantize_act.h, corners included.
#pragma once

#include "outrider/cuda/device/functions.cuh"
#include "outrider/cuda/ops.h"

namespace outrider::cuda {
namespace {

// Lane l holds element l of block `block` (its number over all rows) of `out`.
__device__ __forceinline__ void quantize_block(float x, uint32_t lane, uint64_t block, const QuantizedRows& out) {
  const uint32_t amax_bits = __reduce_max_sync(kAllLanes, __float_as_uint(x) & 0x7FFFFFFFU);
  const float amax = __uint_as_float(amax_bits);
  const bool is_finite = amax_bits < 0x7F800000U;
  const bool is_zero = !is_finite || amax < 0x1p-121F;
  int32_t code = 0;
  float d = is_finite ? 0.0F : __uint_as_float(0x7FC00000U);
  if (!is_zero) {
    code = __float2int_rn(__fmul_rn(x, __fdiv_rn(127.0F, amax)));
    d = __fdiv_rn(amax, 127.0F);
  }
  out.q[block * 32 + lane] = static_cast<int8_t>(code);
  const int32_t all = __reduce_add_sync(kAllLanes, code);
  const int32_t low = __reduce_add_sync(kAllLanes, lane < 16 ? code : 0);
  if (lane == 0) {
    out.d[block] = d;
    out.sum32[block] = all;
    reinterpret_cast<short2*>(out.sum16)[block] =
        make_short2(static_cast<int16_t>(low), static_cast<int16_t>(all - low));
  }
}

}  // namespace
}  // namespace outrider::cuda
