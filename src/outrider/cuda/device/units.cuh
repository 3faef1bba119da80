// SPDX-License-Identifier: Apache-2.0
// The integer product unit of each quantised type on the device (kernels/matmul/matmul_law.h is the law): `load` turns
// one block of 32 elements into eight words of four int8 codes, in element order, with its scales. Row kernels feed
// them to dp4a, tiles to the tensor cores; both get exact integers, so the order inside a block is free.
// Blocks are read from shared or global memory at any address that is a multiple of the type's own alignment: the
// largest power of two, at most 16, that divides its bytes.
#pragma once

#include <cstdint>

#include "outrider/cuda/device/functions.cuh"
#include "outrider/format/tensor_type.h"
#include "outrider/numerics/blocks.h"

namespace outrider::cuda {
namespace {

namespace nm = numerics;

// isum = scale0 * dot0 + scale1 * dot1 over the halves; with kHalves false scale0 is for all 32 elements.
struct BlockCodes {
  int32_t words[8];  // words[i]: elements 4i .. 4i+3
  float d, d_min;
  int32_t scale0, scale1, min0, min1;
};

// N words at p, a multiple of kAlign, from shared memory, where the words around p are readable.
template <int N, int kAlign>
__device__ __forceinline__ void load_words(const uint8_t* p, uint32_t (&out)[N]) {
  if constexpr (kAlign >= 16 && N % 4 == 0) {
#pragma unroll
    for (int i = 0; i < N / 4; ++i) {
      const uint4 v = reinterpret_cast<const uint4*>(p)[i];
      out[4 * i] = v.x, out[4 * i + 1] = v.y, out[4 * i + 2] = v.z, out[4 * i + 3] = v.w;
    }
  } else if constexpr (kAlign >= 4) {
#pragma unroll
    for (int i = 0; i < N; ++i) out[i] = reinterpret_cast<const uint32_t*>(p)[i];
  } else {
    const auto address = reinterpret_cast<uintptr_t>(p);
    const auto* from = reinterpret_cast<const uint32_t*>(p - (address & 3U));  // so that p stays known as shared memory
    const uint32_t shift = static_cast<uint32_t>(address & 3U) * 8;
    uint32_t low = from[0];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const uint32_t high = from[i + 1];
      out[i] = __funnelshift_r(low, high, shift);
      low = high;
    }
  }
}

__device__ __forceinline__ float load_half(const uint8_t* p) {
  return f16_to_f32(*reinterpret_cast<const uint16_t*>(p));
}

// Subtracts kOffset from four unsigned codes below 128 + kOffset: (c + (128 - kOffset)) ^ 128, without carries.
template <uint32_t kOffset>
__device__ __forceinline__ int32_t minus(uint32_t codes) {
  return static_cast<int32_t>((codes + (128U - kOffset) * 0x01010101U) ^ 0x80808080U);
}

// Four bits to the lowest bits of four bytes.
__device__ __forceinline__ uint32_t spread_bits(uint32_t four) { return ((four & 15U) * 0x00204081U) & 0x01010101U; }

// Eight nibbles to their values: low nibbles (elements 4w ..) to `low`, high ones to `high`. `table` is 16 int8.
__device__ __forceinline__ void look_up(uint32_t nibbles, const uint32_t (&table)[4], int32_t& low, int32_t& high) {
  // A selector of __byte_perm has three bits for one of eight bytes, so each code is looked up in both halves of the
  // table, and its fourth bit chooses between the two.
  const uint32_t three = nibbles & 0x77777777U;
  const uint32_t choice = 0x32103210U | ((nibbles & 0x88888888U) >> 1);
  uint32_t mixed[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t below = __byte_perm(table[0], table[1], three >> (16 * i));
    const uint32_t above = __byte_perm(table[2], table[3], three >> (16 * i));
    mixed[i] = __byte_perm(below, above, choice >> (16 * i));
  }
  low = static_cast<int32_t>(__byte_perm(mixed[0], mixed[1], 0x6420));
  high = static_cast<int32_t>(__byte_perm(mixed[0], mixed[1], 0x7531));
}

constexpr uint32_t pack4(const int8_t (&values)[16], int i) {
  return static_cast<uint32_t>(static_cast<uint8_t>(values[4 * i])) |
         static_cast<uint32_t>(static_cast<uint8_t>(values[4 * i + 1])) << 8 |
         static_cast<uint32_t>(static_cast<uint8_t>(values[4 * i + 2])) << 16 |
         static_cast<uint32_t>(static_cast<uint8_t>(values[4 * i + 3])) << 24;
}

// Four words of nibbles, low ones first, each looked up.
template <bool kFp4>
__device__ __forceinline__ void look_up_block(const uint32_t (&qs)[4], BlockCodes& codes) {
  constexpr uint32_t t0 = pack4(kFp4 ? nm::kFp4Values : nm::kIq4Values, 0);
  constexpr uint32_t t1 = pack4(kFp4 ? nm::kFp4Values : nm::kIq4Values, 1);
  constexpr uint32_t t2 = pack4(kFp4 ? nm::kFp4Values : nm::kIq4Values, 2);
  constexpr uint32_t t3 = pack4(kFp4 ? nm::kFp4Values : nm::kIq4Values, 3);
  const uint32_t table[4] = {t0, t1, t2, t3};
#pragma unroll
  for (int i = 0; i < 4; ++i) look_up(qs[i], table, codes.words[i], codes.words[4 + i]);
}

constexpr int alignment_of(uint32_t bytes) {
  return bytes % 16 == 0 ? 16 : bytes % 4 == 0 ? 4 : bytes % 2 == 0 ? 2 : 1;
}

// clang-format off: the traits of a type on one line
template <typename Layout, bool kMinIn, bool kHalvesIn>
struct UnitTraits : Layout {
  static constexpr bool kHasMin = kMinIn;     // a second fma for the minimum
  static constexpr bool kHalves = kHalvesIn;  // sub-scales of 16 elements
  static constexpr uint32_t kSubs = Layout::kElems / 32;
  static constexpr int kAlign = alignment_of(Layout::kBytes);
};
// clang-format on

struct UnitQ4_0 : UnitTraits<nm::Q4_0, false, false> {
  static __device__ __forceinline__ void load(const uint8_t* p, uint32_t, BlockCodes& c) {
    uint32_t qs[4];
    load_words<4, kAlign>(p + kQs, qs);
    c.d = load_half(p + kD);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      c.words[i] = minus<8>(qs[i] & 0x0F0F0F0FU);
      c.words[4 + i] = minus<8>((qs[i] >> 4) & 0x0F0F0F0FU);
    }
  }
};

struct UnitQ4_1 : UnitTraits<nm::Q4_1, true, false> {
  static __device__ __forceinline__ void load(const uint8_t* p, uint32_t, BlockCodes& c) {
    uint32_t qs[4];
    load_words<4, kAlign>(p + kQs, qs);
    c.d = load_half(p + kD);
    c.d_min = load_half(p + kM);
    c.min0 = 1;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      c.words[i] = static_cast<int32_t>(qs[i] & 0x0F0F0F0FU);
      c.words[4 + i] = static_cast<int32_t>((qs[i] >> 4) & 0x0F0F0F0FU);
    }
  }
};

struct UnitQ5_0 : UnitTraits<nm::Q5_0, false, false> {
  static __device__ __forceinline__ void load(const uint8_t* p, uint32_t, BlockCodes& c) {
    uint32_t all[5];
    load_words<5, kAlign>(p + kQh, all);  // qh, then qs
    c.d = load_half(p + kD);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      c.words[i] = minus<16>((all[1 + i] & 0x0F0F0F0FU) | spread_bits(all[0] >> (4 * i)) << 4);
      c.words[4 + i] = minus<16>(((all[1 + i] >> 4) & 0x0F0F0F0FU) | spread_bits(all[0] >> (16 + 4 * i)) << 4);
    }
  }
};

struct UnitQ5_1 : UnitTraits<nm::Q5_1, true, false> {
  static __device__ __forceinline__ void load(const uint8_t* p, uint32_t, BlockCodes& c) {
    uint32_t all[5];
    load_words<5, kAlign>(p + kQh, all);
    c.d = load_half(p + kD);
    c.d_min = load_half(p + kM);
    c.min0 = 1;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      c.words[i] = static_cast<int32_t>((all[1 + i] & 0x0F0F0F0FU) | spread_bits(all[0] >> (4 * i)) << 4);
      c.words[4 + i] =
          static_cast<int32_t>(((all[1 + i] >> 4) & 0x0F0F0F0FU) | spread_bits(all[0] >> (16 + 4 * i)) << 4);
    }
  }
};

struct UnitQ8_0 : UnitTraits<nm::Q8_0, false, false> {
  static __device__ __forceinline__ void load(const uint8_t* p, uint32_t, BlockCodes& c) {
    uint32_t qs[8];
    load_words<8, kAlign>(p + kQs, qs);
    c.d = load_half(p + kD);
#pragma unroll
    for (int i = 0; i < 8; ++i) c.words[i] = static_cast<int32_t>(qs[i]);
  }
};

struct UnitIq4Nl : UnitTraits<nm::IQ4_NL, false, false> {
  static __device__ __forceinline__ void load(const uint8_t* p, uint32_t, BlockCodes& c) {
    uint32_t qs[4];
    load_words<4, kAlign>(p + kQs, qs);
    c.d = load_half(p + kD);
    look_up_block<false>(qs, c);
  }
};

struct UnitMxfp4 : UnitTraits<nm::MXFP4, false, false> {
  static __device__ __forceinline__ void load(const uint8_t* p, uint32_t, BlockCodes& c) {
    uint32_t qs[4];
    load_words<4, kAlign>(p + kQs, qs);
    const uint32_t e = p[kE];
    c.d = __uint_as_float(e < 2 ? 0x00200000U << e : (e - 1) << 23);
    look_up_block<true>(qs, c);
  }
};

struct UnitQ2K : UnitTraits<nm::Q2_K, true, true> {
  static __device__ __forceinline__ void load(const uint8_t* p, uint32_t sub, BlockCodes& c) {
    uint32_t qs[8];
    load_words<8, kAlign>(p + kQs + 32 * (sub / 4), qs);
    c.d = load_half(p + kD);
    c.d_min = -load_half(p + kDmin);
    const uint32_t s0 = p[kScales + 2 * sub];
    const uint32_t s1 = p[kScales + 2 * sub + 1];
    c.scale0 = static_cast<int32_t>(s0 & 15U), c.scale1 = static_cast<int32_t>(s1 & 15U);
    c.min0 = static_cast<int32_t>(s0 >> 4), c.min1 = static_cast<int32_t>(s1 >> 4);
#pragma unroll
    for (int i = 0; i < 8; ++i) c.words[i] = static_cast<int32_t>((qs[i] >> (2 * (sub % 4))) & 0x03030303U);
  }
};

struct UnitQ3K : UnitTraits<nm::Q3_K, false, true> {
  static __device__ __forceinline__ int32_t scale(const uint8_t* s, uint32_t which) {
    const uint32_t low = (s[which % 8] >> (4 * (which / 8))) & 15U;
    const uint32_t high = (s[8 + which % 4] >> (2 * (which / 4))) & 3U;
    return static_cast<int32_t>(low | high << 4) - 32;
  }
  static __device__ __forceinline__ void load(const uint8_t* p, uint32_t sub, BlockCodes& c) {
    uint32_t qs[8];
    uint32_t mask[8];
    load_words<8, kAlign>(p + kQs + 32 * (sub / 4), qs);
    load_words<8, kAlign>(p + kHmask, mask);
    c.d = load_half(p + kD);
    c.scale0 = scale(p + kScales, 2 * sub), c.scale1 = scale(p + kScales, 2 * sub + 1);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t low = (qs[i] >> (2 * (sub % 4))) & 0x03030303U;
      c.words[i] = minus<4>(low | ((mask[i] >> sub) & 0x01010101U) << 2);
    }
  }
};

// The 6-bit scale and minimum of Q4_K and Q5_K.
__device__ __forceinline__ void load_k4_scale(const uint8_t* s, uint32_t sub, BlockCodes& c) {
  const uint32_t j = sub % 4;
  const uint32_t a = s[j];
  const uint32_t b = s[j + 4];
  const uint32_t low = s[j + 8];
  c.scale0 = static_cast<int32_t>(sub < 4 ? a & 63U : (low & 15U) | (a >> 6) << 4);
  c.min0 = static_cast<int32_t>(sub < 4 ? b & 63U : (low >> 4) | (b >> 6) << 4);
}

struct UnitQ4K : UnitTraits<nm::Q4_K, true, false> {
  static __device__ __forceinline__ void load(const uint8_t* p, uint32_t sub, BlockCodes& c) {
    uint32_t qs[8];
    load_words<8, kAlign>(p + kQs + 32 * (sub / 2), qs);
    c.d = load_half(p + kD);
    c.d_min = -load_half(p + kDmin);
    load_k4_scale(p + kScales, sub, c);
#pragma unroll
    for (int i = 0; i < 8; ++i) c.words[i] = static_cast<int32_t>((qs[i] >> (4 * (sub % 2))) & 0x0F0F0F0FU);
  }
};

struct UnitQ5K : UnitTraits<nm::Q5_K, true, false> {
  static __device__ __forceinline__ void load(const uint8_t* p, uint32_t sub, BlockCodes& c) {
    uint32_t qs[8];
    uint32_t qh[8];
    load_words<8, kAlign>(p + kQs + 32 * (sub / 2), qs);
    load_words<8, kAlign>(p + kQh, qh);
    c.d = load_half(p + kD);
    c.d_min = -load_half(p + kDmin);
    load_k4_scale(p + kScales, sub, c);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t low = (qs[i] >> (4 * (sub % 2))) & 0x0F0F0F0FU;
      c.words[i] = static_cast<int32_t>(low | ((qh[i] >> sub) & 0x01010101U) << 4);
    }
  }
};

struct UnitQ6K : UnitTraits<nm::Q6_K, false, true> {
  static __device__ __forceinline__ void load(const uint8_t* p, uint32_t sub, BlockCodes& c) {
    const uint32_t half = sub / 4;
    const uint32_t quarter = sub % 4;
    uint32_t ql[8];
    uint32_t qh[8];
    load_words<8, kAlign>(p + kQl + 64 * half + 32 * (quarter % 2), ql);
    load_words<8, kAlign>(p + kQh + 32 * half, qh);
    c.d = load_half(p + kD);
    c.scale0 = static_cast<int8_t>(p[kScales + 2 * sub]);
    c.scale1 = static_cast<int8_t>(p[kScales + 2 * sub + 1]);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t low = (ql[i] >> (4 * (quarter / 2))) & 0x0F0F0F0FU;
      c.words[i] = minus<32>(low | ((qh[i] >> (2 * quarter)) & 0x03030303U) << 4);
    }
  }
};

struct UnitIq4Xs : UnitTraits<nm::IQ4_XS, false, false> {
  static __device__ __forceinline__ void load(const uint8_t* p, uint32_t sub, BlockCodes& c) {
    uint32_t qs[4];
    load_words<4, kAlign>(p + kQs + 16 * sub, qs);
    c.d = load_half(p + kD);
    const uint32_t low = (p[kScalesL + sub / 2] >> (4 * (sub % 2))) & 15U;
    const uint32_t high = (static_cast<uint32_t>(*reinterpret_cast<const uint16_t*>(p + kScalesH)) >> (2 * sub)) & 3U;
    c.scale0 = static_cast<int32_t>(low | high << 4) - 32;
    look_up_block<false>(qs, c);
  }
};

// Whether scale0 carries a sub-scale (the types of 256 elements).
template <typename Unit>
constexpr bool has_scale() {
  return Unit::kElems == 256;
}

// ---- what a block adds to its lane ----

// The activations of one block.
struct BlockActs {
  int32_t q[8];
  float d;
  int32_t sum0, sum1;  // of the halves with kHalves, else sum0 is of all; read with kHasMin only
};

template <typename Unit>
__device__ __forceinline__ float join(const BlockCodes& c, const BlockActs& a, float lane) {
  int32_t dot0 = 0;
  int32_t dot1 = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    dot0 = __dp4a(c.words[i], a.q[i], dot0);
    dot1 = __dp4a(c.words[4 + i], a.q[4 + i], dot1);
  }
  int32_t isum = dot0 + dot1;
  if constexpr (Unit::kHalves) {
    isum = c.scale0 * dot0 + c.scale1 * dot1;
  } else if constexpr (has_scale<Unit>()) {
    isum *= c.scale0;
  }
  lane = __fmaf_rn(static_cast<float>(isum), __fmul_rn(c.d, a.d), lane);
  if constexpr (Unit::kHasMin) {
    int32_t msum = c.min0 * a.sum0;
    if constexpr (Unit::kHalves) msum += c.min1 * a.sum1;
    lane = __fmaf_rn(static_cast<float>(msum), __fmul_rn(c.d_min, a.d), lane);
  }
  return lane;
}

}  // namespace
}  // namespace outrider::cuda
