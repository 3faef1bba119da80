// SPDX-License-Identifier: Apache-2.0
// One block of 32 elements times the activations of one token, in the fewest instructions: what the row kernels do
// where decoding is not shared by several tokens. units.cuh decodes to int8 codes; here the integers of the law are
// reached by other ways that are just as exact:
// - codes stay unsigned, and what they are offset by is multiplied with the sum of the activations;
// - codes stay where they lie in their bytes, and the sum is shifted down;
// - tables are looked up by __byte_perm's sign mode, values of one half of the table at a time, 0 for the other half.
// Words come from shared memory, where the words around a block are readable.
#pragma once

#include "outrider/cuda/device/units.cuh"

namespace outrider::cuda {
namespace {

// Four products of an unsigned and a signed byte.
__device__ __forceinline__ int32_t dot_unsigned(uint32_t codes, int32_t q, int32_t sum) {
  int32_t d;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(codes), "r"(q), "r"(sum));
  return d;
}
// Bytes chosen by the four lowest nibbles of `which`; a nibble above 7 gives eight times the sign bit of its byte,
// which is 0 in tables of values below 128.
__device__ __forceinline__ int32_t pick_or_zero(uint32_t low, uint32_t high, uint32_t which) {
  uint32_t d;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(low), "r"(high), "r"(which));
  return static_cast<int32_t>(d);
}

// The N words after the first kHead bytes of a block that begins `shift` bits into the word at p; kHead at most 2 and a
// divisor of the block's address. `head` begins with those bytes.
template <int N, int kHead>
__device__ __forceinline__ void load_after(const uint8_t* p, uint32_t shift, uint32_t (&out)[N], uint32_t& head) {
  const auto* from = reinterpret_cast<const uint32_t*>(p);
  uint32_t low = from[0];
  head = low >> shift;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const uint32_t high = from[i + 1];
    out[i] = __funnelshift_rc(low, high, shift + 8 * kHead);  // 32 at most, which gives `high`
    low = high;
  }
}
__device__ __forceinline__ float half_at_bottom(uint32_t bits) { return f16_to_f32(static_cast<uint16_t>(bits)); }

__device__ __forceinline__ void load16(const uint8_t* p, uint32_t* out) {
  const uint4 v = *reinterpret_cast<const uint4*>(p);
  out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
}

// N words, N even, `skip` bytes (even) after p, a multiple of 8: read as pairs, which meet fewer banks than N + 1
// single words would.
template <int N>
__device__ __forceinline__ void load_pairs(const uint8_t* p, uint32_t skip, uint32_t (&out)[N]) {
  const auto* from = reinterpret_cast<const uint2*>(p);
  uint32_t words[N + 2];
#pragma unroll
  for (int i = 0; i < N / 2 + 1; ++i) words[2 * i] = from[i].x, words[2 * i + 1] = from[i].y;
  const bool is_second = (skip & 4U) != 0;
  const uint32_t shift = (skip & 3U) * 8;
#pragma unroll
  for (int i = 0; i < N + 1; ++i) words[i] = is_second ? words[i + 1] : words[i];
#pragma unroll
  for (int i = 0; i < N; ++i) out[i] = __funnelshift_r(words[i], words[i + 1], shift);
}

// What a type wants of the activations.
enum class ActForm : uint8_t {
  kPlain,   // in order; sums where BlockActs has them
  kSum32,   // and the sum of all
  kSum16,   // and the sums of the halves
  kPaired,  // elements 2i, 16+2i, 2i+1, 17+2i a word: the order of nibbles in memory
};

// What a thread keeps for all blocks: its lane of the law, which is also the part of blocks of 256 that it has, and
// what a type makes of it.
struct NoTable {};
template <typename TableType>
struct ThreadState {
  uint32_t sub;
  TableType table;
};

// Any type: by its codes.
template <typename Unit>
struct OneToken {
  using State = ThreadState<NoTable>;
  static __device__ __forceinline__ State make_state(uint32_t lane, uint32_t) { return {lane, {}}; }
  static constexpr ActForm kActs = !Unit::kHasMin ? ActForm::kPlain : Unit::kHalves ? ActForm::kSum16 : ActForm::kSum32;
  static constexpr uint32_t kRound = 1;
  // `p`: the block, or the block of 256 that it is a part of, rounded down to a multiple of kRound; it begins `shift`
  // bits after that.
  static __device__ __forceinline__ float join(const uint8_t* p, uint32_t, const State& t, const BlockActs& a,
                                               float lane) {
    const uint32_t sub = t.sub;
    BlockCodes codes;
    Unit::load(p, sub, codes);
    return outrider::cuda::join<Unit>(codes, a, lane);
  }
};

template <>
struct OneToken<UnitQ4_0> {
  using State = ThreadState<NoTable>;
  static __device__ __forceinline__ State make_state(uint32_t lane, uint32_t) { return {lane, {}}; }
  static constexpr ActForm kActs = ActForm::kSum32;
  static constexpr uint32_t kRound = 4;
  static __device__ __forceinline__ float join(const uint8_t* p, uint32_t shift, const State& t, const BlockActs& a,
                                               float lane) {
    uint32_t qs[4];
    uint32_t d;
    load_after<4, 2>(p, shift, qs, d);
    int32_t low = -8 * a.sum0;
    int32_t high = 0;  // 16 times
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      low = dot_unsigned(qs[i] & 0x0F0F0F0FU, a.q[i], low);
      high = dot_unsigned(qs[i] & 0xF0F0F0F0U, a.q[4 + i], high);
    }
    return __fmaf_rn(static_cast<float>(low + (high >> 4)), __fmul_rn(half_at_bottom(d), a.d), lane);
  }
};

template <>
struct OneToken<UnitQ8_0> {
  using State = ThreadState<NoTable>;
  static __device__ __forceinline__ State make_state(uint32_t lane, uint32_t) { return {lane, {}}; }
  static constexpr ActForm kActs = ActForm::kPlain;
  static constexpr uint32_t kRound = 4;
  static __device__ __forceinline__ float join(const uint8_t* p, uint32_t shift, const State& t, const BlockActs& a,
                                               float lane) {
    uint32_t qs[8];
    uint32_t d;
    load_after<8, 2>(p, shift, qs, d);
    int32_t sums[2] = {};
#pragma unroll
    for (int i = 0; i < 8; ++i) sums[i / 4] = __dp4a(static_cast<int32_t>(qs[i]), a.q[i], sums[i / 4]);
    return __fmaf_rn(static_cast<float>(sums[0] + sums[1]), __fmul_rn(half_at_bottom(d), a.d), lane);
  }
};

// Magnitudes of a table of 16 int8 whose halves have one sign each: codes 0 to 7, and 8 to 15.
struct Table {
  uint32_t below[2], above[2];
  uint32_t half;  // 2^16
};
constexpr uint32_t pack_magnitudes(const int8_t (&values)[16], int first) {
  uint32_t packed = 0;
  for (int i = 0; i < 4; ++i) {
    const int value = values[first + i];
    packed |= static_cast<uint32_t>(value < 0 ? -value : value) << (8 * i);
  }
  return packed;
}
// `zero` is 0, but the compiler must not know: it would keep the words in uniform registers, which a byte permutation
// cannot read, and copy them for every use.
template <bool kFp4>
__device__ __forceinline__ Table make_table(uint32_t zero) {
  constexpr uint32_t b0 = pack_magnitudes(kFp4 ? nm::kFp4Values : nm::kIq4Values, 0);
  constexpr uint32_t b1 = pack_magnitudes(kFp4 ? nm::kFp4Values : nm::kIq4Values, 4);
  constexpr uint32_t a0 = pack_magnitudes(kFp4 ? nm::kFp4Values : nm::kIq4Values, 8);
  constexpr uint32_t a1 = pack_magnitudes(kFp4 ? nm::kFp4Values : nm::kIq4Values, 12);
  return {{b0 + zero, b1 + zero}, {a0 + zero, a1 + zero}, 65536U + zero};
}

// The sums of 32 looked-up magnitudes times activations, codes 8 to 15 less codes 0 to 7. `halves` have four nibbles
// each.
__device__ __forceinline__ int32_t dot_table(const uint32_t (&halves)[8], const Table& t, const BlockActs& a) {
  int32_t below = 0;
  int32_t above = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    below = __dp4a(pick_or_zero(t.below[0], t.below[1], halves[i]), a.q[i], below);
    above = __dp4a(pick_or_zero(t.above[0], t.above[1], halves[i] ^ 0x8888U), a.q[i], above);
  }
  return above - below;
}

// Four words of nibbles to eight halves; the upper ones by shifts, or by multiplication, whose pipe has more room where
// words need no shifts before.
template <bool kByProduct>
__device__ __forceinline__ void split(const uint32_t (&words)[4], const Table& t, uint32_t (&halves)[8]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    halves[2 * i] = words[i];
    halves[2 * i + 1] = kByProduct ? static_cast<uint32_t>(uint64_t{words[i]} * t.half >> 32) : words[i] >> 16;
  }
}

template <>
struct OneToken<UnitIq4Nl> {
  using State = ThreadState<Table>;
  static __device__ __forceinline__ State make_state(uint32_t lane, uint32_t zero) {
    return {lane, make_table<false>(zero)};
  }
  static constexpr ActForm kActs = ActForm::kPaired;
  static constexpr uint32_t kRound = 1;
  static __device__ __forceinline__ float join(const uint8_t* p, uint32_t, const State& t, const BlockActs& a,
                                               float lane) {
    const auto* words = reinterpret_cast<const uint16_t*>(p);  // two bytes at a time: nothing to shift
    uint32_t halves[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) halves[i] = words[1 + i];
    const int32_t isum = dot_table(halves, t.table, a);
    return __fmaf_rn(static_cast<float>(isum), __fmul_rn(f16_to_f32(words[0]), a.d), lane);
  }
};

template <>
struct OneToken<UnitMxfp4> {
  using State = ThreadState<Table>;
  static __device__ __forceinline__ State make_state(uint32_t lane, uint32_t zero) {
    return {lane, make_table<true>(zero)};
  }
  static constexpr ActForm kActs = ActForm::kPaired;
  static constexpr uint32_t kRound = 4;
  static __device__ __forceinline__ float join(const uint8_t* p, uint32_t shift, const State& t, const BlockActs& a,
                                               float lane) {
    uint32_t qs[4];
    uint32_t head;
    load_after<4, 1>(p, shift, qs, head);
    const int32_t e = p[shift / 8];
    uint32_t halves[8];
    split<false>(qs, t.table, halves);
    const int32_t isum = -dot_table(halves, t.table, a);
    // 2^(e - 128): the second is larger where e is 0 or 1, whose powers are subnormal.
    const float d = __int_as_float(max((e << 23) - (1 << 23), (e << 21) + (1 << 21)));
    return __fmaf_rn(static_cast<float>(isum), __fmul_rn(d, a.d), lane);
  }
};

// (scale - 32) * dot by two multiplications with addition, whose pipe has room where that of additions has none.
__device__ __forceinline__ int32_t times_scale_less_32(uint32_t scale, int32_t dot) {
  int32_t product;
  asm("mad.lo.s32 %0, %1, -32, %2;" : "=r"(product) : "r"(dot), "r"(static_cast<int32_t>(scale) * dot));
  return product;
}

template <>
struct OneToken<UnitIq4Xs> {
  using State = ThreadState<Table>;
  static __device__ __forceinline__ State make_state(uint32_t lane, uint32_t zero) {
    return {lane, make_table<false>(zero)};
  }
  static constexpr ActForm kActs = ActForm::kPaired;
  static constexpr uint32_t kRound = 1;
  static __device__ __forceinline__ float join(const uint8_t* p, uint32_t, const State& t, const BlockActs& a,
                                               float lane) {
    const uint32_t sub = t.sub;
    const uint2 head = *reinterpret_cast<const uint2*>(p);  // d and scales_h, scales_l
    const auto* from = reinterpret_cast<const uint2*>(p + nm::IQ4_XS::kQs + 16 * sub);
    const uint2 first = from[0];
    const uint2 second = from[1];
    const uint32_t qs[4] = {first.x, first.y, second.x, second.y};
    uint32_t halves[8];
    split<true>(qs, t.table, halves);
    const uint32_t low = (head.y >> (4 * sub)) & 15U;
    const uint32_t high = (head.x >> (12 + 2 * sub)) & 48U;
    const int32_t isum = times_scale_less_32(low | high, dot_table(halves, t.table, a));
    return __fmaf_rn(static_cast<float>(isum), __fmul_rn(half_at_bottom(head.x), a.d), lane);
  }
};

// Q4_K and Q5_K. `head`: d and dmin, then the 12 bytes of scales; `dot` of the codes.
__device__ __forceinline__ float join_k4(const uint32_t (&head)[4], uint32_t sub, int32_t dot, const BlockActs& a,
                                         float lane) {
  const uint32_t at = 8 * (sub % 4);
  const uint32_t skip = sub < 4 ? at : at + 2;  // to the six bits, or to the upper two as bits 4 and 5
  const uint32_t own = sub < 4 ? 63U : 48U;
  const uint32_t shared = sub < 4 ? 0U : 15U;  // the lower four lie elsewhere
  const uint32_t scale = ((head[1] >> skip) & own) | ((head[3] >> at) & shared);
  const uint32_t min = ((head[2] >> skip) & own) | ((head[3] >> (at + 4)) & shared);
  const float d_min = half_at_bottom(head[0] >> 16);
  lane =
      __fmaf_rn(static_cast<float>(static_cast<int32_t>(scale) * dot), __fmul_rn(half_at_bottom(head[0]), a.d), lane);
  return __fmaf_rn(static_cast<float>(static_cast<int32_t>(min) * a.sum0), __fmul_rn(-d_min, a.d), lane);
}

template <>
struct OneToken<UnitQ4K> {
  using State = ThreadState<NoTable>;
  static __device__ __forceinline__ State make_state(uint32_t lane, uint32_t) { return {lane, {}}; }
  static constexpr ActForm kActs = ActForm::kSum32;
  static constexpr uint32_t kRound = 1;
  static __device__ __forceinline__ float join(const uint8_t* p, uint32_t, const State& t, const BlockActs& a,
                                               float lane) {
    const uint32_t sub = t.sub;
    uint32_t head[4];
    uint32_t qs[8];
    load16(p, head);
    load16(p + nm::Q4_K::kQs + 32 * (sub / 2), qs);
    load16(p + nm::Q4_K::kQs + 32 * (sub / 2) + 16, qs + 4);
    const uint32_t shift = 4 * (sub % 2);
    const uint32_t mask = 0x0F0F0F0FU << shift;
    int32_t sums[2] = {};
#pragma unroll
    for (int i = 0; i < 8; ++i) sums[i / 4] = dot_unsigned(qs[i] & mask, a.q[i], sums[i / 4]);
    return join_k4(head, sub, (sums[0] + sums[1]) >> shift, a, lane);
  }
};

template <>
struct OneToken<UnitQ5K> {
  using State = ThreadState<NoTable>;
  static __device__ __forceinline__ State make_state(uint32_t lane, uint32_t) { return {lane, {}}; }
  static constexpr ActForm kActs = ActForm::kSum32;
  static constexpr uint32_t kRound = 1;
  static __device__ __forceinline__ float join(const uint8_t* p, uint32_t, const State& t, const BlockActs& a,
                                               float lane) {
    const uint32_t sub = t.sub;
    uint32_t head[4];
    uint32_t qs[8];
    uint32_t qh[8];
    load16(p, head);
    load16(p + nm::Q5_K::kQh, qh);
    load16(p + nm::Q5_K::kQh + 16, qh + 4);
    load16(p + nm::Q5_K::kQs + 32 * (sub / 2), qs);
    load16(p + nm::Q5_K::kQs + 32 * (sub / 2) + 16, qs + 4);
    const uint32_t shift = 4 * (sub % 2);
    const uint32_t mask = 0x0F0F0F0FU << shift;
    const uint32_t bit = 0x01010101U << sub;
    int32_t low = 0;
    int32_t high = 0;  // fifth bits
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      low = dot_unsigned(qs[i] & mask, a.q[i], low);
      high = dot_unsigned(qh[i] & bit, a.q[i], high);
    }
    return join_k4(head, sub, (low >> shift) + (high >> sub) * 16, a, lane);
  }
};

template <>
struct OneToken<UnitQ6K> {
  using State = ThreadState<NoTable>;
  static __device__ __forceinline__ State make_state(uint32_t lane, uint32_t) { return {lane, {}}; }
  static constexpr ActForm kActs = ActForm::kSum16;
  static constexpr uint32_t kRound = 8;
  static __device__ __forceinline__ float join(const uint8_t* p, uint32_t shift_in, const State& t, const BlockActs& a,
                                               float lane) {
    const uint32_t sub = t.sub;
    using Layout = nm::Q6_K;
    const uint32_t quarter = sub % 4;
    uint32_t ql[8];
    uint32_t qh[8];
    const uint32_t skip = shift_in / 8;
    load_pairs(p + Layout::kQl + 64 * (sub / 4) + 32 * (quarter % 2), skip, ql);
    load_pairs(p + Layout::kQh + 32 * (sub / 4), skip, qh);
    const uint32_t scales = *reinterpret_cast<const uint16_t*>(p + skip + Layout::kScales + 2 * sub);
    const uint32_t shift = 4 * (quarter / 2);
    const uint32_t mask = 0x0F0F0F0FU << shift;
    const uint32_t bits = 0x03030303U << (2 * quarter);
    int32_t low[2] = {};
    int32_t high[2] = {};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      low[i / 4] = dot_unsigned(ql[i] & mask, a.q[i], low[i / 4]);
      high[i / 4] = dot_unsigned(qh[i] & bits, a.q[i], high[i / 4]);
    }
    const int32_t dot0 = (low[0] >> shift) + (high[0] >> (2 * quarter)) * 16 - 32 * a.sum0;
    const int32_t dot1 = (low[1] >> shift) + (high[1] >> (2 * quarter)) * 16 - 32 * a.sum1;
    const int32_t isum = static_cast<int8_t>(scales) * dot0 + static_cast<int8_t>(scales >> 8) * dot1;
    return __fmaf_rn(static_cast<float>(isum), __fmul_rn(load_half(p + skip + Layout::kD), a.d), lane);
  }
};

}  // namespace
}  // namespace outrider::cuda
