// SPDX-License-Identifier: Apache-2.0
// Row kernels of packed weights (packed.h). Eight threads have a row and are the lanes of the law, as in warp_rows.cuh,
// but weights come straight to registers, 16 bytes a thread and 512 a warp at once: no shared memory, no banks, no
// lines cut in two. A thread asks for all of its rows, or for as much as its registers hold, before it waits for the
// activations, which the block copies to shared memory once for all of its rows.
#pragma once

#include <type_traits>
#include <utility>

#include "outrider/cuda/device/async_copy.cuh"
#include "outrider/cuda/device/overlap.cuh"
#include "outrider/cuda/device/packed_units.cuh"
#include "outrider/cuda/device/quantize.cuh"
#include "outrider/cuda/product/packed.h"
#include "outrider/cuda/product/warp_rows.cuh"

namespace outrider::cuda {
namespace {

// Weights are read once: past the L1, and in the order of the source. kBytes at from + kAt.
template <uint32_t kBytes, uint32_t kAt, bool kSigned = false>
__device__ __forceinline__ void read_once(const uint8_t* from, uint32_t* to) {
  if constexpr (kBytes == 16) {
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4 + %5];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "l"(from), "n"(kAt));
  } else if constexpr (kBytes == 8) {
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2 + %3];"
                 : "=r"(to[0]), "=r"(to[1])
                 : "l"(from), "n"(kAt));
  } else if constexpr (kBytes == 4) {
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1 + %2];" : "=r"(to[0]) : "l"(from), "n"(kAt));
  } else if constexpr (kBytes == 2) {
    asm volatile("ld.global.nc.L1::no_allocate.u16 %0, [%1 + %2];" : "=r"(to[0]) : "l"(from), "n"(kAt));
  } else if constexpr (kBytes == 1 && kSigned) {
    asm volatile("ld.global.nc.L1::no_allocate.s8 %0, [%1 + %2];" : "=r"(to[0]) : "l"(from), "n"(kAt));
  } else if constexpr (kBytes == 1) {
    asm volatile("ld.global.nc.L1::no_allocate.u8 %0, [%1 + %2];" : "=r"(to[0]) : "l"(from), "n"(kAt));
  }
}
template <uint32_t kI>
using Index = std::integral_constant<uint32_t, kI>;
template <typename F, uint32_t... kI>
__device__ __forceinline__ void each_of(const F& f, std::integer_sequence<uint32_t, kI...>) {
  (f(Index<kI>{}), ...);
}
// f(Index<0>), f(Index<1>) ... up to n.
template <uint32_t kN, typename F>
__device__ __forceinline__ void each(const F& f) {
  each_of(f, std::make_integer_sequence<uint32_t, kN>{});
}

// How a kernel is cut: quads of rows that a warp works on at once, warps of a block, the blocks of a row (0: any
// number), of how many of them, eight at a time, a thread asks before it uses the first, and the warps on a
// multiprocessor: with 16 a thread has 128 registers for what it holds and room to work in, with 24 it has 80.
template <uint32_t kQuadsIn, uint32_t kWarpsIn, uint32_t kBlocksIn, uint32_t kHeldIn, uint32_t kAtOnceIn = 16>
struct PackedCut {
  static constexpr uint32_t kQuads = kQuadsIn, kWarps = kWarpsIn, kBlocks = kBlocksIn, kHeld = kHeldIn;
  static constexpr uint32_t kAtOnce = kAtOnceIn;
  static constexpr bool kWhole = kBlocksIn != 0 && (kBlocksIn + 7) / 8 == kHeldIn;  // all of a row
};

// The activations of a token in shared memory: the first halves of all blocks, the second ones, then scale and sum.
__host__ __device__ constexpr uint32_t packed_acts_bytes(uint32_t n_blocks) { return n_blocks * 40 + n_blocks % 2 * 8; }

template <typename Unit, uint32_t kStreams, typename Cut>
struct PackedRows {
  using One = Packed<Unit>;
  static constexpr PackedShape kShape = packed_shape(One::kType);
  static constexpr uint32_t kHeld = Cut::kHeld;
  static constexpr uint32_t kSteps = (Cut::kBlocks + 7) / 8;                            // 0: any number
  static constexpr uint32_t kLast = Cut::kBlocks - 8 * (kSteps == 0 ? 0 : kSteps - 1);  // blocks of the last
  const uint8_t* quads[kStreams];
  uint32_t lane, n_blocks;
  PackedBlock held[kStreams][kHeld];

  // Eight blocks a row, or the `width` of the last step; `lane` has `place` among them. kStep and kPlaces, or step and
  // places, say where.
  template <uint32_t kStep, uint32_t kWidth>
  __device__ __forceinline__ void load_at(uint32_t slot, uint32_t place, const uint8_t* const (&from)[kStreams],
                                          uint32_t scale_at, uint32_t above_at, uint32_t super_at) {
    constexpr PackedPlaces kAt = Cut::kBlocks == 0 ? PackedPlaces{} : packed_places(kShape, Cut::kBlocks);
#pragma unroll
    for (uint32_t m = 0; m < kStreams; ++m) {
      PackedBlock& to = held[m][slot];
      const uint8_t* codes = from[m] + place * 16;
      read_once<16, kStep * 32 * kShape.codes>(codes, to.words);
      if constexpr (kShape.codes == 32) read_once<16, kStep * 32 * kShape.codes + kWidth * 64>(codes, to.words + 4);
    }
#pragma unroll
    for (uint32_t m = 0; m < kStreams; ++m) {
      PackedBlock& to = held[m][slot];
      read_once<kShape.above, kAt.above + kStep * 32 * kShape.above>(from[m] + above_at + place * kShape.above,
                                                                     to.above);
      read_once<kShape.scale, kAt.scale + kStep * 32 * kShape.scale, kShape.is_signed>(
          from[m] + scale_at + place * kShape.scale, &to.scale);
      read_once<kShape.super, kAt.super + kStep * 4 * kShape.super>(from[m] + super_at + lane / 8 * kShape.super,
                                                                    &to.super);
    }
  }
  // Asks for step kStep of a row of known length.
  template <uint32_t kStep>
  __device__ __forceinline__ void load() {
    if constexpr (kStep + 1 == kSteps && kLast != 8) {
      if (lane % 8 < kLast) load_at<kStep, kLast>(kStep % kHeld, lane / 8 * kLast + lane % 8, quads, 0, 0, 0);
    } else if constexpr (kStep < kSteps) {
      load_at<kStep, 8>(kStep % kHeld, lane, quads, 0, 0, 0);
    }
  }
  // The same of any row.
  __device__ __forceinline__ void load(uint32_t slot, uint32_t step) {
    if (8 * step >= n_blocks) return;
    const PackedPlaces at = packed_places(kShape, n_blocks);
    const uint8_t* from[kStreams];
#pragma unroll
    for (uint32_t m = 0; m < kStreams; ++m) from[m] = quads[m] + step * 32 * kShape.codes;
    const uint32_t above = at.above + step * 32 * kShape.above - step * 32 * kShape.codes;
    const uint32_t scale = at.scale + step * 32 * kShape.scale - step * 32 * kShape.codes;
    const uint32_t super = at.super + step * 4 * kShape.super - step * 32 * kShape.codes;
    if (n_blocks - 8 * step >= 8) return load_at<0, 8>(slot, lane, from, scale, above, super);
    const uint32_t width = n_blocks - 8 * step;
    if (lane % 8 >= width) return;
    const uint32_t place = lane / 8 * width + lane % 8;
    load_at<0, 0>(slot, place, from, scale, above, super);
    if constexpr (kShape.codes == 32) {
#pragma unroll
      for (uint32_t m = 0; m < kStreams; ++m)
        read_once<16, 0>(from[m] + place * 16 + width * 64, held[m][slot].words + 4);
    }
  }
  __device__ __forceinline__ void start() {
    if constexpr (kSteps != 0) {
      each<kHeld>([&](auto i) { load<i.value>(); });
    } else {
#pragma unroll
      for (uint32_t i = 0; i < kHeld; ++i) load(i, i);
    }
  }

  // `acts`: of this lane's block of the step.
  template <typename Table>
  __device__ __forceinline__ void join_step(const uint8_t* acts, const uint8_t* acts_high, const uint8_t* acts_rest,
                                            uint32_t slot, const Table& table, float (&lanes)[kStreams]) {
    const int4 low = *reinterpret_cast<const int4*>(acts);
    const int4 high = *reinterpret_cast<const int4*>(acts_high);
    const uint2 rest = *reinterpret_cast<const uint2*>(acts_rest);
    BlockActs a;
    a.q[0] = low.x, a.q[1] = low.y, a.q[2] = low.z, a.q[3] = low.w;
    a.q[4] = high.x, a.q[5] = high.y, a.q[6] = high.z, a.q[7] = high.w;
    a.d = __uint_as_float(rest.x);
    if constexpr (One::kSums == PackedSums::kAll) a.sum0 = static_cast<int32_t>(rest.y);
    if constexpr (One::kSums == PackedSums::kHalves) {
      a.sum0 = static_cast<int16_t>(rest.y), a.sum1 = static_cast<int32_t>(rest.y) >> 16;
    }
#pragma unroll
    for (uint32_t m = 0; m < kStreams; ++m) {
      // What is made of these words is made again for every token: it has no registers to wait in.
#pragma unroll
      for (uint32_t i = 0; i < kShape.codes / 4; ++i) asm volatile("" : "+r"(held[m][slot].words[i]));
      lanes[m] = One::join(held[m][slot], table, a, lanes[m]);
    }
  }

  // After start(); `is_last`: no other token reads these rows.
  template <typename Table>
  __device__ __forceinline__ void run(const uint8_t* acts, const Table& table, bool is_last, float (&lanes)[kStreams]) {
    const uint8_t* own = acts + lane % 8 * 16;
    if constexpr (kSteps != 0) {
      constexpr uint32_t kHigh = Cut::kBlocks * 16;
      const uint8_t* rest = acts + 2 * kHigh + lane % 8 * 8;
      each<kSteps>([&](auto i) {
        if (i.value + 1 < kSteps || lane % 8 < kLast) {
          join_step(own + i.value * 128, own + kHigh + i.value * 128, rest + i.value * 64, i.value % kHeld, table,
                    lanes);
        }
        load<i.value + kHeld>();
      });
    } else {
#pragma unroll 1
      for (uint32_t first = 0; 8 * first < n_blocks; first += kHeld) {
#pragma unroll
        for (uint32_t i = 0; i < kHeld; ++i) {
          const uint32_t block = 8 * (first + i) + lane % 8;
          if (block < n_blocks) {
            join_step(acts + 16 * block, acts + 16 * (n_blocks + block), acts + 32 * n_blocks + 8 * block, i, table,
                      lanes);
          }
          load(i, first + i + kHeld);
        }
      }
    }
    if (!Cut::kWhole && !is_last) start();
  }
};

// Copies the activations of one token, row `row` of x, by all threads of a block.
template <typename Unit, uint32_t kThreads>
__device__ __forceinline__ void copy_acts(const ProductParams& p, uint32_t n_blocks, uint32_t row, uint8_t* to) {
  constexpr PackedSums kSums = Packed<Unit>::kSums;
  const uint64_t first = static_cast<uint64_t>(row) * n_blocks;
  const int8_t* const q = p.q + first * 32;
  const float* const d = p.d + first;
  uint8_t* const rest = to + 32 * n_blocks;
  const uint32_t thread = threadIdx.x;
  for (uint32_t at = 0; at < 2 * n_blocks; at += kThreads) {
    const uint32_t i = at + thread;
    if (i < 2 * n_blocks) copy_async16(to + (i % 2 * n_blocks + i / 2) * 16, q + i * 16);
  }
  for (uint32_t at = 0; at < n_blocks; at += kThreads) {
    const uint32_t i = at + thread;
    if (i >= n_blocks) break;
    copy_async4(rest + 8 * i, d + i);
    if constexpr (kSums == PackedSums::kAll) copy_async4(rest + 8 * i + 4, p.sum32 + first + i);
    if constexpr (kSums == PackedSums::kHalves) copy_async4(rest + 8 * i + 4, p.sum16 + 2 * (first + i));
  }
}

template <typename Unit, bool kGated, typename Cut>
__global__ void __launch_bounds__(Cut::kWarps* kWarp, Cut::kAtOnce / Cut::kWarps)
    packed_kernel(const __grid_constant__ ProductParams p) {
  constexpr uint32_t kStreams = kGated ? 2 * Cut::kQuads : Cut::kQuads;  // quads of up, then those of gate
  extern __shared__ __align__(16) uint8_t shared[];                      // activations of two tokens
  __shared__ float tile[kWarp];
  let_next_launch_start();
  if (!p.ahead) wait_for_launch_before();
  const ProductJob job = p.jobs != nullptr ? p.jobs[blockIdx.y] : p.job;
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t warp = threadIdx.x / kWarp;
  PackedRows<Unit, kStreams, Cut> rows;
  rows.lane = lane, rows.n_blocks = p.n_blocks;
  const uint32_t n_blocks = Cut::kBlocks == 0 ? p.n_blocks : Cut::kBlocks;
  const uint32_t n_quads = (p.n_rows + kQuad - 1) / kQuad;
  const uint32_t quad = (blockIdx.x * Cut::kWarps + warp) * Cut::kQuads;
#pragma unroll
  for (uint32_t m = 0; m < kStreams; ++m) {
    const uint32_t own = quad + m % Cut::kQuads;
    const auto* base = reinterpret_cast<const uint8_t*>(m >= Cut::kQuads ? job.gate : job.weights);
    rows.quads[m] = base + static_cast<uint64_t>(own < n_quads ? own : n_quads - 1) * p.row_bytes;
  }
  if (job.n_pairs != 0) rows.start();
  if (p.ahead) wait_for_launch_before();
  if (job.n_pairs == 0) return;
  const uint32_t acts_bytes = packed_acts_bytes(n_blocks);
  const auto copy = [&](uint32_t i) {
    if (i < job.n_pairs) {
      const uint32_t pair = job.pair_begin + i;
      copy_acts<Unit, Cut::kWarps * kWarp>(p, n_blocks, p.token_rows != nullptr ? p.token_rows[pair] : pair,
                                           shared + i % 2 * acts_bytes);
    }
    commit_async();
  };
  copy(0);
  const auto table = Packed<Unit>::make_table(hidden_zero(shared + 16 * lane));
  for (uint32_t i = 0; i < job.n_pairs; ++i) {
    wait_async<0>();
    __syncthreads();  // the activations are there, and everyone is done with those before
    copy(i + 1);
    float lanes[kStreams] = {};
    rows.run(shared + i % 2 * acts_bytes, table, i + 1 == job.n_pairs, lanes);
    const uint64_t pair = job.pair_begin + i;
    // Thread m of eight keeps the row of quad m.
    float mine = 0;
#pragma unroll
    for (uint32_t m = 0; m < Cut::kQuads; ++m) {
      float sum = fold8(lanes[m]);
      if constexpr (kGated) sum = swiglu_f32(fold8(lanes[Cut::kQuads + m]), sum, p.alpha, p.limit);
      if (m == lane % 8) mine = sum;
    }
    const uint32_t row = (quad + lane % 8) * kQuad + lane / 8;
    const bool is_mine = lane % 8 < Cut::kQuads && row < p.n_rows;
    if (is_mine && p.out != nullptr) p.out[pair * p.out_stride + row] = mine;
    if constexpr (kGated) {
      static_assert(Cut::kWarps * Cut::kQuads * kQuad == kWarp);
      if (p.hidden.q == nullptr) continue;
      if (is_mine) tile[row % kWarp] = mine;
      __syncthreads();
      if (warp == 0) {
        quantize_block(tile[lane], lane, pair * (p.n_rows / kWarp) + blockIdx.x, p.hidden);
      }
    }
  }
}

template <typename Unit, bool kGated, typename Cut>
void launch_packed(Cut, const ProductParams& p, uint32_t n_jobs, cudaStream_t stream) {
  constexpr uint32_t kRows = Cut::kWarps * kQuad * Cut::kQuads;
  const uint32_t shared = 2 * packed_acts_bytes(p.n_blocks);
  const auto kernel = packed_kernel<Unit, kGated, Cut>;
  if (shared > 47 * 1024) {
    cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
               "cudaFuncSetAttribute(packed_kernel)", shared);
  }
  const LaunchShape shape{dim3((p.n_rows + kRows - 1) / kRows, n_jobs), Cut::kWarps * kWarp, shared};
  launch_behind(kernel, shape, p, stream, "cudaLaunchKernelEx(packed_kernel)");
}

// The rows of the experts that were measured have kernels of their own; docs/cuda.md says how they were chosen. Beside
// other launches, which have bytes on their way too, a thread holds less and more warps take turns; so it does in
// launches of more blocks than there is room for, but where a job has several tokens, which would read the rows again.
template <typename Unit, bool kGated>
void packed(const ProductParams& p, uint32_t n_jobs, uint32_t most_pairs, cudaStream_t stream) {
  constexpr PackedShape kShape = packed_shape(Packed<Unit>::kType);
  constexpr uint32_t kWords = kShape.codes / 4 + kShape.above / 4 + 1 + (kShape.super != 0 ? 1 : 0);  // of a block
  const auto launch = [&](auto cut) { launch_packed<Unit, kGated>(cut, p, n_jobs, stream); };
  constexpr uint32_t kRowsOfSixteenWarps = kGated ? 64 : 256;
  const bool fills = most_pairs <= 1 && p.n_rows / kRowsOfSixteenWarps * n_jobs > multiprocessors();
  const bool beside = p.beside || fills;
  if constexpr (kGated) {
    if constexpr (kWords <= 8) {
      constexpr uint32_t kAtOnce = kWords <= 6 ? 24 : 16;
      if (beside && p.n_blocks == 64) return launch(PackedCut<1, 8, 64, 3, kAtOnce>{});
      if (beside && p.n_blocks == 80) return launch(PackedCut<1, 8, 80, 3, kAtOnce>{});
    }
    if (p.n_blocks == 64) return launch(PackedCut < 1, 8, 64, kWords == 5 ? 8 : 4 > {});
    if (p.n_blocks == 80) return launch(PackedCut < 1, 8, 80, kWords <= 6 ? 5 : 4 > {});
    return launch(PackedCut<1, 8, 0, 3>{});
  } else {
    if constexpr (kWords <= 8) {
      constexpr uint32_t kHeld = kWords <= 6 ? 1 : 2;
      constexpr uint32_t kAtOnce = kWords <= 6 ? 24 : 16;
      if (beside && p.n_blocks == 24) return launch(PackedCut<4, 4, 24, kHeld, kAtOnce>{});
      if constexpr (Unit::kSubs == 1) {
        if (beside && p.n_blocks == 20) return launch(PackedCut<4, 4, 20, kHeld, kAtOnce>{});
      }
    }
    constexpr uint32_t kQuads = kWords == 7 || kWords == 8 ? 2 : 4;
    if (p.n_blocks == 24) return launch(PackedCut<kQuads, 4, 24, 3>{});
    if constexpr (Unit::kSubs == 1) {
      if (p.n_blocks == 20) return launch(PackedCut<kQuads, 4, 20, 3>{});
    }
    return launch(PackedCut<2, 4, 0, 3>{});
  }
}

}  // namespace
}  // namespace outrider::cuda

// The launchers of a type, packed.h.
#define OUTRIDER_PACKED(unit, name)                                                                             \
  void packed_##name(const ProductParams& p, uint32_t n_jobs, uint32_t most_pairs, cudaStream_t stream) {       \
    packed<Unit##unit, false>(p, n_jobs, most_pairs, stream);                                                   \
  }                                                                                                             \
  void packed_gated_##name(const ProductParams& p, uint32_t n_jobs, uint32_t most_pairs, cudaStream_t stream) { \
    packed<Unit##unit, true>(p, n_jobs, most_pairs, stream);                                                    \
  }
