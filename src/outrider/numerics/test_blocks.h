// SPDX-License-Identifier: Apache-2.0
// Random weight blocks of every type for tests, finite or with one of the faults that a file may hold.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>

#include "outrider/base/random.h"
#include "outrider/format/tensor_type.h"
#include "outrider/numerics/blocks.h"
#include "outrider/numerics/float16.h"

namespace outrider::numerics {

inline constexpr uint32_t kNoField = ~0U;

// Where a block keeps its f16 scale and its f16 minimum.
struct ScaleFields {
  uint32_t d = kNoField;
  uint32_t min = kNoField;
};

inline ScaleFields scale_fields(format::TensorType type) {
  using format::TensorType;
  switch (type) {
    case TensorType::kQ4_1:
      return {Q4_1::kD, Q4_1::kM};
    case TensorType::kQ5_1:
      return {Q5_1::kD, Q5_1::kM};
    case TensorType::kQ2_K:
      return {Q2_K::kD, Q2_K::kDmin};
    case TensorType::kQ3_K:
      return {Q3_K::kD, kNoField};
    case TensorType::kQ4_K:
      return {Q4_K::kD, Q4_K::kDmin};
    case TensorType::kQ5_K:
      return {Q5_K::kD, Q5_K::kDmin};
    case TensorType::kQ6_K:
      return {Q6_K::kD, kNoField};
    case TensorType::kTQ1_0:
      return {TQ1_0::kD, kNoField};
    case TensorType::kTQ2_0:
      return {TQ2_0::kD, kNoField};
    case TensorType::kIQ1_M:
    case TensorType::kMXFP4:
    case TensorType::kNVFP4:
      return {};
    default:
      return {0, kNoField};  // d comes first in all others
  }
}

inline void put_f16(std::byte* p, float value) {
  const uint16_t bits = f32_to_f16(value);
  std::memcpy(p, &bits, sizeof bits);
}
inline void put_bf16(std::byte* p, float value) {
  const uint16_t bits = f32_to_bf16(value);
  std::memcpy(p, &bits, sizeof bits);
}

inline float random_scale(Random& rng) {
  return std::ldexp(rng.uniform(0.5F, 1.0F), -static_cast<int>(rng.below(8))) * (rng.below(2) != 0 ? 1.0F : -1.0F);
}

// One block (or one element of a plain type) of random bytes with a finite scale.
inline void random_block(const format::TypeInfo& info, Random& rng, std::byte* block) {
  using format::TensorType;
  for (uint32_t i = 0; i < info.block_bytes; ++i) block[i] = static_cast<std::byte>(rng.next_u64());
  const auto plain = static_cast<float>(rng.normal());
  switch (info.type) {
    case TensorType::kF32:
      std::memcpy(block, &plain, sizeof plain);
      return;
    case TensorType::kF16:
      return put_f16(block, plain);
    case TensorType::kBF16:
      return put_bf16(block, plain);
    case TensorType::kMXFP4:
      block[0] = static_cast<std::byte>(118 + rng.below(16));
      return;
    case TensorType::kIQ1_M:  // the top nibbles of the four scale words are d; an exponent below 16 is finite
      block[IQ1_M::kScales + 7] &= std::byte{0x3F};
      return;
    default:
      break;
  }
  const ScaleFields fields = scale_fields(info.type);
  if (fields.d != kNoField) put_f16(block + fields.d, random_scale(rng));
  if (fields.min != kNoField) put_f16(block + fields.min, random_scale(rng));
}

// Makes a scale, a minimum or a plain element NaN, infinite, zero or subnormal.
inline void put_fault(const format::TypeInfo& info, Random& rng, std::byte* block) {
  using format::TensorType;
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float faults[] = {std::numeric_limits<float>::quiet_NaN(), kInf, -kInf, 0.0F, 0x1p-24F};
  const float fault = faults[rng.below(5)];
  const ScaleFields fields = scale_fields(info.type);
  if (info.type == TensorType::kF32) {
    std::memcpy(block, &fault, sizeof fault);
  } else if (info.type == TensorType::kBF16) {
    put_bf16(block, fault);
  } else if (info.type == TensorType::kMXFP4) {
    const uint8_t exponents[] = {0, 1, 2, 254, 255};
    block[0] = static_cast<std::byte>(exponents[rng.below(5)]);
  } else if (fields.d != kNoField) {
    put_f16(block + (fields.min != kNoField && rng.below(2) != 0 ? fields.min : fields.d), fault);
  }
}

}  // namespace outrider::numerics
