// SPDX-License-Identifier: Apache-2.0
// One chunk of 128 positions for up to four query heads of 128 elements: two warps, each with a ring of its own in
// shared memory through which 64 of the keys and then its half of all values pass by cp.async, so that there are two
// barriers a chunk and bytes always in flight.
// Scores: eight threads a position, thread t with lanes 4t .. 4t+3 of the law for two positions and all heads at once.
// The fold halves what a thread carries at each step (first positions, then heads): 28 shuffles for 32 scores. Values:
// a thread has two columns of all heads and goes through the positions in rising order.
#pragma once

#include "outrider/cuda/device/async_copy.cuh"
#include "outrider/cuda/device/functions.cuh"
#include "outrider/kernels/attention/attention.h"

namespace outrider::cuda {
namespace {

using kernels::KvType;

constexpr uint32_t kWideElems = 128;
constexpr uint32_t kWidePositions = 128;  // of a chunk
constexpr uint32_t kWideThreads = 2 * kWarp;

// Bytes in memory and in shared memory. A stage is 8 keys or 16 half values; the places of keys keep the reads of 8
// threads of four positions on different banks.
template <KvType kType>
struct WideLayout {
  static constexpr uint32_t kRow = kType == KvType::kF16 ? 256 : kType == KvType::kF32 ? 512 : 136;
  static constexpr uint32_t kHalf = kRow / 2;
  static constexpr uint32_t kPair = kType == KvType::kF16 ? 576 : kType == KvType::kF32 ? 1024 : 320;  // two keys
  static constexpr uint32_t kOdd = kType == KvType::kF16 ? 320 : kType == KvType::kF32 ? 512 : 160;    // the second
  static constexpr uint32_t kValue = kType == KvType::kQ8_0 ? 80 : kHalf;
  static constexpr uint32_t kStage = 4 * kPair > 16 * kValue ? 4 * kPair : 16 * kValue;
  static constexpr uint32_t kStages = kType == KvType::kQ8_0 ? 8 : 3;
  static constexpr uint32_t kShared = 2 * kStages * kStage;
  static __device__ __forceinline__ uint32_t key_at(uint32_t r) { return r / 2 * kPair + r % 2 * kOdd; }
  // From a key to the one n later, n even, or all alike.
  static constexpr uint32_t key_step(uint32_t n) { return n == 1 ? kOdd : n / 2 * kPair; }
};

// What a block works on. Keys and values of the chunk's first position, 16-byte aligned but for q8_0 (8 and 4).
struct WideChunk {
  const uint8_t* keys;
  const uint8_t* values;
  uint32_t k_stride, v_stride;
  uint32_t first, last;  // positions of the chunk that are seen
};

// Four bytes to the f32 values of four int8, exactly: 2^23 + 128 + value, less that.
__device__ __forceinline__ float byte_value(uint32_t flipped, uint32_t i) {
  return __fsub_rn(__uint_as_float(__byte_perm(flipped, 0x4B000000U, 0x7440U + i)), 8388736.0F);
}
__device__ __forceinline__ float f16_at(const uint8_t* p) { return f16_to_f32(*reinterpret_cast<const uint16_t*>(p)); }
__device__ __forceinline__ void widen2(uint32_t halves, float& a, float& b) {
  a = f16_to_f32(static_cast<uint16_t>(halves));
  b = f16_to_f32(static_cast<uint16_t>(halves >> 16));
}

// Elements 32 * step + 4 * t .. + 3 of a key at p.
template <KvType kType>
__device__ __forceinline__ void load_key(const uint8_t* p, uint32_t step, uint32_t t, float (&k)[4]) {
  if constexpr (kType == KvType::kF16) {
    const uint2 v = *reinterpret_cast<const uint2*>(p + 64 * step + 8 * t);
    widen2(v.x, k[0], k[1]);
    widen2(v.y, k[2], k[3]);
  } else if constexpr (kType == KvType::kF32) {
    const float4 v = *reinterpret_cast<const float4*>(p + 128 * step + 16 * t);
    k[0] = v.x, k[1] = v.y, k[2] = v.z, k[3] = v.w;
  } else {
    const uint8_t* block = p + 34 * step;
    const float d = f16_at(block);
    const auto* halves = reinterpret_cast<const uint16_t*>(block + 2 + 4 * t);
    const uint32_t word =
        step % 2 == 1 ? *reinterpret_cast<const uint32_t*>(halves) : halves[0] | static_cast<uint32_t>(halves[1]) << 16;
    const uint32_t flipped = word ^ 0x80808080U;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) k[i] = __fmul_rn(d, byte_value(flipped, i));
  }
}
// Columns 2 * lane and 2 * lane + 1 of a half value at p.
template <KvType kType>
__device__ __forceinline__ void load_value(const uint8_t* p, uint32_t lane, float (&v)[2]) {
  if constexpr (kType == KvType::kF16) {
    widen2(*reinterpret_cast<const uint32_t*>(p + 4 * lane), v[0], v[1]);
  } else if constexpr (kType == KvType::kF32) {
    const float2 pair = *reinterpret_cast<const float2*>(p + 8 * lane);
    v[0] = pair.x, v[1] = pair.y;
  } else {
    const uint8_t* block = p + 34 * (lane / 16);
    const float d = f16_at(block);
    const uint32_t flipped = *reinterpret_cast<const uint16_t*>(block + 2 + 2 * (lane % 16)) ^ 0x8080U;
    v[0] = __fmul_rn(d, byte_value(flipped, 0));
    v[1] = __fmul_rn(d, byte_value(flipped, 1));
  }
}

// Rows to a stage, kLanes threads a row, kAtOnce rows at once: this thread's pieces of 16 bytes, kBytes and `skew`
// before them in all. `to` and `from` are its own of the first row; `pitch` bytes of memory from row to row.
template <KvType kType, uint32_t kLanes, uint32_t kBytes>
struct StageCopy {
  static constexpr uint32_t kAtOnce = kWarp / kLanes;
  static constexpr uint32_t kReach = kBytes + (kType == KvType::kQ8_0 ? 12 : 0);
  template <uint32_t kRows, uint32_t kStep>  // kStep: bytes of a stage from kAtOnce rows to the next
  static __device__ __forceinline__ void run(uint8_t* to, const uint8_t* from, uint32_t pitch, uint32_t n_bytes,
                                             const WideChunk& chunk, uint32_t position) {
    const uint32_t after_first = position - chunk.first;  // wraps before it
    const uint32_t n_seen = chunk.last - chunk.first;
#pragma unroll
    for (uint32_t i = 0; i < kRows / kAtOnce; ++i) {
      if (after_first + i * kAtOnce < n_seen) {
        const uint8_t* row = from + static_cast<uint64_t>(i * kAtOnce) * pitch;
#pragma unroll
        for (uint32_t at = 0; at < kReach; at += 16 * kLanes) {
          const bool is_sure = kType != KvType::kQ8_0;  // every thread has a piece
          if (is_sure || at < n_bytes) copy_async16(to + i * kStep + at, row + at);
        }
      }
    }
  }
};

template <uint32_t kHeads, KvType kType>
struct WideWarp {
  using Layout = WideLayout<kType>;
  static constexpr uint32_t kKeyLanes = kType == KvType::kF32 ? 32 : kType == KvType::kF16 ? 16 : 8;
  static constexpr uint32_t kValueLanes = kType == KvType::kF32 ? 16 : 8;
  using KeyCopy = StageCopy<kType, kKeyLanes, Layout::kRow>;
  using ValueCopy = StageCopy<kType, kValueLanes, Layout::kHalf>;
  const WideChunk& chunk;
  uint8_t* ring;
  float (*e)[kHeads];
  uint32_t warp, lane;
  const uint8_t* key_from;  // this thread's piece of the next keys and values to come
  const uint8_t* value_from;
  uint32_t n_issued = 0;
  uint32_t write_at = 0, read_at = 0;  // stages in the ring, in bytes

  static __device__ __forceinline__ uint32_t skew_of(const uint8_t* p) {
    return kType == KvType::kQ8_0 ? static_cast<uint32_t>(reinterpret_cast<uintptr_t>(p) & 15U) : 0;
  }
  __device__ __forceinline__ WideWarp(const WideChunk& chunk_in, uint8_t* ring_in, float (*e_in)[kHeads])
      : chunk(chunk_in), ring(ring_in), e(e_in), warp(threadIdx.x / kWarp), lane(threadIdx.x % kWarp) {
    const uint8_t* values = chunk.values + warp * Layout::kHalf;
    key_from = chunk.keys - skew_of(chunk.keys) + uint64_t{8 * warp + lane / kKeyLanes} * chunk.k_stride +
               lane % kKeyLanes * 16;
    value_from = values - skew_of(values) + uint64_t{lane / kValueLanes} * chunk.v_stride + lane % kValueLanes * 16;
  }

  // The next stage of the ring: keys in stages 0 to 7, values in 8 to 15.
  __device__ __forceinline__ void issue() {
    uint8_t* stage = ring + write_at;
    if (n_issued < 8) {
      const uint32_t r = lane / kKeyLanes;
      const uint32_t left = Layout::kRow + skew_of(chunk.keys) - lane % kKeyLanes * 16;
      KeyCopy::template run<8, Layout::key_step(KeyCopy::kAtOnce)>(stage + Layout::key_at(r) + lane % kKeyLanes * 16,
                                                                   key_from, chunk.k_stride, left, chunk,
                                                                   16 * n_issued + 8 * warp + r);
      key_from += uint64_t{16} * chunk.k_stride;
    } else if (n_issued < 16) {
      const uint32_t r = lane / kValueLanes;
      const uint32_t own = lane % kValueLanes * 16;
      const uint32_t reach = Layout::kHalf + skew_of(chunk.values + warp * Layout::kHalf);
      ValueCopy::template run<16, ValueCopy::kAtOnce * Layout::kValue>(stage + r * Layout::kValue + own, value_from,
                                                                       chunk.v_stride, own < reach ? reach - own : 0,
                                                                       chunk, 16 * (n_issued - 8) + r);
      value_from += uint64_t{16} * chunk.v_stride;
    }
    ++n_issued;
    write_at = write_at + Layout::kStage == Layout::kStages * Layout::kStage ? 0 : write_at + Layout::kStage;
    commit_async();
  }
  __device__ __forceinline__ void start() {
#pragma unroll 1
    for (uint32_t u = 0; u < Layout::kStages; ++u) issue();
  }
  __device__ __forceinline__ const uint8_t* arrived() const {
    wait_async<Layout::kStages - 1>();
    __syncwarp();
    return ring + read_at;
  }
  __device__ __forceinline__ void done() {
    read_at = read_at + Layout::kStage == Layout::kStages * Layout::kStage ? 0 : read_at + Layout::kStage;
    __syncwarp();
    issue();
  }

  // Which head a thread calls its h-th: the fold keeps the lower half of a thread's heads at each step.
  static __device__ __forceinline__ uint32_t head_of(uint32_t h, uint32_t t) {
    return kHeads == 4 ? h ^ (t & 3U) : kHeads == 2 ? h ^ ((t >> 1) & 1U) : 0;
  }

  // e[p][h] = scale * (q_h . k_p) for this warp's keys; q: (heads, 128).
  __device__ __forceinline__ void score(const float* q, uint32_t n_heads, float scale) {
    const uint32_t t = lane % 8;
    const uint32_t own_key = Layout::key_at(lane / 8 + (t & 4U));  // of the position that the thread keeps
    const uint32_t other_key = Layout::key_at(lane / 8 + 4 - (t & 4U));
    float own[kHeads][4][4];  // heads, steps, lanes of the law
#pragma unroll
    for (uint32_t h = 0; h < kHeads; ++h) {
#pragma unroll
      for (uint32_t step = 0; step < 4; ++step) {
        const uint32_t head = head_of(h, t);
        const float* from = q + (head < n_heads ? head : 0) * kWideElems + 32 * step + 4 * t;
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) own[h][step][i] = from[i];
      }
    }
#pragma unroll 1
    for (uint32_t u = 0; u < 8; ++u) {
      const uint8_t* stage = arrived();
      stage += skew_of(chunk.keys);
      float sums[2][kHeads][4] = {};
#pragma unroll
      for (uint32_t step = 0; step < 4; ++step) {
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i) {
          float k[4];
          load_key<kType>(stage + (i == 0 ? own_key : other_key), step, t, k);
#pragma unroll
          for (uint32_t h = 0; h < kHeads; ++h) {
#pragma unroll
            for (uint32_t c = 0; c < 4; ++c) sums[i][h][c] = __fmaf_rn(own[h][step][c], k[c], sums[i][h][c]);
          }
        }
      }
      done();
      fold(sums, 16 * u + 8 * warp + lane / 8 + (t & 4U), t, scale);
    }
  }

  // Lane j of the law takes in lane j + 16 of the thread four on, j + 8 of the one two on, j + 4 of the next; then the
  // four of a thread fold. What a thread keeps comes first in its order of positions and heads, so nothing is selected.
  __device__ __forceinline__ void fold(const float (&sums)[2][kHeads][4], uint32_t position, uint32_t t, float scale) {
    float one[kHeads][4];
#pragma unroll
    for (uint32_t h = 0; h < kHeads; ++h) {
#pragma unroll
      for (uint32_t c = 0; c < 4; ++c) {
        one[h][c] = __fadd_rn(sums[0][h][c], __shfl_xor_sync(kAllLanes, sums[1][h][c], 4));
      }
    }
    halve<kHeads, 2>(one);
    halve<kHeads / 2, 1>(one);
    const float sum = __fadd_rn(__fadd_rn(one[0][0], one[0][2]), __fadd_rn(one[0][1], one[0][3]));
    if (kHeads == 4 || (kHeads == 2 ? (t & 1U) == 0 : (t & 3U) == 0)) {
      e[position][head_of(0, t)] = __fmul_rn(scale, sum);
    }
  }
  // A step of kDistance threads: of two or more heads a thread keeps half, one it adds in both threads.
  template <uint32_t kLeft, uint32_t kDistance>
  static __device__ __forceinline__ void halve(float (&one)[kHeads][4]) {
    constexpr uint32_t kKeep = kLeft >= 2 ? kLeft / 2 : 1;
#pragma unroll
    for (uint32_t h = 0; h < kKeep; ++h) {
#pragma unroll
      for (uint32_t c = 0; c < 4; ++c) {
        const float sent = one[kLeft >= 2 ? h + kKeep : h][c];
        one[h][c] = __fadd_rn(one[h][c], __shfl_xor_sync(kAllLanes, sent, kDistance));
      }
    }
  }

  // o_j = fma(e_p, v_pj, o_j) in rising p for this warp's half of the columns.
  __device__ __forceinline__ void add_values(float (&o)[kHeads][2]) {
#pragma unroll 1
    for (uint32_t u = 8; u < 16; ++u) {
      const uint8_t* stage = arrived();
      stage += skew_of(chunk.values + warp * Layout::kHalf);
      const uint32_t begin = 16 * (u - 8);
      if (begin >= chunk.first && begin + 16 <= chunk.last) {
#pragma unroll
        for (uint32_t r = 0; r < 16; ++r) add_value(stage, begin, r, o);
      } else {
#pragma unroll 1
        for (uint32_t r = 0; r < 16; ++r) {
          if (begin + r >= chunk.first && begin + r < chunk.last) add_value(stage, begin, r, o);
        }
      }
      done();
    }
  }
  __device__ __forceinline__ void add_value(const uint8_t* stage, uint32_t begin, uint32_t r, float (&o)[kHeads][2]) {
    float v[2];
    load_value<kType>(stage + r * Layout::kValue, lane, v);
    float factors[kHeads];
    if constexpr (kHeads == 4) {
      const float4 four = *reinterpret_cast<const float4*>(e[begin + r]);
      factors[0] = four.x, factors[1] = four.y, factors[2] = four.z, factors[3] = four.w;
    } else {
#pragma unroll
      for (uint32_t h = 0; h < kHeads; ++h) factors[h] = e[begin + r][h];
    }
#pragma unroll
    for (uint32_t h = 0; h < kHeads; ++h) {
      o[h][0] = __fmaf_rn(factors[h], v[0], o[h][0]);
      o[h][1] = __fmaf_rn(factors[h], v[1], o[h][1]);
    }
  }
};

}  // namespace
}  // namespace outrider::cuda
