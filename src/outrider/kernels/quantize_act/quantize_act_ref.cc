// SPDX-License-Identifier: Apache-2.0
// The scalar specification of quantize_act.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "outrider/kernels/quantize_act/quantize_act_variants.h"
#include "outrider/numerics/activation.h"

namespace outrider::kernels {
namespace {

constexpr uint32_t kBlock = numerics::kActivationBlock;
constexpr uint32_t kInfinityBits = 0x7F800000U;

// Round to nearest even for |v| < 2^22: at 1.5 * 2^23 the spacing of f32 is 1.
int32_t round_even(float v) noexcept { return static_cast<int32_t>((v + 0x1.8p23F) - 0x1.8p23F); }

}  // namespace

void quantize_act_ref(const float* x, uint32_t k, int8_t* q, float* d, int32_t* sum32, int16_t* sum16) noexcept {
  for (uint32_t b = 0; b < k / kBlock; ++b, x += kBlock, q += kBlock) {
    uint32_t amax_bits = 0;  // of |x|: as integers they order as the numbers do, with NaN above infinity
    for (uint32_t i = 0; i < kBlock; ++i) amax_bits = std::max(amax_bits, std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFFU);
    const float amax = std::bit_cast<float>(amax_bits);
    const bool is_finite = amax_bits < kInfinityBits;
    const bool is_zero = !is_finite || amax < 0x1p-121F;
    const float scale = is_zero ? 0.0F : 127.0F / amax;
    d[b] = !is_finite ? std::numeric_limits<float>::quiet_NaN() : is_zero ? 0.0F : amax / 127.0F;
    int32_t sums[2] = {0, 0};
    for (uint32_t i = 0; i < kBlock; ++i) {
      const int32_t code = is_zero ? 0 : round_even(x[i] * scale);
      q[i] = static_cast<int8_t>(code);
      sums[i / 16] += code;
    }
    sum16[2 * b] = static_cast<int16_t>(sums[0]);
    sum16[2 * b + 1] = static_cast<int16_t>(sums[1]);
    sum32[b] = sums[0] + sums[1];
  }
}

}  // namespace outrider::kernels
