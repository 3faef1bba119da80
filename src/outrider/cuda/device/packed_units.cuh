// SPDX-License-Identifier: Apache-2.0
// One packed block of 32 elements (product/packed.h) times the activations of one token, from registers: the integers
// of the law by the ways of row_units.cuh, with codes where the pack kernel put them:
// - nibbles: low ones of word w are elements 4w .., high ones elements 16 + 4w ..;
// - nibbles of types with tables: halves of 16 bits, four elements in order, as a byte permutation wants them;
// - what is above four bits: bit i (Q5_K) or bits 2 (i % 4) (Q6_K) of byte b are element 4i + b.
#pragma once

#include "outrider/cuda/device/row_units.cuh"

namespace outrider::cuda {
namespace {

// Which sums of activations a type reads.
enum class PackedSums : uint8_t { kNone, kAll, kHalves };

// What a thread has of a block: `super` of its 256 elements.
struct PackedBlock {
  uint32_t words[8];  // 4 but for Q8_0
  uint32_t above[2];
  uint32_t scale, super;
};

// Low nibbles, then 16 times the sum of high ones.
__device__ __forceinline__ void dot_nibbles(const PackedBlock& b, const BlockActs& a, int32_t& low, int32_t& high) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    low = dot_unsigned(b.words[i] & 0x0F0F0F0FU, a.q[i], low);
    high = dot_unsigned(b.words[i] & 0xF0F0F0F0U, a.q[4 + i], high);
  }
}
__device__ __forceinline__ int32_t dot_packed_table(const PackedBlock& b, const Table& t, const BlockActs& a) {
  const uint32_t words[4] = {b.words[0], b.words[1], b.words[2], b.words[3]};
  uint32_t halves[8];
  split<false>(words, t, halves);
  return dot_table(halves, t, a);
}
__device__ __forceinline__ float join_packed_k4(const PackedBlock& b, int32_t dot, const BlockActs& a, float lane) {
  const auto scale = static_cast<int32_t>(b.scale & 0xFFU);
  const auto min = static_cast<int32_t>(b.scale >> 8);
  lane = __fmaf_rn(static_cast<float>(scale * dot), __fmul_rn(half_at_bottom(b.super), a.d), lane);
  return __fmaf_rn(static_cast<float>(min * a.sum0), __fmul_rn(-half_at_bottom(b.super >> 16), a.d), lane);
}

template <typename Unit>
struct Packed;

template <>
struct Packed<UnitQ4_0> {
  static constexpr format::TensorType kType = format::TensorType::kQ4_0;
  static constexpr PackedSums kSums = PackedSums::kAll;
  static __device__ __forceinline__ NoTable make_table(uint32_t) { return {}; }
  static __device__ __forceinline__ float join(const PackedBlock& b, const NoTable&, const BlockActs& a, float lane) {
    int32_t low = -8 * a.sum0;
    int32_t high = 0;
    dot_nibbles(b, a, low, high);
    return __fmaf_rn(static_cast<float>(low + (high >> 4)), __fmul_rn(half_at_bottom(b.scale), a.d), lane);
  }
};

template <>
struct Packed<UnitQ8_0> {
  static constexpr format::TensorType kType = format::TensorType::kQ8_0;
  static constexpr PackedSums kSums = PackedSums::kNone;
  static __device__ __forceinline__ NoTable make_table(uint32_t) { return {}; }
  static __device__ __forceinline__ float join(const PackedBlock& b, const NoTable&, const BlockActs& a, float lane) {
    int32_t sums[2] = {};
#pragma unroll
    for (int i = 0; i < 8; ++i) sums[i / 4] = __dp4a(static_cast<int32_t>(b.words[i]), a.q[i], sums[i / 4]);
    return __fmaf_rn(static_cast<float>(sums[0] + sums[1]), __fmul_rn(half_at_bottom(b.scale), a.d), lane);
  }
};

template <>
struct Packed<UnitIq4Nl> {
  static constexpr format::TensorType kType = format::TensorType::kIQ4_NL;
  static constexpr PackedSums kSums = PackedSums::kNone;
  static __device__ __forceinline__ Table make_table(uint32_t zero) { return outrider::cuda::make_table<false>(zero); }
  static __device__ __forceinline__ float join(const PackedBlock& b, const Table& t, const BlockActs& a, float lane) {
    const int32_t isum = dot_packed_table(b, t, a);
    return __fmaf_rn(static_cast<float>(isum), __fmul_rn(half_at_bottom(b.scale), a.d), lane);
  }
};

template <>
struct Packed<UnitMxfp4> {
  static constexpr format::TensorType kType = format::TensorType::kMXFP4;
  static constexpr PackedSums kSums = PackedSums::kNone;
  static __device__ __forceinline__ Table make_table(uint32_t zero) { return outrider::cuda::make_table<true>(zero); }
  static __device__ __forceinline__ float join(const PackedBlock& b, const Table& t, const BlockActs& a, float lane) {
    const int32_t isum = -dot_packed_table(b, t, a);
    const auto e = static_cast<int32_t>(b.scale);
    // 2^(e - 128), as in row_units.cuh.
    const float d = __int_as_float(max((e << 23) - (1 << 23), (e << 21) + (1 << 21)));
    return __fmaf_rn(static_cast<float>(isum), __fmul_rn(d, a.d), lane);
  }
};

template <>
struct Packed<UnitIq4Xs> {
  static constexpr format::TensorType kType = format::TensorType::kIQ4_XS;
  static constexpr PackedSums kSums = PackedSums::kNone;
  static __device__ __forceinline__ Table make_table(uint32_t zero) { return outrider::cuda::make_table<false>(zero); }
  static __device__ __forceinline__ float join(const PackedBlock& b, const Table& t, const BlockActs& a, float lane) {
    const int32_t isum = static_cast<int32_t>(b.scale) * dot_packed_table(b, t, a);
    return __fmaf_rn(static_cast<float>(isum), __fmul_rn(half_at_bottom(b.super), a.d), lane);
  }
};

template <>
struct Packed<UnitQ4K> {
  static constexpr format::TensorType kType = format::TensorType::kQ4_K;
  static constexpr PackedSums kSums = PackedSums::kAll;
  static __device__ __forceinline__ NoTable make_table(uint32_t) { return {}; }
  static __device__ __forceinline__ float join(const PackedBlock& b, const NoTable&, const BlockActs& a, float lane) {
    int32_t low = 0;
    int32_t high = 0;
    dot_nibbles(b, a, low, high);
    return join_packed_k4(b, low + (high >> 4), a, lane);
  }
};

template <>
struct Packed<UnitQ5K> {
  static constexpr format::TensorType kType = format::TensorType::kQ5_K;
  static constexpr PackedSums kSums = PackedSums::kAll;
  static __device__ __forceinline__ NoTable make_table(uint32_t) { return {}; }
  static __device__ __forceinline__ float join(const PackedBlock& b, const NoTable&, const BlockActs& a, float lane) {
    int32_t low = 0;
    int32_t high = 0;   // 16 times
    int32_t fifth = 0;  // fifth bits of high ones, 8 times what `high` is 16 times of
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t bit = (b.above[0] & (0x01010101U << i)) << (4 - i);
      low = dot_unsigned((b.words[i] & 0x0F0F0F0FU) | bit, a.q[i], low);
      high = dot_unsigned(b.words[i] & 0xF0F0F0F0U, a.q[4 + i], high);
      fifth = dot_unsigned((b.above[0] & (0x10101010U << i)) << (3 - i), a.q[4 + i], fifth);
    }
    return join_packed_k4(b, low + (high >> 4) + (fifth >> 3), a, lane);
  }
};

template <>
struct Packed<UnitQ6K> {
  static constexpr format::TensorType kType = format::TensorType::kQ6_K;
  static constexpr PackedSums kSums = PackedSums::kHalves;
  static __device__ __forceinline__ NoTable make_table(uint32_t) { return {}; }
  static __device__ __forceinline__ float join(const PackedBlock& b, const NoTable&, const BlockActs& a, float lane) {
    int32_t low = -32 * a.sum0;
    int32_t high = 0;  // 16 times
    int32_t two = 0;   // upper bits of high ones, 64 times
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t bits = b.above[0] & (0x03030303U << (2 * i));
      const uint32_t above = i < 2 ? bits << (4 - 2 * i) : bits >> (2 * i - 4);
      low = dot_unsigned((b.words[i] & 0x0F0F0F0FU) | above, a.q[i], low);
      high = dot_unsigned(b.words[i] & 0xF0F0F0F0U, a.q[4 + i], high);
      two = dot_unsigned((b.above[1] & (0x03030303U << (2 * i))) << (6 - 2 * i), a.q[4 + i], two);
    }
    const int32_t dot1 = (high >> 4) + (two >> 2) - 32 * a.sum1;
    const int32_t isum = static_cast<int8_t>(b.scale) * low + static_cast<int8_t>(b.scale >> 8) * dot1;
    return __fmaf_rn(static_cast<float>(isum), __fmul_rn(half_at_bottom(b.super), a.d), lane);
  }
};

}  // namespace
}  // namespace outrider::cuda
