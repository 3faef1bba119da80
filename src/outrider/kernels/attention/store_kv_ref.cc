// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/attention/attention_variants.h"
#include "outrider/numerics/float16.h"

namespace outrider::kernels {
namespace {

template <typename T>
void store(std::byte* to, T value) noexcept {
  __builtin_memcpy(to, &value, sizeof(T));
}

// One block of 32: f16 d, then 32 int8. NaN or infinity inside gives d = NaN, so that the fault shows; d that rounds to
// zero gives zeros.
void store_q8_0_block(const float* x, std::byte* block) noexcept {
  constexpr float kRoundShift = 0x1.8p+23F;  // adding it rounds to an integer, nearest even
  float amax = 0;
  bool finite = true;
  for (uint32_t i = 0; i < 32; ++i) {
    const float magnitude = __builtin_fabsf(x[i]);
    finite = finite && magnitude <= 0x1.fffffep+127F;
    amax = magnitude > amax ? magnitude : amax;
  }
  const uint16_t d = finite ? numerics::f32_to_f16(amax / 127.0F) : uint16_t{0x7E00};
  const float scale = finite && d != 0 ? 127.0F / amax : 0.0F;
  store(block, d);
  for (uint32_t i = 0; i < 32; ++i) {
    const float q = scale == 0.0F ? 0.0F : (x[i] * scale + kRoundShift) - kRoundShift;
    store(block + 2 + i, static_cast<int8_t>(q));
  }
}

}  // namespace

void store_kv_ref(const float* x, uint32_t width, KvType type, std::byte* row) noexcept {
  switch (type) {
    case KvType::kF16:
      for (uint32_t i = 0; i < width; ++i) store(row + 2 * i, numerics::f32_to_f16(x[i]));
      return;
    case KvType::kF32:
      __builtin_memcpy(row, x, 4ULL * width);
      return;
    case KvType::kQ8_0:
      for (uint32_t b = 0; b < width / 32; ++b) store_q8_0_block(x + 32 * b, row + 34ULL * b);
      return;
  }
}

}  // namespace outrider::kernels
