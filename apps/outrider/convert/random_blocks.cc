// SPDX-License-Identifier: Apache-2.0
#include "convert/random_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "outrider/base/random.h"
#include "outrider/numerics/blocks.h"
#include "outrider/numerics/dequant.h"

namespace outrider::apps {
namespace {

using format::TensorType;

void put_f16(std::byte* p, float value) noexcept {
  const uint16_t bits = numerics::f32_to_f16(value);
  std::memcpy(p, &bits, sizeof bits);
}

void fill_bytes(std::byte* p, uint64_t n_bytes, Random& random) noexcept {
  uint64_t i = 0;
  for (; i + 8 <= n_bytes; i += 8) {
    const uint64_t word = random.next_u64();
    std::memcpy(p + i, &word, 8);
  }
  const uint64_t word = random.next_u64();
  std::memcpy(p + i, &word, n_bytes - i);
}

// Uniform values of root mean square rms, 16 random bits each, which is finer than f16 and bf16 keep.
float uniform_value(uint32_t bits16, float rms) noexcept {
  constexpr float kSqrt3 = 1.7320508F;
  return rms * kSqrt3 * (static_cast<float>(bits16) * 0x1p-15F - (1.0F - 0x1p-16F));
}

void fill_plain(TensorType type, std::byte* p, uint64_t n, float rms, Random& random) noexcept {
  uint64_t word = 0;
  for (uint64_t i = 0; i < n; ++i) {
    word = i % 4 == 0 ? random.next_u64() : word >> 16;
    const float value = uniform_value(static_cast<uint32_t>(word & 0xFFFFU), rms);
    if (type == TensorType::kF32) {
      std::memcpy(p + 4 * i, &value, 4);
    } else {
      const uint16_t bits = type == TensorType::kF16 ? numerics::f32_to_f16(value) : numerics::f32_to_bf16(value);
      std::memcpy(p + 2 * i, &bits, 2);
    }
  }
}

// The scale byte of MXFP4 or NVFP4 whose value is nearest to `scale`.
uint8_t nearest_scale_byte(TensorType type, float scale) noexcept {
  uint8_t best = 1;
  float best_distance = HUGE_VALF;
  for (uint32_t byte = 1; byte < (type == TensorType::kMXFP4 ? 255U : 127U); ++byte) {
    const float value = type == TensorType::kMXFP4 ? numerics::e8m0_half(static_cast<uint8_t>(byte))
                                                   : numerics::ue4m3_half(static_cast<uint8_t>(byte));
    const float distance = std::fabs(value - scale);
    if (distance < best_distance) {
      best_distance = distance;
      best = static_cast<uint8_t>(byte);
    }
  }
  return best;
}

// Writes the scales of a block whose codes are random. `d` may be negative: codes are not symmetric about zero, and a
// random sign per block takes the mean out. Formats with a minimum get the one that centres their codes.
void put_scales(TensorType type, std::byte* block, float d, uint8_t scale_byte) noexcept {
  switch (type) {
    case TensorType::kQ4_1:
      put_f16(block + numerics::Q4_1::kD, d);
      put_f16(block + numerics::Q4_1::kM, -7.5F * d);
      break;
    case TensorType::kQ5_1:
      put_f16(block + numerics::Q5_1::kD, d);
      put_f16(block + numerics::Q5_1::kM, -15.5F * d);
      break;
    case TensorType::kQ2_K:
      put_f16(block + numerics::Q2_K::kD, d);
      put_f16(block + numerics::Q2_K::kDmin, 1.5F * d);
      break;
    case TensorType::kQ4_K:
      put_f16(block + numerics::Q4_K::kD, d);
      put_f16(block + numerics::Q4_K::kDmin, 7.5F * d);
      break;
    case TensorType::kQ5_K:
      put_f16(block + numerics::Q5_K::kD, d);
      put_f16(block + numerics::Q5_K::kDmin, 15.5F * d);
      break;
    case TensorType::kQ3_K:
      put_f16(block + numerics::Q3_K::kD, d);
      break;
    case TensorType::kQ6_K:
      put_f16(block + numerics::Q6_K::kD, d);
      break;
    case TensorType::kTQ1_0:
      put_f16(block + numerics::TQ1_0::kD, d);
      break;
    case TensorType::kTQ2_0:
      put_f16(block + numerics::TQ2_0::kD, d);
      break;
    case TensorType::kMXFP4:
      block[numerics::MXFP4::kE] = static_cast<std::byte>(scale_byte);
      break;
    case TensorType::kNVFP4:
      std::memset(block + numerics::NVFP4::kD, scale_byte, 4);
      break;
    case TensorType::kIQ1_M: {  // the bits of d lie in the top nibbles of the four scale words
      const uint16_t bits = numerics::f32_to_f16(d);
      for (uint32_t w = 0; w < 4; ++w) {
        std::byte* top = block + numerics::IQ1_M::kScales + 2 * w + 1;
        *top = (*top & std::byte{0x0F}) | static_cast<std::byte>(((bits >> (4 * w)) & 15) << 4);
      }
      break;
    }
    case TensorType::kQ8_0:  // the code -128 is never made by a quantiser
      for (uint32_t i = 0; i < 32; ++i) {
        std::byte& code = block[numerics::Q8_0::kQs + i];
        if (code == std::byte{0x80}) code = std::byte{0x81};
      }
      put_f16(block + numerics::Q8_0::kD, d);
      break;
    default:
      put_f16(block, d);  // d comes first
  }
}

bool is_plain(TensorType type) noexcept { return format::type_info(type).block_elems == 1; }

}  // namespace

RandomBlocks::RandomBlocks(TensorType type, float rms) : type_(type), rms_(rms) {
  if (is_plain(type)) return;
  // Spread of random codes under the scale 1, measured on a sample.
  const format::TypeInfo& info = format::type_info(type);
  constexpr uint64_t kSample = 256;
  std::vector<std::byte> blocks(kSample * info.block_bytes);
  std::vector<float> values(kSample * info.block_elems);
  Random random(1);
  fill_bytes(blocks.data(), blocks.size(), random);
  for (uint64_t b = 0; b < kSample; ++b) {
    put_scales(type, blocks.data() + b * info.block_bytes, 1.0F, nearest_scale_byte(type, 1.0F));
  }
  numerics::dequantize(type, blocks.data(), values.data(), values.size());
  double power = 0;
  for (const float v : values) power += static_cast<double>(v) * static_cast<double>(v);
  d_ = rms / static_cast<float>(std::sqrt(power / static_cast<double>(values.size())));
}

void RandomBlocks::fill(std::byte* blocks, uint64_t n_blocks, uint64_t seed) const noexcept {
  Random random(seed);
  const format::TypeInfo& info = format::type_info(type_);
  if (is_plain(type_)) return fill_plain(type_, blocks, n_blocks, rms_, random);
  fill_bytes(blocks, n_blocks * info.block_bytes, random);
  const uint8_t scale_byte = nearest_scale_byte(type_, d_);
  for (uint64_t b = 0; b < n_blocks; ++b) {
    const uint64_t draw = random.next_u64();
    const float spread = 0.75F + 0.5F * static_cast<float>(draw >> 40) * 0x1p-24F;  // block scales differ a little
    put_scales(type_, blocks + b * info.block_bytes, (draw & 1U) != 0 ? -d_ * spread : d_ * spread, scale_byte);
  }
}

}  // namespace outrider::apps
